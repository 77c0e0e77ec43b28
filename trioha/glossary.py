"""The words of docs/glossary.md: for `trioha help WORD`, and for the console's `?`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import trioha

_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_COLUMNS_HEAD = "## Columns of the console"
_EVERY_TABLE = "all"


def glossary() -> dict[str, str]:
    """Return word → meaning, in the page's order. Empty if the page is not installed."""
    words = {}
    for word, meaning, other in _rows(_page().partition(_COLUMNS_HEAD)[0]):
        words[word] = f"{meaning} (RocketMQ: {other})" if other else meaning
    return words


def column_words() -> dict[tuple[str, str], str]:
    """Return (table, column) → meaning; the table is "all" for what holds wherever it stands."""
    return {
        (table.strip(), column): meaning
        for column, tables, meaning in _rows(_page().partition(_COLUMNS_HEAD)[2])
        for table in tables.split(",")
    }


def column_meaning(words: dict[tuple[str, str], str], table: str, column: str) -> str | None:
    """Return what a column of a table of the console says; None if `words` do not have it."""
    return words.get((table, column), words.get((_EVERY_TABLE, column)))


def explain(word: str) -> str | None:
    """Return ``word: what it means``, whatever its case; None if it is not in the glossary.

    A word that is none of its own may be a column of the console.
    """
    for name, meaning in glossary().items():
        names = {name.lower(), re.sub(r" \(.*\)", "", name).lower()}
        if word.lower() in names:
            return f"{name}: {meaning}"
    lines = {
        meaning: f"{column}: {meaning}"
        for (_, column), meaning in column_words().items()
        if column.lower() == word.lower()
    }
    return "\n".join(lines.values()) or None


def _page() -> str:
    """Return the text of the page; "" if it is not installed."""
    home = Path(trioha.__file__).parent
    # Beside the package in a wheel, under docs in a checkout.
    paths = (home / "glossary.md", home.parent / "docs" / "glossary.md")
    page = next((path for path in paths if path.is_file()), None)
    return "" if page is None else page.read_text(encoding="utf-8")


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of a table of three columns, its head left out, as plain text."""
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith(("| word |", "| column |")):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        first, second, third = (*cells, "", "")[:3]
        yield first, _plain(second), _plain(third.strip(" |"))


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "")
