"""Rows of a table in the order and choice that was asked for. Values only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

import attrs

from trioha_console.cells import Cell, GridColumn, Row, text_of

_WIDE = 1_000


@attrs.frozen(kw_only=True)
class Shape(Generic[Row]):
    """Columns of a table, and the functions that identify, search and group its rows."""

    name: str
    """Name of the table in docs/glossary.md, which explains its columns."""
    columns: Sequence[GridColumn[Row]]
    identity: Callable[[Row], object]
    """Equal for the same thing in two refreshes: the cursor stays with it."""
    search: Callable[[Row], str]
    """Text of a row that ``/`` searches."""
    group: Callable[[Row], object] | None = None
    """Rows of one group stay together; the first is its head."""
    over: Callable[[Row], tuple[str, Cell] | None] = lambda row: None
    """A cell that a row has in place of all its columns from the one of this title on."""


@attrs.frozen
class SortOrder:
    """Sorted by the column of this title; "" leaves the order as it comes."""

    title: str = ""
    descending: bool = False


def arranged(rows: Sequence[Row], shape: Shape[Row], order: SortOrder, text: str) -> list[Row]:
    """The rows that match `text`, in `order`."""
    matches = matcher(text)
    column = next((one for one in shape.columns if one.title == order.title), None)
    if shape.group is None:
        found = [row for row in rows if matches(shape.search(row))] if text else list(rows)
        if column is not None:
            _sort(found, value_of(column), order.descending)
        return found
    return [
        row
        for group in _groups(rows, shape, value_of(column) if column else None, order.descending)
        for row in _matching(group, shape, matches)
    ]


def value_of(column: GridColumn[Row]) -> Callable[[Row], object]:
    """Return the function that gives the value by which a column is sorted and exported."""
    if column.key is not None:
        return column.key
    return lambda row: text_of(column.cell(row, _WIDE))


def _groups(
    rows: Sequence[Row],
    shape: Shape[Row],
    value: Callable[[Row], object] | None,
    descending: bool,
) -> list[list[Row]]:
    assert shape.group is not None
    table: dict[object, list[Row]] = {}
    for row in rows:
        table.setdefault(shape.group(row), []).append(row)
    groups = list(table.values())
    if value is None:
        return groups
    for group in groups:
        members = group[1:]
        _sort(members, value, descending)
        group[1:] = members
    # A group stands where its foremost member would.
    _sort(groups, lambda group: value(group[1] if len(group) > 1 else group[0]), descending)
    return groups


def _matching(group: list[Row], shape: Shape[Row], matches: Callable[[str], bool]) -> list[Row]:
    head = shape.search(group[0])
    members = [row for row in group[1:] if matches(f"{head} {shape.search(row)}")]
    return [group[0], *members] if members or matches(head) else []


def _sort(rows: list[Any], value: Callable[[Any], Any], descending: bool) -> None:
    """Sort in place; rows without a value come last, ascending or descending."""
    known: list[tuple[Any, Any]] = []
    unknown: list[Any] = []
    for row in rows:
        if (found := value(row)) is None:
            unknown.append(row)
        else:
            known.append((found, row))
    try:
        known.sort(key=_first, reverse=descending)
    except TypeError:
        # Numbers among words: one order for all.
        known.sort(key=lambda pair: str(pair[0]), reverse=descending)
    rows[:] = [row for _, row in known] + unknown


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def matcher(text: str) -> Callable[[str], bool]:
    """Return the test: a text has every word of the filter and no ``!word``, in any case."""
    wanted, unwanted = [], []
    for word in text.casefold().split():
        if word.startswith("!"):
            if word[1:]:
                unwanted.append(word[1:])
        else:
            wanted.append(word)

    def matches(row: str) -> bool:
        folded = row.casefold()
        return all(one in folded for one in wanted) and not any(one in folded for one in unwanted)

    return matches
