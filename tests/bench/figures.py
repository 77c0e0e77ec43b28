"""Runs `trioha bench` row by row and writes its section of docs/benchmarks-appendix.md.

    python tests/bench/figures.py [--rounds 3] [--seconds 5] [--page docs/benchmarks-appendix.md]

Every row runs `--rounds` times, the rows in turn, so that a slow minute of the machine meets all of
them. The page shows the median and all samples.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.page import marks, replace_section

REPO = Path(__file__).resolve().parents[2]

Read = Callable[[dict[str, Any]], float]


class Row:
    """One `trioha bench` command and the figures that are shown of it."""

    def __init__(self, name: str, command: str, figures: dict[str, Read], aim: str = "") -> None:
        self.name = name
        self.command = command
        self.figures = figures
        self.aim = aim
        self.samples: dict[str, list[float]] = {figure: [] for figure in figures}
        self.failures: list[str] = []

    def run(self, seconds: float) -> None:
        command = self.command.format(seconds=seconds)
        done = subprocess.run(
            [sys.executable, "-m", "trioha", "bench", *command.split(), "-q", "-o", "json"],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            self.failures.append(done.stderr.strip().splitlines()[-1])
            return
        report = json.loads(done.stdout)["report"]
        for figure, read in self.figures.items():
            self.samples[figure].append(read(report))


def per_second(report: dict[str, Any]) -> float:
    return float(report["messages_per_s"])


def looked_at_per_second(report: dict[str, Any]) -> float:
    return float(report["looked_at_per_s"])


def latency(part: str, percentile: str) -> Read:
    return lambda report: float(report[part][percentile])


SEND = {
    "messages/s": per_second,
    "p50 ms": latency("send_latency", "p50_ms"),
    "p99 ms": latency("send_latency", "p99_ms"),
}
ROWS = [
    Row("send, 1 sender", "produce --concurrency 1 --seconds {seconds}", SEND),
    Row("send, 64 senders", "produce --concurrency 64 --seconds {seconds}", SEND),
    Row(
        "send, 64 senders, async slave",
        "produce --concurrency 64 --slaves 1 --seconds {seconds}",
        SEND,
        "30,000 messages/s",
    ),
    Row(
        "send, 1 sender, SYNC_MASTER",
        "produce --concurrency 1 --role SYNC_MASTER --slaves 1 --seconds {seconds}",
        SEND,
        "p50 under 0.2 ms",
    ),
    Row(
        "send, 64 senders, SYNC_MASTER",
        "produce --concurrency 64 --role SYNC_MASTER --slaves 1 --seconds {seconds}",
        SEND,
    ),
    Row(
        "send, batches of 32, 8 senders",
        "produce --concurrency 8 --batch 32 --seconds {seconds}",
        {"messages/s": per_second},
    ),
    Row("consume a backlog, raw pulls", "consume --count 300000", {"messages/s": per_second}),
    Row(
        "an SQL92 filter takes 1 %",
        "consume --count 300000 --filter-percent 1",
        {"looked at/s": looked_at_per_second},
    ),
    Row(
        "an SQL92 filter takes 50 %",
        "consume --count 300000 --filter-percent 50",
        {"messages/s": per_second},
    ),
    Row(
        "transactions that commit at once, 64 senders",
        "produce --transactions --concurrency 64 --seconds {seconds}",
        SEND,
    ),
    Row(
        "send, 64 senders, 1,000,000 timer messages pending",
        "produce --timers 1000000 --concurrency 64 --seconds {seconds}",
        SEND,
    ),
    Row(
        "end to end at 1,000/s",
        "e2e --rate 1000 --seconds {seconds}",
        {
            "p50 ms": latency("end_to_end_latency", "p50_ms"),
            "p99 ms": latency("end_to_end_latency", "p99_ms"),
        },
    ),
    Row(
        "HA catch-up of 1 GB",
        "ha --mb 1000 --size 1024",
        {"MB/s": lambda report: float(report["mb_per_s"])},
        "500 MB/s",
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--page", type=Path, default=REPO / "docs" / "benchmarks-appendix.md")
    options = parser.parse_args()
    for turn in range(options.rounds):
        for row in ROWS:
            sys.stderr.write(f"round {turn + 1}/{options.rounds}: {row.name}\n")
            row.run(options.seconds)
    page = options.page.read_text() if options.page.exists() else ""
    section = make_section(ROWS, options.rounds)
    options.page.write_text(replace_section(page, section, *marks("bench-figures")))
    return 1 if any(row.failures for row in ROWS) else 0


def make_section(rows: Sequence[Row], rounds: int) -> str:
    """The Markdown between the markers."""
    lines = [
        "## What `trioha bench` measures",
        "",
        f"{date.today().isoformat()}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load average {os.getloadavg()[2]:.1f} over the last quarter of an hour. Load generator, "
        "name server, master and slave share these cores and talk over loopback; bodies of 128 "
        "bytes unless said, asynchronous flush, 8 queues, JSON headers. Each figure is the median "
        f"of {rounds} runs, the rows in turn; all samples stand behind it.",
        "",
        "| row | figure | median | samples | aim |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        for figure, samples in row.samples.items():
            shown = show(statistics.median(samples)) if samples else "failed"
            every = ", ".join(show(sample) for sample in samples)
            lines.append(f"| {row.name} | {figure} | **{shown}** | {every} | {row.aim} |")
        lines += [f"| {row.name} | failed | | {failure} | |" for failure in row.failures]
    lines += ["", "Regenerate with `just bench-figures`."]
    return "\n".join(lines)


def show(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
