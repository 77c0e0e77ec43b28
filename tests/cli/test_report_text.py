"""Reports as a terminal shows them."""

from __future__ import annotations

from trioha.analysis.results import Column, Finding, Report, Table
from trioha.cli.report_text import ROWS_SHOWN, Line, report_lines, table_lines

TABLE = Table(
    "topics",
    "Topics",
    [Column("topic"), Column("messages", kind="integer"), Column("size", "B", "bytes")],
    [("orders", 12, 2048), ("a-topic-with-a-name-that-goes-on-and-on", 1, None)],
)


def plain(lines: list[Line]) -> list[str]:
    return [text for text, _ in lines]


def test_numbers_stand_to_the_right_and_sizes_are_words() -> None:
    assert plain(list(table_lines(TABLE, None))) == [
        "Topics",
        "topic                                    messages   size",
        "orders                                         12  2 KiB",
        "a-topic-with-a-name-that-goes-on-and-on         1      –",  # noqa: RUF001
    ]


def test_a_narrow_terminal_cuts_texts() -> None:
    lines = plain(list(table_lines(TABLE, 30)))
    assert max(map(len, lines)) <= 30
    assert lines[3].startswith("a-topic-with…")


def test_what_does_not_fit_at_all_is_left_out_and_told() -> None:
    lines = plain(list(table_lines(TABLE, 18)))
    assert max(map(len, lines[:-1])) <= 18
    assert lines[-1] == "… 1 more columns in topics.parquet"


def test_long_tables_end_with_how_much_more_there_is() -> None:
    table = Table("t", "T", [Column("n", kind="integer")], [(i,) for i in range(ROWS_SHOWN + 5)])
    assert plain(list(table_lines(table, 80)))[-1] == "… 5 more rows in t.parquet"


def test_findings_come_before_tables_and_empty_tables_not_at_all() -> None:
    report = Report(
        name="r",
        title="R",
        question="?",
        tables=[Table("empty", "Empty", [Column("a")], [])],
        findings=[Finding("error", "It burns.")],
    )
    assert plain(list(report_lines(report, 80))) == ["== R", "!! It burns."]
