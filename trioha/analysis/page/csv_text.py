"""Tables as CSV (RFC 4180), for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from trioha.analysis.page.formats import format_time
from trioha.analysis.results import Column, Table, Value

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(table: Table, rows_max: int | None = None) -> bytes:
    """The names of the columns, then the rows, in UTF-8; no more than `rows_max`.

    Times are UTC, to the millisecond; other numbers are as in JSON, their units in the names. No
    value is an empty cell. A text that a spreadsheet would run as a formula gets an apostrophe
    before it: topics and keys are what any producer wrote.
    """
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([column.name for column in table.columns])
    writer.writerows(_cells(table.columns, row) for row in table.rows[:rows_max])
    return file.getvalue().encode(errors="replace")


def _cells(columns: Iterable[Column], row: Iterable[Value]) -> Iterator[Value]:
    for column, value in zip(columns, row, strict=True):
        if column.kind == "time" and isinstance(value, (int, float)):
            yield format_time(value)
        elif isinstance(value, str) and value.startswith(_FORMULA):
            yield f"'{value}"
        else:
            yield value
