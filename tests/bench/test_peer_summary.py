"""Medians, ratios and verdicts."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from bench.peer.results import Results, load_results, merge_results, save_results
from bench.peer.rows import Goal, Row
from bench.peer.summary import RowSummary, summarize

MakeResults = Callable[..., Results]
MakeRow = Callable[..., Row]


def only(row: Row, results: Results) -> RowSummary:
    (summary,) = summarize([row], results)
    return summary


def test_a_ratio_is_that_of_the_medians(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row()
    rate, delay = only(row, make_results(row, [100, 90, 1000], [200, 210, 20])).metrics
    assert (rate.java, rate.trioha, rate.ratio) == (100, 200, 2.0)
    assert delay.ratio == pytest.approx(0.5)


def test_its_range_is_that_of_the_rounds_pair_by_pair(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row()
    rate, _ = only(row, make_results(row, [100, 100, 200], [150, 300, 100])).metrics
    assert (rate.ratio_low, rate.ratio_high) == (0.5, 3.0)


def test_less_delay_is_an_advantage(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row()
    rate, delay = only(row, make_results(row, [100], [400])).metrics
    assert rate.advantage == delay.advantage == 4.0


def test_a_failed_round_is_left_out_of_the_median_but_counted(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row()
    summary = only(row, make_results(row, [100, None, 300], [200, 200, 200]))
    assert summary.metrics[0].java == 200
    assert (summary.java.rounds, summary.java.measured) == (3, 2)
    assert not summary.failed


def test_a_row_that_always_failed_has_no_figures(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(per_s=Goal(1.2))
    summary = only(row, make_results(row, [100], [None]))
    assert summary.failed
    rate, delay = summary.metrics
    assert (rate.trioha, rate.ratio, rate.advantage, rate.reached) == (None, None, None, False)
    assert delay.reached is None


@pytest.mark.parametrize(("rate", "reached"), [(120, True), (119, False)])
def test_a_goal_of_throughput_is_a_least_ratio(
    make_row: MakeRow, make_results: MakeResults, rate: float, reached: bool
) -> None:
    row = make_row(per_s=Goal(1.2))
    assert only(row, make_results(row, [100], [rate])).metrics[0].reached is reached


@pytest.mark.parametrize(("rate", "reached"), [(125, True), (124, False)])
def test_a_goal_of_delay_is_a_greatest_ratio(
    make_row: MakeRow, make_results: MakeResults, rate: float, reached: bool
) -> None:
    row = make_row(p50_ms=Goal(0.8))
    summary = only(row, make_results(row, [100], [rate]))
    assert summary.metrics[1].reached is reached
    assert bool(summary.short) is not reached


def test_an_absolute_goal_does_not_look_at_java(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    row = make_row(p50_ms=Goal(10, of_ratio=False))
    assert only(row, make_results(row, [100000], [100])).metrics[1].reached
    assert only(row, make_results(row, [10], [99])).metrics[1].reached is False


def test_strangers_disturb_a_round(make_row: MakeRow, make_results: MakeResults) -> None:
    row = make_row()
    results = make_results(row, [100, 100], [100, 100])
    first, *rest = results.samples
    noisy = attrs.evolve(results, samples=[attrs.evolve(first, other_cpu_s=1.0), *rest])
    assert only(row, noisy).java.disturbed == 1
    assert only(row, noisy).trioha.disturbed == 0


def test_rows_without_samples_are_not_reported(
    make_row: MakeRow, make_results: MakeResults
) -> None:
    measured, other = make_row("a"), make_row("b")
    results = make_results(measured, [1], [1])
    assert [summary.row for summary in summarize([measured, other], results)] == [measured]


def test_results_survive_their_file(
    make_row: MakeRow,
    make_results: MakeResults,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    row = make_row()
    results = make_results(row, [100, None], [200, 210])
    path = tmp_path_factory.mktemp("out") / "new" / "results.json"
    save_results(results, path)
    assert load_results(path) == results
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_a_file_of_another_format_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("out") / "results.json"
    path.write_text('{"format": 99}')
    with pytest.raises(ValueError, match="format 99"):
        load_results(path)


def test_merging_replaces_whole_rows(make_row: MakeRow, make_results: MakeResults) -> None:
    first, second = make_row("a"), make_row("b")
    old = Results(
        setup={"measured": "then"},
        samples=[
            *make_results(first, [1, 2], [3, 4]).samples,
            *make_results(second, [5], [6]).samples,
        ],
    )
    new = Results(setup={"measured": "now"}, samples=make_results(first, [7], [8]).samples)
    merged = merge_results([old, new])
    assert merged.setup == {"measured": "now"}
    assert [sample.figures["per_s"] for sample in merged.of_row("a", "java")] == [7]
    assert [sample.figures["per_s"] for sample in merged.of_row("b", "java")] == [5]
