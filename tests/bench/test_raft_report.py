"""Report on the samples of `just bench-raft`."""

from __future__ import annotations

import pytest
from bench.bench_raft import merge
from bench.raft.report import (
    REFILL,
    findings,
    judge,
    make_section,
    percentile,
)
from bench.raft.samples import Sample


def rates(side: str, *values: float | None, row: str = "java/64") -> list[Sample]:
    """One round after the other; None failed."""
    return [
        Sample(row=row, side=side, round=number, figures={}, failed="fell over", strangers=0.5)
        if value is None
        else Sample(
            row=row,
            side=side,
            round=number,
            figures={"per_s": value, "p50_ms": 1000 / value},
            strangers=0.5,
        )
        for number, value in enumerate(values, 1)
    ]


def test_a_ratio_is_of_medians_and_its_range_of_rounds() -> None:
    found = findings([*rates("memory", 3000, 9000, 4000), *rates("java", 1000, 2000, 1000)])
    (rate,) = [one for one in found if one.aim.metric == "per_s"]
    assert (rate.value, rate.low, rate.high, rate.count) == (4.0, 3.0, 4.5, 3)
    assert rate.reached
    assert rate.strangers == 0.5


def test_short_ones_come_first_and_say_why_or_that_nobody_looked() -> None:
    samples = [*rates("memory", 2000), *rates("java", 1000), *rates("alone", 2000)]
    found = findings(samples)
    assert [one.reached for one in found] == sorted(one.reached for one in found)
    section = make_section({"machine": "two abaci", "scale": {}}, samples)
    head, _, _ = section.partition("### Aims")
    assert "1 of 3 aims reached" in head
    assert "not looked into yet" in head
    assert "two abaci" in head


def test_what_failed_in_every_round_is_short_and_named() -> None:
    samples = [*rates("memory", None), *rates("java", 1000)]
    assert not any(one.reached for one in findings(samples))
    section = make_section({}, samples)
    assert "not measured" in section
    assert "`java/64` of memory: fell over" in section


def test_what_was_not_run_is_not_judged() -> None:
    assert findings(rates("memory", 2000)) == []
    assert judge(REFILL, []) is None


@pytest.mark.parametrize(
    ("percent", "wanted"), [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0), (0, 1.0)]
)
def test_a_percentile_is_the_nearest_rank(percent: int, wanted: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], percent) == wanted


def test_of_few_values_the_99th_percentile_is_the_largest() -> None:
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


def test_parts_of_several_runs_tell_which_rows_are_of_another_moment() -> None:
    def told(minute: int) -> dict[str, str]:
        return {
            "measured": f"12:0{minute}",
            "commit": f"c{minute}",
            "method": f"{minute} rounds, x",
        }

    early = [*rates("fsync", 1, row="kill"), *rates("memory", 1)]
    setup, samples = merge([(told(1), early), (told(2), rates("memory", 2)), (told(3), [])])
    assert setup == told(3) | {
        "rows kill": "12:01, commit c1, 1 rounds",
        "rows java/64": "12:02, commit c2, 2 rounds",
    }
    assert [(one.row, one.figures["per_s"]) for one in samples] == [("kill", 1), ("java/64", 2)]
