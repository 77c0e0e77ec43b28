"""The section of the page, its markers and its chart."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import attrs
import pytest
from bench.peer.chart import bars_of, make_chart
from bench.peer.report import make_section
from bench.peer.results import Results
from bench.peer.rows import Goal, Row, all_rows, select_rows
from bench.peer.shortfalls import Shortfall, load_shortfalls
from bench.peer.summary import summarize

MakeResults = Callable[..., Results]
MakeRow = Callable[..., Row]


def section_of(row: Row, results: Results) -> str:
    return make_section(results, summarize([row], results), ["chart.svg"])


def table_line(section: str, row: Row) -> str:
    """The row's line below the heading of its group."""
    lines = section[section.index(f"### {row.group}") :].splitlines()
    return next(line for line in lines if line.startswith(f"| `{row.name}`"))


def test_a_line_has_both_medians_the_ratio_and_its_goal(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(per_s=Goal(1.2), p50_ms=Goal(0.8))
    line = table_line(section_of(row, make_results(row, [1000, 1000], [1300, 1100])), row)
    assert "1,000 → 1,200; **1.20** ≥ 1.2 ✓ (1.10 to 1.30)" in line
    assert "**0.84** > 0.8 ✗" in line
    assert "| 2 / 2 | 2,000 / 2,400 | 0 / 0 |" in line


def test_an_absolute_goal_stands_at_the_figure_itself(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(p50_ms=Goal(5, of_ratio=False))
    line = table_line(section_of(row, make_results(row, [1000], [100])), row)
    assert "1.000 → **10.000** > 5 ✗; 10.00" in line


def test_a_side_that_failed_is_shown_as_failed_and_never_as_zero(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(per_s=Goal(1.2))
    section = section_of(row, make_results(row, [1000], [None]))
    assert "Not measured:" in section
    assert f"* `{row.name}`: trioha: the broker fell over\n" in section
    line = table_line(section, row)
    assert "1,000 → -" in line
    assert "1 / 0 of 1, 1 **failed**" in line
    assert "Short of their goals" not in section


def test_a_side_that_never_ran_is_not_measured(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row()
    assert "trioha: not run" in section_of(row, make_results(row, [1000], []))


def test_single_failed_rounds_are_told_below(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row()
    section = section_of(row, make_results(row, [1000, None], [1000, 1000]))
    assert "Not measured:" not in section
    assert section.endswith(f"Failed rounds:\n\n* `{row.name}`: Java: the broker fell over")


def test_missed_goals_come_before_the_tables(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row(per_s=Goal(1.2))
    section = section_of(row, make_results(row, [1000], [1100]))
    assert "0 of 1 goals reached." in section
    missed = f"| `{row.name}` | messages/s ratio 1.10, goal ≥ 1.2 | not looked into yet |"
    assert section.index(missed) < section.index("### sends")


def test_a_missed_goal_stands_beside_what_is_known_about_it(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(per_s=Goal(1.2), p50_ms=Goal(0.8))
    shortfalls = [
        Shortfall(rows="java/*", metrics=("per_s",), text="the client | eats it"),
        Shortfall(rows="*", text="nobody knows"),
    ]
    results = make_results(row, [1000], [1100])
    section = make_section(results, summarize([row], results), [], (), shortfalls)
    assert "ratio 1.10, goal ≥ 1.2 | the client \\| eats it |" in section
    assert "ratio 0.91, goal ≤ 0.8 | nobody knows |" in section


def test_what_is_known_about_a_row_is_not_told_of_a_goal_it_reached(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(per_s=Goal(1.2))
    results = make_results(row, [1000], [1300])
    shortfalls = [Shortfall(rows="*", text="nobody knows")]
    assert "nobody knows" not in make_section(
        results, summarize([row], results), [], (), shortfalls
    )


def test_another_build_has_its_tables_below(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row(per_s=Goal(1.2))
    results = make_results(row, [1000], [1300])
    pure = make_results(row, [1000], [900])
    setup = {"trioha": "commit abc, pure Python", "measured": "later"}
    beside = [(setup, summarize([row], pure))]
    section = make_section(results, summarize([row], results), [], beside)
    below = section[section.index("### Beside it: trioha at commit abc, pure Python") :]
    assert "**0.90** < 1.2 ✗" in below
    assert "1 of 1 goals reached." in section


def test_the_texts_that_are_kept_are_about_rows_and_metrics_there_are() -> None:
    for entry in load_shortfalls():
        rows = select_rows(all_rows(), [entry.rows])
        assert rows, entry.rows
        assert set(entry.metrics) <= {metric.key for row in rows for metric in row.metrics}


def test_errors_are_named_and_added_up(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row()
    results = make_results(row, [1000, 1000], [1000, 1000])
    samples = [
        attrs.evolve(sample, errors={"TIMEOUT": 3}) if sample.side == "java" else sample
        for sample in results.samples
    ]
    line = table_line(section_of(row, attrs.evolve(results, samples=samples)), row)
    assert line.endswith("| 6 TIMEOUT / 0 |")


def test_only_words_of_the_setup_are_told(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row()
    section = section_of(row, make_results(row, [1], [1]))
    assert "* machine: two abaci" in section
    assert "scale" not in section


def chart_of(row: Row, results: Results) -> ElementTree.Element:
    return ElementTree.fromstring(make_chart("title", bars_of(summarize([row], results))))


def shapes(chart: ElementTree.Element, tag: str, kind: str) -> list[ElementTree.Element]:
    found = chart.iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [shape for shape in found if shape.get("class") == kind]


def words(chart: ElementTree.Element) -> list[str | None]:
    return [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]


def test_more_throughput_and_less_delay_both_lie_to_the_right(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(per_s=Goal(2.0))
    chart = chart_of(row, make_results(row, [100], [400]))
    (bar,) = shapes(chart, "rect", "better")
    (circle,) = shapes(chart, "circle", "p50")[1:]
    end = float(bar.get("x", "")) + float(bar.get("width", ""))
    assert end == pytest.approx(float(circle.get("cx", "")), abs=0.2)
    (_, goal) = shapes(chart, "line", "goal")
    assert float(bar.get("x", "")) < float(goal.get("x1", "")) < end
    assert "4.00" in words(chart)


def test_a_loss_lies_to_the_left_and_is_marked(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row()
    chart = chart_of(row, make_results(row, [100], [50]))
    assert shapes(chart, "rect", "better") == []
    assert len(shapes(chart, "rect", "worse")) == 1


def test_a_bar_beyond_the_scale_is_cut_but_its_figure_is_not(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row()
    sixteen, hundred = (
        shapes(chart_of(row, make_results(row, [10], [rate])), "rect", "better")[0].get("width")
        for rate in (160, 1000)
    )
    assert sixteen == hundred
    assert "100.00" in words(chart_of(row, make_results(row, [10], [1000])))


def test_a_row_that_failed_has_words_instead_of_a_bar(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row()
    chart = chart_of(row, make_results(row, [None], [100]))
    assert "not measured" in words(chart)
    assert shapes(chart, "rect", "better") + shapes(chart, "rect", "worse") == []
