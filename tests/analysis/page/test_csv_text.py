"""Tables as CSV: what a spreadsheet reads is what the table holds."""

from __future__ import annotations

import csv
import io

from trioha.analysis.page.csv_text import csv_of
from trioha.analysis.results import Column, Table

COLUMNS = [Column("topic"), Column("first_ms", kind="time"), Column("messages", kind="integer")]


def read(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode())))


def test_quotes_commas_and_lines_come_back() -> None:
    table = Table("t", "T", COLUMNS, [('a,"b"\nc', 1_763_510_400_123, 7), ("", None, None)])
    assert read(csv_of(table)) == [
        ["topic", "first_ms", "messages"],
        ['a,"b"\nc', "2025-11-19 00:00:00.123", "7"],
        ["", "", ""],
    ]


def test_a_text_is_never_a_formula_and_a_number_stays_one() -> None:
    table = Table("t", "T", COLUMNS, [("=HYPERLINK(1)", None, -5)])
    assert read(csv_of(table))[1] == ["'=HYPERLINK(1)", "", "-5"]


def test_rows_may_be_limited() -> None:
    table = Table("t", "T", COLUMNS, [(str(n), None, n) for n in range(5)])
    assert len(read(csv_of(table, 2))) == 3
