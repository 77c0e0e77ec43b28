"""Tables from rows: columns in one line of text, rows as a query returns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from trioha.analysis.results import Column, ColumnKind, Table

_UNITS = {"bytes": "B"}
_KINDS = get_args(ColumnKind)


def table(
    name: str, title: str, columns: str, rows: Iterable[Mapping[str, Any]], note: str = ""
) -> Table:
    """A table of the named values of each row.

    `columns` is like ``store messages:integer rate:number:msg/s``: name, kind (text), unit.
    """
    found = [_column(word) for word in columns.split()]
    values = [tuple(row[each.name] for each in found) for row in rows]
    return Table(name, title, found, values, note)


def _column(word: str) -> Column:
    name, _, rest = word.partition(":")
    kind, _, unit = (rest or "text").partition(":")
    assert kind in _KINDS, word
    return Column(name, unit or _UNITS.get(kind, ""), cast("ColumnKind", kind))


def ratio(part: float, whole: float | None) -> float | None:
    """A quotient; None when there is nothing to divide by."""
    return part / whole if whole else None
