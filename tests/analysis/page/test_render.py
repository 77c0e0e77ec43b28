"""The page: whole, harmless, readable without colours, the same for the same input."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import attrs
import pytest
from support.fakes.sample_reports import BEGIN_MS, HOSTILE, all_kinds, meta

from trioha.analysis.page import render_page
from trioha.analysis.page.charts import render_chart
from trioha.analysis.page.tables import ROWS_MAX, render_table
from trioha.analysis.results import Chart, ChartKind, Column, Finding, Report, Series, Table

VOID = {"meta", "link", "input", "br"}


class Outline(HTMLParser):
    """Elements, ids, references and text of a page; complains of what does not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.urls: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attributes:
            assert not name.startswith("on"), f"{tag} has {name}"
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "xlink:href"):
                self.urls.append(value or "")
            elif name in ("aria-labelledby", "for"):
                self.references += (value or "").split()
            elif name == "style":
                self.references += re.findall(r"url\(#([^)]+)\)", value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(all_kinds(), meta(partial="Interrupted after 3 of 8 reports."))


def test_it_is_one_file_that_loads_nothing_and_runs_nothing(page: str) -> None:
    outline = Outline(page)
    assert "script" not in outline.tags
    assert all(url.startswith(("#", "data:,", "data:text/csv;")) for url in outline.urls)
    assert not re.search(r"url\((?!#)|@import|https?://", page)


def test_ids_are_unique_and_every_reference_leads_to_one(page: str) -> None:
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    links = [url[1:] for url in outline.urls if url.startswith("#")]
    assert set(outline.references) | set(links) <= set(outline.ids)


def test_hostile_names_are_spelled_out(page: str) -> None:
    assert "<script" not in page
    assert "\u202e" not in page
    assert "\x00" not in page
    page.encode()
    assert '<script>alert("x")</script>&\\u202egnp.exe\\u0000\\ud800' in Outline(page).text


def test_every_picture_has_a_name_and_a_description(page: str) -> None:
    charts = re.findall(r'<svg[^>]*role="img"[^>]*>(.*?)</svg>', page, re.DOTALL)
    assert len(charts) == sum(len(report.charts) for report in all_kinds())
    for chart in charts:
        assert re.match(r"<title id=[^>]+>[^<]+</title><desc id=[^>]+>[^<]+</desc>", chart)


def test_the_summary_counts_findings_and_says_the_exit_status(page: str) -> None:
    text = Outline(page).text
    assert "1 error, 2 warnings, 1 note in 3 reports; exit status 1, because of: Failovers" in text
    assert "Partial results." in text
    assert "Interrupted after 3 of 8 reports." in text
    assert "1\u202f234\u202f567 records, 3 GiB" in text


def test_nothing_found_is_said_too() -> None:
    quiet = Report(name="integrity", title="Integrity", question="Is all there?")
    text = Outline(render_page([quiet], meta())).text
    assert "Nothing to worry about" in text
    assert "no findings in 1 report; exit status 0" in text


def test_equal_input_gives_equal_bytes(page: str) -> None:
    assert page == render_page(all_kinds(), meta(partial="Interrupted after 3 of 8 reports."))


def test_skipped_reports_and_why_are_listed() -> None:
    page = render_page([], meta(skipped={"failovers": "it needs a journal"}))
    assert "Without failovers" in page
    assert "it needs a journal" in page


def test_series_differ_in_form_and_not_in_colour_alone() -> None:
    lines, _, bars, *_ = all_kinds()[0].charts
    drawn = render_chart(lines, "a")
    dashes = re.findall(r'class="line-\d"(?: stroke-dasharray="([^"]*)")?', drawn)
    assert len(set(dashes)) == 4
    assert "fill:url(#b-hatch-1)" in render_chart(bars, "b")


@pytest.mark.parametrize("kind", ["line", "bar", "histogram", "timeline", "heat"])
def test_a_chart_of_nothing_says_so(kind: ChartKind) -> None:
    chart = Chart(
        title="T",
        kind=kind,
        x_label="x",
        y_label="y",
        series=[Series("a", [])],
    )
    assert "Nothing to show" in render_chart(chart, "p")


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("line", [(BEGIN_MS, 5)]),
        ("line", [(BEGIN_MS, None)]),
        ("line", [(0, -5), (0, -5)]),
        ("bar", [(BEGIN_MS, 0)]),
        ("histogram", [(-4, -2, 0), (-2, 0, 7)]),
        ("timeline", [(BEGIN_MS, None, "still")]),
        ("timeline", [(BEGIN_MS, BEGIN_MS, "a moment")]),
        ("heat", [(1, 1, 0)]),
        ("heat", [(1, 1, None), (2, 1, 0.5)]),
    ],
)
def test_charts_of_a_single_odd_value_are_drawn(
    kind: ChartKind, points: list[tuple[object]]
) -> None:
    chart = Chart(
        title="T",
        kind=kind,
        x_label="x",
        y_label="y",
        x_kind="time",
        series=[Series("a", points)],
    )
    drawn = render_chart(chart, "p")
    assert "nan" not in drawn
    assert "inf" not in drawn.replace("info", "")


