"""The order of things: round by round, block by block, one side after the other.

Within a block the sides take turns, each with brokers started for the purpose, so that no side pays
for the other's idle processes and both are measured in the same minutes. A round holds every row,
so that a run cut short has rounds too few rather than rows without any. Every sample is on disk
before the next one begins, and a run that was cut goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from bench.peer.load_clients import LoadClientEnded
from bench.peer.loads import LOADS, measure_load
from bench.peer.node_rows import measure_nodes, settings_of
from bench.peer.nodes import Runtime
from bench.peer.own_producer import REPORT_S, REPORTS
from bench.peer.results import SIDES, Results, Sample, Side, save_results
from bench.peer.rows import Row, Topology, blocks_of
from bench.peer.scale import Scale
from bench.peer.stage import Stage, client_of, open_stage


@attrs.define(eq=False)
class Runner:
    """One run of the comparison. `samples` may hold what an earlier run has measured."""

    rows: Sequence[Row]
    rounds: int
    scale: Scale
    out: Path
    setup: dict[str, object]
    runtime: Runtime
    samples: list[Sample] = attrs.Factory(list)
    _began_s: float = attrs.Factory(time.monotonic)
    _taken: int = 0
    _left: int = 0

    def run(self) -> Results:
        """Measure all rows. What was measured is kept when this is interrupted."""
        passes = [
            (left, number, side)
            for number in range(1, self.rounds + 1)
            for rows in blocks_of(self.rows).values()
            for side in SIDES
            if (left := self._still_to_do(rows, number, side))
        ]
        self._left = sum(len(left) for left, _, _ in passes)
        for left, number, side in passes:
            while left:
                # Started again for what is left after a failure: it may have taken nodes with it.
                left = self._run_block(left, number, side)
        return self.results

    @property
    def results(self) -> Results:
        return Results(setup=self.setup, samples=self.samples)

    def _still_to_do(self, rows: Sequence[Row], number: int, side: Side) -> Sequence[Row]:
        done = {(sample.row, sample.round, sample.side) for sample in self.samples}
        return [row for row in rows if (row.name, number, side) not in done]

    def _run_block(self, rows: Sequence[Row], number: int, side: Side) -> Sequence[Row]:
        """The rows that are left to do, when nodes have to be started anew for them."""
        first = rows[0]
        with (
            self._work_directory() as root,
            open_stage(
                side,
                first.topology,
                root,
                self.runtime,
                self.scale,
                settings_of(first),
                first.protection,
                first.java_release,
            ) as stage,
        ):
            for index, row in enumerate(rows):
                if not self._take(row, number, side, stage):
                    return rows[index + 1 :]
        return ()

    def _take(self, row: Row, number: int, side: Side, stage: Stage) -> bool:
        """Measure, keep the sample, say so. Whether the nodes are good for another row."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        usable = True
        try:
            measure = measure_load if row.scenario in LOADS else measure_nodes
            measured = measure(stage, row)
        except Exception as error:
            # Whatever it was, the other rows of a long run are still worth having.
            text = f"{type(error).__name__}: {error}"
            sample = Sample(row=row.name, side=side, round=number, failed=text, at=at)
            usable = isinstance(error, LoadClientEnded)
        else:
            sample = Sample(
                row=row.name,
                side=side,
                round=number,
                figures=measured.figures,
                count=measured.count,
                errors=measured.errors,
                other_cpu_s=measured.other_cpu_s,
                elapsed_s=measured.elapsed_s,
                at=at,
                extra=measured.extra,
            )
        self.samples.append(sample)
        save_results(self.results, self.out / "results.json")
        self._tell(row, sample)
        return usable

    def _tell(self, row: Row, sample: Sample) -> None:
        self._taken += 1
        elapsed_s = time.monotonic() - self._began_s
        left_min = elapsed_s / self._taken * (self._left - self._taken) / 60
        print(
            f"[{self._taken:4}/{self._left}] {sample.row:<28} round {sample.round} "
            f"{sample.side:<6} {describe(row, sample)}  ({left_min:.0f} min left)",
            file=sys.stderr,
            flush=True,
        )

    @contextlib.contextmanager
    def _work_directory(self) -> Iterator[Path]:
        self.out.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix="work-", dir=self.out.resolve()))
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)


def describe(row: Row, sample: Sample) -> str:
    """A sample in a line."""
    if sample.failed is not None:
        return f"FAILED {sample.failed.splitlines()[0][:100]}"
    figures = [
        f"{sample.figures[metric.key]:,.{metric.digits}f} {metric.label}"
        for metric in row.metrics
        if metric.key in sample.figures
    ]
    if sample.errors:
        figures.append(f"{sum(sample.errors.values()):,} errors")
    if sample.disturbed:
        figures.append(f"disturbed: strangers took {sample.other_cpu_s:.1f} CPU s")
    return ", ".join(figures)


def estimate_min(rows: Sequence[Row], rounds: int, scale: Scale) -> float:
    """About how many minutes a run takes: from what the parts took when this was written."""
    total_s = 0.0
    for block in blocks_of(rows).values():
        total_s += sum(_estimate_s(row, scale) for row in block)
        if block[0].scenario in LOADS:
            headers = {client_of(row)[1] for row in block}
            has_slave = block[0].topology is not Topology.ALONE
            total_s += 8 + scale.broker_warm_up_s
            total_s += (len(headers) - 1 + has_slave) * (scale.header_warm_up_s + 1)
    return total_s * rounds * len(SIDES) / 60


def _estimate_s(row: Row, scale: Scale) -> float:
    fill_s = 2 + scale.log_bytes / 100e6
    return {
        "send": 0.3 + scale.warm_up_s + scale.seconds,
        "async": 0.3 + scale.warm_up_s + scale.seconds,
        "e2e": 0.5 + scale.warm_up_s + scale.e2e_seconds,
        "drain": 2 + scale.backlog / 50_000,
        "filtered": 2 + scale.filter_backlog / 100_000,
        "pending": scale.waiting_timers / 20_000 + scale.warm_up_s + scale.seconds,
        "due": 25 + scale.due_timers / 20_000,
        "producer": 1.5 + REPORTS * REPORT_S,
        "frames": 0.5 + scale.frames / 2500,
        "catch_up": 12 + fill_s,
        "slave_loss": 18 + scale.broker_warm_up_s + scale.header_warm_up_s + 3 * scale.calm_s,
        "start_empty": 4,
        "start_again": 5 + fill_s / 2,
        "memory": 3,
    }[row.scenario]
