"""`just bench-page`: the first page of the benchmarks, from results that are there.

just bench-page --whole W.json --quiet Q.json --busy B.json --pure P.json --raft R.json
just bench-page --producer --quiet Q.json --busy B.json --pure P.json --pure-busy N.json

W, Q, B and P are `results.json` of `just bench-peer`: of all rows; of the sends to a SYNC_MASTER
and an ASYNC_MASTER in five rounds; of the same with `--neighbours 2`; of the same with
`--trioha DIR`, a checkout that is not compiled. R is of `just bench-raft`. The appendix has all
their rows.

With `--producer` it makes the table of RocketMQ's own load program, and Q, B and P have its rows
(`--rows 'producer/*'`). N has them with `--trioha DIR` and `--neighbours 2`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs
from bench.bench_raft import merge
from bench.page import marks, replace_section
from bench.peer.report import figure_cell, table_line
from bench.peer.results import Results, Sample, load_results
from bench.peer.rows import COLD_PER_S, FIRST_SEND, HA_RATE, P50, PER_S, Goal, Metric, all_rows
from bench.peer.summary import MetricSummary, summarize
from bench.raft import samples as raft_samples
from bench.raft.sides import SIDES
from support.processes.rig import REPO

PAGE = REPO / "docs" / "benchmarks.md"
LEADER_KILLED = Metric("first_ms", "ms", digits=0)

Column = Literal["quiet", "busy", "pure", "pure_busy"]
COLUMNS: Mapping[Column, str] = {
    "quiet": "quiet machine",
    "busy": "beside two processes that spin",
    "pure": "plain Python, quiet",
    "pure_busy": "plain Python, beside two that spin",
}


@attrs.frozen(kw_only=True)
class FirstRow:
    """One of the twelve rows, with what trioha is to reach in each column."""

    title: str
    row: str
    """The row's name in `bench.peer.rows`; of a DLEDGER group, in `bench.raft`."""
    metric: Metric
    goals: Mapping[Column, Goal]
    raft_side: str = ""
    """Our side of a DLEDGER row; "" for a row that is none."""


def first_rows() -> list[FirstRow]:
    """The twelve rows that matter first, with the aims that the project has set itself."""
    sends = [
        FirstRow(
            title=f"{title}, {threads} thread{'s' * (threads > 1)}, messages/s",
            row=f"java/send/{kind}/128/{threads}",
            metric=PER_S,
            goals={column: Goal(limit) for column, limit in limits.items()},
        )
        for title, kind, rows in (
            ("SYNC_MASTER", "sync", _SYNC_AIMS),
            ("ASYNC_MASTER with a slave", "slave", _ASYNC_AIMS),
        )
        for threads, limits in rows.items()
    ]
    return [
        *sends,
        _row("end to end at 100/s, p50 ms", "java/e2e/sync/128/100", P50, Goal(0.5)),
        _row("a consumer drains a backlog, messages/s", "java/drain/alone/128", PER_S, Goal(1.0)),
        _row("an empty slave copies the log, MiB/s", "ha/catch-up", HA_RATE, Goal(2.0)),
        _row("exec to the first accepted send, s", "start/empty", FIRST_SEND, Goal(0.25)),
        FirstRow(
            title="DLEDGER in memory, 64 threads, messages/s",
            row="java/64",
            metric=PER_S,
            goals={"quiet": Goal(3.0)},
            raft_side="memory",
        ),
        FirstRow(
            title="DLEDGER, kill -9 of the leader to the first stored message, p50 ms",
            row="kill",
            metric=LEADER_KILLED,
            goals={"quiet": Goal(300, of_ratio=False)},
            raft_side="fsync",
        ),
    ]


_SYNC_AIMS: Mapping[int, Mapping[Column, float]] = {
    1: {"quiet": 1.2, "busy": 1.0, "pure": 0.9},
    8: {"quiet": 1.4, "busy": 1.2, "pure": 1.0},
    64: {"quiet": 1.6, "busy": 1.3, "pure": 1.0},
}
_PURE_BUSY_AIM = 0.8
_ASYNC_AIMS: Mapping[int, Mapping[Column, float]] = {
    1: {"quiet": 1.4, "busy": 1.2},
    8: {"quiet": 1.6, "busy": 1.2},
    64: {"quiet": 1.6, "busy": 1.2},
}


def producer_rows() -> list[FirstRow]:
    """The rows of RocketMQ's own load program, with the same aims in both their parts."""
    return [
        FirstRow(
            title=f"{threads} thread{'s' * (threads > 1)}, {part}, messages/s",
            row=f"producer/send/sync/128/{threads}",
            metric=metric,
            goals={
                **{column: Goal(limit) for column, limit in limits.items()},
                "pure_busy": Goal(_PURE_BUSY_AIM),
            },
        )
        for part, metric in (("first 10 s", COLD_PER_S), ("next 10 s", PER_S))
        for threads, limits in _SYNC_AIMS.items()
    ]


def _row(title: str, row: str, metric: Metric, goal: Goal) -> FirstRow:
    return FirstRow(title=title, row=row, metric=metric, goals={"quiet": goal})


