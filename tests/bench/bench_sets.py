"""One set and two under one cluster name: `just bench-sets`, three minutes.

A set is one process and so one core; `trioha run cluster --sets N` puts each master on a core of
its own. The table tells what a message costs a master with one set and with two, under the same
load. As long as that is the same, N sets on N cores take N times the messages of one, and clients
need cores of their own. On a machine of two cores the load generator shares them, so the rate
itself says little here.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs
from bench.peer.proc import read_cpu
from bench.peer.report import table_line
from support.clusters.run_cluster import run_cluster
from support.processes.admin import create_topic
from support.processes.rig import running_processes

_BROKER = re.compile(
    r"trioha broker (?P<name>\S+) id=0 .* listen=(?P<listen>\S+) .*pid=(?P<pid>\d+)"
)
TOPIC, QUEUES, SENDERS = "sets", 4, 64
SECONDS = 4.0
WARM_UP_S = 1.0


@attrs.frozen
class Run:
    """One load on all masters of a cluster."""

    per_s: float
    """Messages a second, of all masters together."""
    master_us: float
    """Processor time of the masters for a message, in microseconds."""
    busy: float
    """Processors that the masters took together."""


def measure(sets: int) -> Run:
    """Start a cluster, send to all its masters, and stop it."""
    with (
        tempfile.TemporaryDirectory(prefix="trioha-bench-sets-") as name,
        running_processes(Path(name)) as processes,
    ):
        root = Path(name, "sets")
        cluster, namesrv = run_cluster(processes, "2m-noslave", root, "--sets", str(sets))
        found = _BROKER.findall(cluster.log_path.read_text())
        assert len(found) == sets, found
        for _, listen, _ in found:
            create_topic(listen, namesrv, TOPIC, QUEUES)
        pids = {broker: int(pid) for broker, _, pid in found}
        send(namesrv, WARM_UP_S)
        before = read_cpu(pids)
        per_s, count = send(namesrv, SECONDS)
        used = before.until(read_cpu(pids))
        cluster.stop(60.0)
        masters_s = sum(used.by_name.values())
        return Run(per_s, masters_s / count * 1e6, masters_s / SECONDS)


def send(namesrv: str, seconds: float) -> tuple[float, int]:
    """Send from one process as fast as it goes; return messages a second and their count."""
    load = ["produce", "-t", TOPIC, "--concurrency", str(SENDERS)]
    load += ["--seconds", str(seconds), "--warm-up", "0"]
    command = [sys.executable, "-m", "trioha", "bench", *load, "-n", namesrv, "-q", "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True)
    report: Mapping[str, float] = json.loads(done.stdout)["report"]
    return report["messages_per_s"], int(report["messages"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    runs: dict[int, list[Run]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for sets, done in runs.items():
            done.append(measure(sets))
    print(table_line(["sets", "messages/s", "masters' processor time, us", "processors taken"]))
    print(table_line(["---"] * 4))
    for sets, done in runs.items():
        per_s = statistics.median(run.per_s for run in done)
        us = sorted(run.master_us for run in done)
        busy = statistics.median(run.busy for run in done)
        print(
            table_line(
                [
                    str(sets),
                    f"{per_s:,.0f}",
                    f"**{statistics.median(us):.1f}** ({us[0]:.1f} to {us[-1]:.1f})",
                    f"{busy:.2f}",
                ]
            )
        )


if __name__ == "__main__":
    main()