def test_a_long_line_keeps_its_spikes_and_its_breaks() -> None:
    points: list[tuple[int, int | None]] = [(at, 1) for at in range(100_000)]
    points[54_321] = (54_321, 1_000)
    points[70_000] = (70_000, None)
    chart = Chart(title="T", kind="line", x_label="x", y_label="y", series=[Series("", points)])
    drawn = render_chart(chart, "p")
    assert len(drawn) < 60_000
    path = re.search(r'<path d="([^"]+)" class="line-0"', drawn)
    assert path is not None
    ys = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path[1])]
    assert min(ys) == 34, "the spike reaches the top"
    assert path[1].count("M") == 2


def test_of_many_series_the_highest_are_shown_and_the_rest_is_told() -> None:
    series = [Series(f"s{n}", [(0, n), (1, n)]) for n in range(20)]
    chart = Chart(title="T", kind="line", x_label="x", y_label="y", series=series)
    drawn = render_chart(chart, "p")
    assert "The 8 highest of 20" in drawn
    assert ">s19<" in drawn
    assert ">s3<" not in drawn


def test_long_tables_show_ten_rows_until_asked() -> None:
    table = Table("t", "T", [Column("n", "", "integer")], [(n,) for n in range(ROWS_MAX + 5)])
    drawn = render_table(table, "p")
    assert drawn.count("<tr>") == 11
    assert drawn.count('<tr class="more">') == ROWS_MAX - 10
    assert "The first 1\u202f000 of 1\u202f005 rows" in drawn
    short = render_table(attrs.evolve(table, rows=[(1,)]), "p")
    assert "checkbox" not in short


def test_the_worst_findings_come_first() -> None:
    findings = [Finding("info", "third"), Finding("error", "first"), Finding("warning", "second")]
    report = Report(name="queues", title="Q", question="?", findings=findings)
    section = render_page([report], meta()).partition("<main>")[2]
    assert section.index("first") < section.index("second") < section.index("third")


def test_the_sample_has_a_hostile_name() -> None:
    assert "<script>" in HOSTILE


def test_a_report_has_five_findings_in_the_head_and_says_how_many_more() -> None:
    findings = [Finding.warning(f"Slow {n}.") for n in range(4)]
    findings += [Finding.error(f"Broken {n}.") for n in range(4)]
    report = Report(name="r", title="R", question="?", findings=findings)
    head, _, rest = render_page([report], meta()).partition("</header>")
    assert all(f"Broken {n}." in head for n in range(4))
    assert "Slow 0." in head
    assert "Slow 1." not in head
    assert "3 findings more" in head
    assert all(finding.text in rest for finding in findings)


def test_the_bounds_of_a_table_stand_below_it_on_the_page_and_in_the_text() -> None:
    from trioha.cli.report_text import table_lines

    bounds = "At most 1/64 <too> low."
    of = Table("t", "Times", [Column("a")], [("x",)], bounds)
    page = render_page([Report(name="r", title="R", question="?", tables=[of])], meta())
    assert page.index("</table>") < page.index("At most 1/64 &lt;too&gt; low.")
    assert (bounds, {"dim": True}) in list(table_lines(of, 80))
