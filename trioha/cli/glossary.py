"""The words of docs/glossary.md, for `trioha help WORD`."""

from __future__ import annotations

import re
from pathlib import Path

import trioha

_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_COLUMNS = 3


def glossary() -> dict[str, str]:
    """Return word → meaning, in the page's order. Empty if the page is not installed."""
    home = Path(trioha.__file__).parent
    # Beside the package in a wheel, under docs in a checkout.
    paths = (home / "glossary.md", home.parent / "docs" / "glossary.md")
    page = next((path for path in paths if path.is_file()), None)
    if page is None:
        return {}
    words = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) < _COLUMNS - 1 or cells[0] == "word":
            continue
        meaning = _LINK.sub(r"\1", cells[1]).replace("`", "")
        other = cells[2].strip(" |") if len(cells) >= _COLUMNS else ""
        words[cells[0]] = f"{meaning} (RocketMQ: {other})" if other else meaning
    return words


def explain(word: str) -> str | None:
    """Return ``word: what it means``, whatever its case; None if it is not in the glossary."""
    words = glossary()
    for name, meaning in words.items():
        names = {name.lower(), re.sub(r" \(.*\)", "", name).lower()}
        if word.lower() in names:
            return f"{name}: {meaning}"
    return None
