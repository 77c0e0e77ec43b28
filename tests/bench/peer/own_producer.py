"""Rows of RocketMQ's own load program, `org.apache.rocketmq.example.benchmark.Producer`.

Each row has a new JVM, as for a user who tries a broker with it. All its settings are the
defaults, but for topic, threads and size. It tells its rate every ten seconds: of the first ten
(*cold*: the JVM compiles), and of the next ten (*warm*).

It is of 4.7.0, on the client that all other rows have: Maven Central has no other one before 5.5.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from typing import Final

import attrs
from bench.peer.load_clients import CLIENT_HEAP
from bench.peer.proc import CpuReading, read_cpu
from bench.peer.results import Measured
from bench.peer.rows import Row
from bench.peer.stage import TOPIC, Stage
from support.peers.java import java_command, java_environment
from support.processes.rig import Process

PROGRAM: Final = "org.apache.rocketmq.example.benchmark.Producer"
REPORT_S: Final = 10.0
REPORTS: Final = 2
SLACK_S: Final = 30.0
_REPORT: Final = re.compile(
    r"Send TPS: (\d+) Max RT: \d+ Average RT: *([\d.]+) Send Failed: (\d+) Response Failed: (\d+)"
)
_numbers = itertools.count(1)


@attrs.frozen
class Report:
    """The figures of ten seconds, as the program prints them."""

    per_s: float
    average_ms: float
    failures: int
    """Failed sends and rejected ones, since it began."""

    @classmethod
    def of(cls, line: str) -> Report | None:
        """Return what a line tells; None for any other line."""
        found = _REPORT.search(line)
        if found is None:
            return None
        per_s, average_ms, failed, rejected = found.groups()
        return cls(float(per_s), float(average_ms), int(failed) + int(rejected))


@attrs.define(eq=False)
class _Run:
    stage: Stage
    process: Process
    reports: list[Report] = attrs.Factory(list)
    readings: list[CpuReading] = attrs.Factory(list)
    times_s: list[float] = attrs.Factory(list)
    changed: threading.Condition = attrs.Factory(threading.Condition)
    ended: bool = False

    def hear(self, line: str) -> None:
        report = Report.of(line)
        if report is not None:
            own = {"client": self.process.pid, "harness": os.getpid()}
            reading = read_cpu({**self.stage.pids(), **own})
            with self.changed:
                self.reports.append(report)
                self.readings.append(reading)
                self.times_s.append(time.monotonic())
                self.changed.notify_all()

    def hear_end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()


def measure_own_producer(stage: Stage, row: Row) -> Measured:
    """Measure one row.

    Errors: AssertionError if the program ends, tells nothing or too late, or if a send fails.
    """
    replicas = stage.replicas
    home = replicas.processes.root / "clients" / f"producer-{next(_numbers)}"
    home.mkdir(parents=True)
    options = {"-n": replicas.namesrv.address, "-t": TOPIC}
    options |= {"-w": str(row.options["threads"]), "-s": str(row.options["bytes"])}
    command = java_command(
        PROGRAM, home, [word for pair in options.items() for word in pair], heap=CLIENT_HEAP
    )
    process = Process(
        home.name, command, home / "producer.log", java_environment(home), home, merge_stderr=True
    )
    run = _Run(stage, process)
    process.on_line, process.on_end = run.hear, run.hear_end
    replicas.processes.add(process).start()
    began_s = time.monotonic()
    try:
        with run.changed:
            run.changed.wait_for(
                lambda: len(run.reports) == REPORTS or run.ended, REPORTS * REPORT_S + SLACK_S
            )
        assert len(run.reports) == REPORTS, f"it told of {len(run.reports)}: {process.tail()}"
    finally:
        process.kill()
    first_s = run.times_s[0] - began_s
    assert first_s < 1.5 * REPORT_S, f"it told nothing of its first seconds for {first_s:.0f} s"
    cold, warm = run.reports
    assert warm.failures == 0, f"{warm.failures} sends failed"
    cpu = run.readings[0].until(run.readings[1])
    count = int(warm.per_s * REPORT_S)
    return Measured(
        figures={
            "cold_per_s": cold.per_s,
            "per_s": warm.per_s,
            "average_ms": warm.average_ms,
            "master_cpu_s_per_million": cpu.by_name["master"] / count * 1e6,
        },
        count=count,
        other_cpu_s=cpu.others,
        elapsed_s=REPORT_S,
    )
