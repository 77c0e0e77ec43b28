"""Plain connections against TLS, in turns: 64 senders, and the drain of a backlog.

    PYTHONPATH=tests python tests/bench/bench_tls.py --pairs 9

Two clusters stand side by side, one enforces mutual TLS, and each run of `trioha bench` goes to one
of them, in turns. A row has the medians of both, and the median of the pairs' ratios. Beside the
rate it has the broker's CPU time for a message, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import attrs
from support.processes.faults import processor_s
from support.processes.rig import Processes, running_processes, trioha_broker, trioha_namesrv

from trioha.config.certificate_files import issue_files

LOADS = {
    "64 senders, {size} bytes": ("produce", "--warm-up", "1", "--seconds", "4"),
    "drain, {size} bytes": ("consume",),
}
SIZES = (128, 1024)
BACKLOG = 300_000


@attrs.frozen
class Cost:
    """One run, or a median of several."""

    rate: float
    """Messages a second."""
    broker_us: float
    """CPU time of the broker for a message."""


@attrs.frozen
class Cluster:
    namesrv: str
    broker_pid: int
    environment: Mapping[str, str]

    def run(self, *load: str) -> Cost:
        before_s = processor_s(self.broker_pid)
        command = [sys.executable, "-m", "trioha", "bench", *load, "-n", self.namesrv]
        done = subprocess.run(
            [*command, "-q", "-o", "json"],
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
        )
        report = json.loads(done.stdout)["report"]
        messages = report["messages"] * (1.25 if "--warm-up" in load else 1)
        return Cost(
            report["messages_per_s"], (processor_s(self.broker_pid) - before_s) / messages * 1e6
        )


def start(processes: Processes, name: str, tls: Mapping[str, object]) -> Cluster:
    namesrv = trioha_namesrv(processes, name=f"namesrv-{name}", settings=tls).start()
    broker = trioha_broker(processes, namesrv.address, name=name, settings=tls).start()
    environment = {}
    if tls:
        environment = {
            "TRIOHA_TLS_ENABLE": "true",
            "TRIOHA_TLS_CLIENT_TRUST_CERT_PATH": str(tls["tls.server.trustCertPath"]),
            "TRIOHA_TLS_CLIENT_CERT_PATH": str(tls["tls.server.certPath"]),
            "TRIOHA_TLS_CLIENT_KEY_PATH": str(tls["tls.server.keyPath"]),
        }
    return Cluster(namesrv.address, broker.process.pid, environment)


def mutual_tls(directory: Path) -> dict[str, object]:
    issue_files(directory, ["127.0.0.1"], None, datetime.now(UTC))
    return {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.certPath": directory / "127.0.0.1.pem",
        "tls.server.keyPath": directory / "127.0.0.1.key",
        "tls.server.trustCertPath": directory / "ca.pem",
    }


def row(label: str, plain: list[Cost], secured: list[Cost]) -> str:
    """Ratios of one: what TLS keeps of the rate, and of the messages for a second of CPU."""
    rates = sorted(b.rate / a.rate for a, b in zip(plain, secured, strict=True))
    cpu = sorted(a.broker_us / b.broker_us for a, b in zip(plain, secured, strict=True))
    shown = [label]
    for runs in (plain, secured):
        rate = statistics.median(run.rate for run in runs)
        shown.append(f"{rate:,.0f}/s, {statistics.median(run.broker_us for run in runs):.1f} us")
    for ratios in (rates, cpu):
        shown.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return "| " + " | ".join(shown) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with (
        tempfile.TemporaryDirectory(prefix="trioha-bench-tls-") as name,
        running_processes(Path(name)) as processes,
    ):
        plain = start(processes, "plain", {})
        secured = start(processes, "tls", mutual_tls(Path(name, "certificates")))
        print("| load | plain | TLS | rate kept | kept for a second of the broker's CPU |")
        print("|---|---|---|---|---|")
        for size in SIZES:
            for cluster in (plain, secured):
                fill = ("--topic", f"drain-{size}", "--size", str(size), "--count", str(BACKLOG))
                cluster.run("produce", *fill, "--batch", "32")
            for label, load in LOADS.items():
                topic = f"drain-{size}" if load[0] == "consume" else f"send-{size}"
                runs: tuple[list[Cost], list[Cost]] = ([], [])
                for number in range(pairs):
                    # The order alternates: a neighbour's load hits both alike.
                    turns = [(plain, runs[0]), (secured, runs[1])]
                    for cluster, costs in turns if number % 2 else reversed(turns):
                        cost = cluster.run(*load, "--topic", topic, "--size", str(size))
                        costs.append(cost)
                print(row(label.format(size=size), *runs), flush=True)


if __name__ == "__main__":
    main()