def as_results(setup: Mapping[str, object], raft: Sequence[raft_samples.Sample]) -> Results:
    """Return samples of groups as those of a comparison, one row for each side of ours.

    A row is named `SIDE:ROW`. Several samples of one round, as of kills, count as rounds.
    """
    found: list[Sample] = []
    for ours in (side for side in SIDES.values() if side.is_group and not side.is_java):
        rounds: Counter[tuple[str, str]] = Counter()
        for sample in raft:
            if sample.side in (ours.name, "java"):
                rounds[sample.row, sample.side] += 1
                found.append(
                    Sample(
                        row=f"{ours.name}:{sample.row}",
                        side="java" if sample.side == "java" else "trioha",
                        round=rounds[sample.row, sample.side],
                        figures=sample.figures,
                        failed=sample.failed,
                    )
                )
    return Results(setup=setup, samples=found)


def find(row: FirstRow, column: Column, results: Results) -> MetricSummary | None:
    """Return what was measured of a row, judged by the goal it has in this column."""
    goal = row.goals.get(column)
    model = next(iter(all_rows()))
    named = attrs.evolve(
        model,
        name=f"{row.raft_side}:{row.row}" if row.raft_side else row.row,
        metrics=(row.metric,),
        goals={} if goal is None else {row.metric.key: goal},
    )
    found = summarize([named], results)
    return found[0].metrics[0] if found else None


def make_section(rows: Sequence[FirstRow], columns: Mapping[Column, Sequence[Results]]) -> str:
    """Return the table of these rows and how it came about.

    The first results of a column that have a row count. Errors: ValueError for a row without a
    measurement where it has an aim.
    """
    lines = [
        table_line(["what", *[COLUMNS[column] for column in columns]]),
        table_line(["---"] * (1 + len(columns))),
    ]
    missed = 0
    used: Counter[tuple[Column, int]] = Counter()
    for row in rows:
        cells = [row.title]
        for column in columns:
            summary = None
            for place, results in enumerate(columns[column]):
                if (summary := find(row, column, results)) is not None:
                    used[column, place] += 1
                    break
            if summary is None and column in row.goals:
                raise ValueError(f"{row.row} was not measured: {COLUMNS[column]}")
            missed += summary is not None and summary.reached is False
            cells.append("" if summary is None else figure_cell(summary))
        lines.append(table_line(cells))
    aims, verb = sum(len(row.goals) for row in rows), "is" if missed == 1 else "are"
    lines += ["", f"{missed} of {aims} aims {verb} missed.", ""]
    lines += [
        f"* {COLUMNS[column]}, rows: {used[column, place]}; {_how(results)}"
        for column in columns
        for place, results in enumerate(columns[column])
        if used[column, place]
    ]
    return "\n".join(lines)


def _how(results: Results) -> str:
    """When, with what and how often it was measured."""
    setup = results.setup
    rounds = setup["method"].partition(",")[0]
    return f"{setup['measured']}, {rounds}, {setup['trioha']}"


def main() -> int:
    made = parser()
    options = made.parse_args()
    quiet = [*map(load_results, options.quiet)]
    if not options.producer:
        if not (options.whole and options.raft):
            made.error("the twelve rows need --whole and --raft")
        setup, raft = merge([raft_samples.load(path) for path in options.raft])
        quiet += [load_results(options.whole), as_results(setup, raft)]
    columns: dict[Column, Sequence[Results]] = {
        "quiet": quiet,
        "busy": [*map(load_results, options.busy)],
        "pure": [*map(load_results, options.pure)],
    }
    if options.producer:
        if options.pure_busy is None:
            made.error("the load program's table needs --pure-busy")
        columns["pure_busy"] = [load_results(options.pure_busy)]
    section = make_section(producer_rows() if options.producer else first_rows(), columns)
    begin, end = marks("bench-page --producer" if options.producer else "bench-page")
    options.docs.write_text(replace_section(options.docs.read_text(), section, begin, end))
    print(options.docs, file=sys.stderr)
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="bench-page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--producer", action="store_true", help="the table of RocketMQ's own load program"
    )
    made.add_argument("--whole", type=Path, metavar="RESULTS", help="of all rows")
    for name, text in (
        ("quiet", "of the sends and others, in more rounds; the first file that has a row counts"),
        ("busy", "of the sends with --neighbours 2"),
        ("pure", "of the sends with a checkout that is not compiled"),
    ):
        made.add_argument(
            f"--{name}", type=Path, nargs="+", required=True, metavar="RESULTS", help=text
        )
    made.add_argument(
        "--pure-busy",
        type=Path,
        metavar="RESULTS",
        help="of the load program with such a checkout and --neighbours 2",
    )
    made.add_argument(
        "--raft",
        type=Path,
        nargs="+",
        metavar="RESULTS",
        help="of bench-raft; rows of a later file replace those of an earlier one",
    )
    made.add_argument("--docs", type=Path, default=PAGE, help="page to write")
    return made


if __name__ == "__main__":
    sys.exit(main())
