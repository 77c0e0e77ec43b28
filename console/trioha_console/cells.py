"""Cells of tables: spans of text, each with a role that the theme gives a colour to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs
from rich.cells import cell_len, set_cell_size

from trioha.shown import shown

Row = TypeVar("Row")

Span = tuple[str, str]
"""Text and its role: "", ``dim``, ``strong``, ``accent``, ``good``, ``warn``, ``bad``."""
Cell = tuple[Span, ...]

NOTHING: Cell = (("-", "dim"),)
"""Cell of a value that is not known; never to be taken for a zero."""


def cell(text: object, role: str = "") -> Cell:
    """One span; None is `NOTHING`."""
    return NOTHING if text is None else ((str(text), role),)


def safe_cell(spans: Cell) -> Cell:
    """The spans as they may be drawn: their texts come from peers."""
    return tuple((shown(text), role) for text, role in spans)


def text_of(spans: Cell) -> str:
    return "".join(text for text, _ in spans)


def fitted(spans: Cell, width: int, *, right: bool = False) -> Cell:
    """Cut with an ellipsis or filled with blanks, to `width` cells exactly."""
    size = sum(cell_len(text) for text, _ in spans)
    if size <= width:
        blanks = (" " * (width - size), "")
        return (blanks, *spans) if right else (*spans, blanks)
    kept: list[Span] = []
    room = width - 1
    for text, role in spans:
        length = cell_len(text)
        if length > room:
            kept.append((set_cell_size(text, room) + "…", role))
            break
        kept.append((text, role))
        room -= length
    return tuple(kept)


@attrs.frozen(kw_only=True)
class GridColumn(Generic[Row]):
    """One column of a table of `Row`s."""

    title: str
    cell: Callable[[Row, int], Cell]
    """The cell of a row in so many characters: bars and sparklines use what there is."""
    width: int
    key: Callable[[Row], object] | None = None
    """Value to sort by and to export; without a key, the text of the cell. None sorts last."""
    right: bool = False
    importance: int = 0
    """Rank of the column: with little room, the largest number goes first; 0 stays."""
    width_max: int = 0
    """Width to which the column grows where there is room; 0 for never."""


def fit(
    columns: Sequence[GridColumn[Row]], width: int, gap: int = 2
) -> list[tuple[GridColumn[Row], int]]:
    """The columns that fit, in their order, each with its width."""
    shown = list(columns)

    def needed() -> int:
        return sum(column.width for column in shown) + gap * max(0, len(shown) - 1)

    while needed() > width:
        # Among columns of equal importance the rightmost one goes first.
        index = max(range(len(shown)), key=lambda i: (shown[i].importance, i))
        if shown[index].importance == 0:
            break
        del shown[index]
    widths = {id(column): column.width for column in shown}
    room = width - needed()
    growing = [column for column in shown if column.width_max > column.width]
    while room > 0 and growing:
        for column in list(growing):
            if room == 0:
                break
            widths[id(column)] += 1
            room -= 1
            if widths[id(column)] >= column.width_max:
                growing.remove(column)
    return [(column, widths[id(column)]) for column in shown]
