"""The order of things: block by block, round by round, one side after the other.

Within a block the sides take turns (A B A B …), each with brokers started for the purpose, so that
no side pays for the other's idle processes and both are measured in the same minutes. Every sample
is on disk before the next one begins.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
from bench.peer.loads import Measured, Scale, measure_load, needs_running_nodes, warm_up
from bench.peer.node_rows import measure_nodes
from bench.peer.nodes import ReplicaSet, open_replica_set
from bench.peer.results import SIDES, Results, Sample, Side, save_results
from bench.peer.rows import Row, blocks_of


@attrs.define(eq=False)
class Runner:
    """One run of the comparison."""

    rows: Sequence[Row]
    rounds: int
    scale: Scale
    out: Path
    setup: dict[str, object]
    samples: list[Sample] = attrs.Factory(list)
    _began_s: float = attrs.Factory(time.monotonic)

    def run(self) -> Results:
        """Measure all rows. What was measured is kept when this is interrupted."""
        for rows in blocks_of(self.rows).values():
            for number in range(1, self.rounds + 1):
                for side in SIDES:
                    self._run_block(rows, number, side)
        return self.results

    @property
    def results(self) -> Results:
        return Results(setup=self.setup, samples=self.samples)

    def _run_block(self, rows: Sequence[Row], number: int, side: Side) -> None:
        if not needs_running_nodes(rows[0]):
            for row in rows:
                with self._work_directory() as root:
                    measure = functools.partial(measure_nodes, side, row, self.scale, root)
                    self._take(row, number, side, measure)
            return
        left = rows
        while left:
            # Started again for what is left after a failure: it may have taken the nodes with it.
            left = self._run_loads(left, number, side)

    def _run_loads(self, rows: Sequence[Row], number: int, side: Side) -> Sequence[Row]:
        """The rows that are left to do."""
        with self._work_directory() as root, contextlib.ExitStack() as stack:
            replicas: ReplicaSet | None = None
            for index, row in enumerate(rows):

                def measure(row: Row = row) -> Measured:
                    nonlocal replicas
                    if replicas is None:
                        replicas = stack.enter_context(open_replica_set(side, row.topology, root))
                        replicas.start()
                        warm_up(replicas, self.scale)
                    replicas.check_running()
                    return measure_load(replicas, row, self.scale)

                if not self._take(row, number, side, measure):
                    return rows[index + 1 :]
        return ()

    def _take(self, row: Row, number: int, side: Side, measure: Callable[[], Measured]) -> bool:
        """Measure, keep the sample, say so. Whether it succeeded."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        try:
            measured = measure()
        except Exception as error:
            # Whatever it was, the other rows of a run of hours are still worth having.
            text = f"{type(error).__name__}: {error}"
            sample = Sample(row=row.name, side=side, round=number, failed=text, at=at)
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
        return sample.failed is None

    def _tell(self, row: Row, sample: Sample) -> None:
        total = len(self.rows) * self.rounds * len(SIDES)
        done = len(self.samples)
        elapsed_s = time.monotonic() - self._began_s
        left_min = elapsed_s / done * (total - done) / 60
        print(
            f"[{done:4}/{total}] {sample.row:<28} round {sample.round} {sample.side:<6} "
            f"{describe(row, sample)}  ({left_min:.0f} min left)",
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
    if sample.other_cpu_s > 1:
        figures.append(f"strangers took {sample.other_cpu_s:.1f} CPU s")
    return ", ".join(figures)


def estimate_min(rows: Sequence[Row], rounds: int, scale: Scale) -> float:
    """About how many minutes a run takes: from what the parts took when this was written."""
    total_s = 0.0
    for block in blocks_of(rows).values():
        if needs_running_nodes(block[0]):
            total_s += 10 + scale.broker_warm_up_s + 8 * block[0].topology.has_slave
        for row in block:
            total_s += {
                "send": 2 + scale.warm_up_s + scale.seconds,
                "async": 2 + scale.warm_up_s + scale.seconds,
                "e2e": 4 + scale.warm_up_s + scale.e2e_seconds,
                "drain": 4 + scale.backlog / 50_000,
                "catch_up": 20 + scale.log_bytes / 40e6,
                "slave_loss": 25 + 3 * scale.calm_s,
                "start": 10 + (row.name != "start/empty") * scale.log_bytes / 40e6,
                "memory": 12 + (row.name == "memory/loaded") * (scale.warm_up_s + scale.seconds),
            }[row.scenario]
    return total_s * rounds * len(SIDES) / 60
