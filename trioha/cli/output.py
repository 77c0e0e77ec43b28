"""Output of commands: JSON for programs, aligned tables for people, and sizes in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from trioha.shown import own_stream, shown, shown_lines
from trioha.words import age_in_words as age_in_words
from trioha.words import size_in_words as size_in_words

F = TypeVar("F", bound=Callable[..., Any])


def output_option(function: F) -> F:
    """``-o json|table`` for a read command, as the argument `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people or for programs.",
    )(function)


def print_styled(text: str, *, nl: bool = True, **style: Any) -> None:
    """Print `text` in `click.style`'s colours, which stdout itself would escape."""
    click.echo(click.style(shown_lines(text), **style), file=own_stream(sys.stdout), nl=nl)


def print_json(value: object) -> None:
    """One JSON document, indented, keys in the order given."""
    click.echo(json.dumps(value, indent=2, default=str))


def print_json_line(value: object) -> None:
    """One JSON document on one line."""
    click.echo(json.dumps(value, default=str, separators=(",", ":")))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned: numbers to the right, the rest to the left."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [all(_is_number(row[i]) or row[i] is None for row in rows) for i in range(len(head))]
    lines = []
    for line in [list(head), *texts]:
        cells = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def table_of(rows: Sequence[Mapping[str, object]]) -> str:
    """A table of at least one row, each by its columns' heads."""
    return table(list(rows[0]), [list(row.values()) for row in rows])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(str(value))
