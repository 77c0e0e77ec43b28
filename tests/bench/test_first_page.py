"""The first page of the benchmarks, from made-up results."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from bench.first_page import (
    COLUMNS,
    LEADER_KILLED,
    Column,
    FirstRow,
    as_results,
    find,
    first_rows,
    make_section,
    producer_rows,
)
from bench.peer.results import Results, Sample
from bench.peer.rows import PER_S, Goal, all_rows
from bench.raft import samples as raft_samples
from bench.raft.report import aims

SETUP = {"measured": "on a Sunday", "trioha": "compiled", "method": "three rounds, in turns"}
SENDS = FirstRow(
    title="sends", row="java/send/sync/128/1", metric=PER_S, goals={"quiet": Goal(1.5)}
)


def both(row: str, metric: str, java: float, trioha: float) -> list[Sample]:
    return [
        Sample(row=row, side="java", round=1, figures={metric: java}),
        Sample(row=row, side="trioha", round=1, figures={metric: trioha}),
    ]


def everything(rate: float) -> Results:
    """Return every row of the page, at `rate` where Java has 1,000."""
    samples = []
    for row in first_rows():
        name = f"{row.raft_side}:{row.row}" if row.raft_side else row.row
        samples += both(name, row.metric.key, 1000, rate)
    return Results(setup=SETUP, samples=samples)


def columns(quiet: Results) -> Mapping[Column, list[Results]]:
    return {"quiet": [quiet], "busy": [everything(2000)], "pure": [everything(1000)]}


def line_of(section: str, title: str) -> str:
    return next(line for line in section.splitlines() if line.startswith(f"| {title}"))


def test_there_are_twelve_rows_and_each_is_measured_somewhere() -> None:
    rows = first_rows()
    peer = {row.name: {metric.key for metric in row.metrics} for row in all_rows()}
    raft = {(aim.side, aim.row): {aim.metric} for aim in aims()}
    assert len(rows) == 12
    for row in rows:
        measured = raft[row.raft_side, row.row] if row.raft_side else peer[row.row]
        assert row.metric is LEADER_KILLED or row.metric.key in measured | {"per_s"}
        assert set(row.goals) <= set(COLUMNS)
        assert "quiet" in row.goals


def test_the_rows_of_the_own_producer_have_every_aim_twice() -> None:
    rows = producer_rows()
    peer = {row.name: {metric.key for metric in row.metrics} for row in all_rows()}
    assert [row.metric.key in peer[row.row] for row in rows] == [True] * 6
    assert [set(row.goals) for row in rows] == [set(COLUMNS)] * 6


def test_a_row_has_each_column_beside_the_aim_of_that_column() -> None:
    section = make_section(first_rows(), columns(everything(1300)))
    line = line_of(section, "SYNC_MASTER, 1 thread,")
    quiet, busy, pure = (cell.strip() for cell in line.split("|")[2:5])
    assert quiet == "1,000 → 1,300; **1.30** ≥ 1.2 ✓"
    assert busy == "1,000 → 2,000; **2.00** ≥ 1 ✓"
    assert pure == "1,000 → 1,000; **1.00** ≥ 0.9 ✓"
    assert "✗" in line_of(section, "SYNC_MASTER, 64 threads")
    assert "* quiet machine, rows: 12; on a Sunday, three rounds, compiled" in section.splitlines()


def test_missed_aims_are_counted() -> None:
    lower_is_better = sum(not row.metric.higher_is_better for row in first_rows())
    all_aims = sum(len(row.goals) for row in first_rows())
    section = make_section(first_rows(), columns(everything(1000)))
    missed = [line.count("✗") for line in section.splitlines()]
    assert sum(missed) > lower_is_better
    assert f"{sum(missed)} of {all_aims} aims are missed." in section


def test_the_first_results_that_have_a_row_count() -> None:
    few = Results(setup=SETUP, samples=both("java/send/sync/128/1", "per_s", 1000, 5000))
    section = make_section(
        first_rows(), {**columns(everything(1000)), "quiet": [few, everything(1000)]}
    )
    assert "**5.00**" in line_of(section, "SYNC_MASTER, 1 thread,")
    assert "**1.00**" in line_of(section, "SYNC_MASTER, 8 threads,")


def test_the_rows_of_the_own_producer_have_a_fourth_column() -> None:
    samples = [
        sample for row in producer_rows() for sample in both(row.row, row.metric.key, 1000, 2000)
    ]
    fast = [Results(setup=SETUP, samples=samples)]
    section = make_section(producer_rows(), dict.fromkeys(COLUMNS, fast))
    assert section.splitlines()[0].split(" | ")[-1] == f"{COLUMNS['pure_busy']} |"
    assert "**2.00** ≥ 0.8 ✓" in line_of(section, "1 thread, first 10 s")
    assert "0 of 24 aims are missed." in section


@pytest.mark.parametrize("column", ["quiet", "busy", "pure"])
def test_an_aim_without_a_measurement_is_refused(column: Column) -> None:
    nothing = Results(setup=SETUP, samples=[])
    with pytest.raises(ValueError, match=r"java/send/sync/128/1 was not measured"):
        make_section(first_rows(), {**columns(everything(1000)), column: [nothing]})


def test_kills_of_one_round_all_count_beside_java_s() -> None:
    def kill(side: str, first_ms: float) -> raft_samples.Sample:
        return raft_samples.Sample(row="kill", side=side, round=1, figures={"first_ms": first_ms})

    samples = [kill("java", 7000), kill("fsync", 200), kill("fsync", 280), kill("fsync", 900)]
    row = next(row for row in first_rows() if row.metric is LEADER_KILLED)
    found = find(row, "quiet", as_results(SETUP, samples))
    assert found is not None
    assert (found.java, found.trioha, found.reached) == (7000, 280, True)


def test_a_row_without_samples_is_not_found() -> None:
    assert find(SENDS, "quiet", Results(setup=SETUP, samples=[])) is None
    other = attrs.evolve(SENDS, row="java/send/sync/128/8")
    assert (
        find(other, "quiet", Results(setup=SETUP, samples=both(SENDS.row, "per_s", 1, 2))) is None
    )
