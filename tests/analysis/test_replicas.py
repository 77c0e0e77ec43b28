"""Reports on several stores of one broker, as they are shown to people."""

from __future__ import annotations

from trioha.analysis.replicas import folded
from trioha.analysis.results import Chart, Column, Finding, Report, Series, Table, Value

STORES = ["/a/store", "/b/store", "/b/store2"]


def report(findings: list[Finding], **parts: object) -> Report:
    return Report(name="r", title="R", question="?", findings=findings, **parts)  # type: ignore[arg-type]


def texts(*findings: Finding) -> list[str]:
    return [finding.text for finding in folded(report(list(findings)), STORES).findings]


def test_equal_findings_of_several_stores_are_one() -> None:
    assert texts(
        Finding.info("/a/store: 5 messages."),
        Finding.warning("/a/store holds no record."),
        Finding.info("/b/store: 5 messages."),
        Finding.warning("/b/store holds no record."),
        Finding.info("/b/store2: 6 messages."),
    ) == [
        "/a/store and /b/store: 5 messages.",
        "Each of /a/store and /b/store holds no record.",
        "/b/store2: 6 messages.",
    ]


def test_what_names_two_stores_or_none_stays() -> None:
    said = ["/a/store and /b/store agree.", "Nothing is known.", "/a/store is behind /b/store."]
    assert texts(*map(Finding.info, said)) == said
    assert texts(Finding.info("/b/store2 is large.")) == ["/b/store2 is large."]


def test_a_warning_and_a_note_of_the_same_words_stay_two() -> None:
    told = texts(Finding.info("/a/store: x."), Finding.warning("/b/store: x."))
    assert told == ["/a/store: x.", "/b/store: x."]


def test_rows_and_lines_that_say_the_same_are_one() -> None:
    rows: list[tuple[Value, ...]] = [
        ("T", "/a/store", 5),
        ("U", "/a/store", 5),
        ("T", "/b/store", 5),
        ("T", "/b/store2", 6),
        *[("everywhere", store, 7) for store in STORES],
    ]
    columns = [Column("topic"), Column("store"), Column("messages", kind="integer")]
    lines = [
        Series("/a/store", [(1, 2)]),
        Series("/b/store", [(1, 2)]),
        Series("T @ /a/store", [(1, 2)]),
        Series("T @ /b/store", [(1, 3)]),
    ]
    chart = Chart(title="c", kind="line", x_label="", y_label="", series=lines)
    shown = folded(report([], tables=[Table("t", "T", columns, rows)], charts=[chart]), STORES)
    assert shown.tables[0].rows == [
        ("T", "/a/store and /b/store", 5),
        ("U", "/a/store", 5),
        ("T", "/b/store2", 6),
        ("everywhere", "all 3 stores", 7),
    ]
    assert [series.label for series in shown.charts[0].series] == [
        "/a/store and /b/store",
        "T @ /a/store",
        "T @ /b/store",
    ]


def test_one_store_is_shown_as_it_is() -> None:
    one = report([Finding.info("/a/store: x."), Finding.info("/a/store: x.")])
    assert folded(one, STORES[:1]) is one
