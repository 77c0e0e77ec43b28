"""Writers beside a consumer that reads an old log at full speed: what it costs them.

    PYTHONPATH=tests python tests/bench/bench_cold_reads.py --pairs 5

Each round measures sends at a fixed rate twice: alone, and beside `trioha bench consume` on a topic
that nothing has touched since the broker started. Before each round the broker is started again,
and the page cache drops what the store holds: pages that a process has mapped stay. Each row is
one way to run the broker, the rows in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import attrs
from support.processes.rig import (
    Node,
    free_ports,
    running_processes,
    trioha_broker,
    trioha_namesrv,
)

ROWS: Mapping[str, Mapping[str, str]] = {
    "on the loop": {"coldDataFlowControlEnable": "false"},
    "default": {},
}
_BENCH = (sys.executable, "-m", "trioha", "bench")
_WARM_UP_S = 5.0


@attrs.frozen
class Round:
    """Sends alone and beside the consumer, in milliseconds, and what that one read meanwhile."""

    alone_p99_ms: float
    beside_p99_ms: float
    beside_max_ms: float
    read_mb_per_s: float

    @property
    def ratio(self) -> float:
        return self.beside_p99_ms / self.alone_p99_ms


def fill(namesrv: str, size: int, megabytes: int) -> None:
    count = megabytes * 1_000_000 // (size + 200)
    load = ("--batch", "32", "--concurrency", "8", "--count", str(count))
    command = [*_BENCH, "produce", "-n", namesrv, "-t", "cold", "--size", str(size), *load, "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def drop_page_cache(store: Path) -> None:
    """Bring the files of a store to disk and out of memory. No process may have them mapped."""
    for path in store.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def measure(namesrv: str, broker: Node, rate: float, seconds: float) -> Round:
    with _sending(namesrv, rate, seconds) as sends:
        alone = _latency(sends)
    with _sending(namesrv, rate, seconds) as sends:
        # The consumer starts while messages arrive: before that, nothing limits it.
        time.sleep(_WARM_UP_S / 2)
        with subprocess.Popen(
            [*_BENCH, "consume", "-n", namesrv, "-t", "cold", "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as consumer:
            time.sleep(_WARM_UP_S / 2)
            before, begin_s = _read_bytes(broker), time.monotonic()
            beside = _latency(sends)
            read = (_read_bytes(broker) - before) / (time.monotonic() - begin_s)
            consumer.kill()
    return Round(alone["p99_ms"], beside["p99_ms"], beside["max_ms"], read / 1e6)


def row(label: str, rounds: list[Round]) -> str:
    ratios = sorted(each.ratio for each in rounds)
    shown = [label]
    for name in ("alone_p99_ms", "beside_p99_ms", "beside_max_ms", "read_mb_per_s"):
        shown.append(f"{statistics.median(getattr(each, name) for each in rounds):.2f}")
    shown.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return "| " + " | ".join(shown) + " |"


def _sending(namesrv: str, rate: float, seconds: float) -> subprocess.Popen[bytes]:
    load = ("--rate", str(rate), "--warm-up", str(_WARM_UP_S), "--seconds", str(seconds))
    command = [*_BENCH, "produce", "-n", namesrv, "-t", "fresh", *load, "-q", "-o", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _latency(sends: subprocess.Popen[bytes]) -> dict[str, float]:
    said, _ = sends.communicate()
    latency: dict[str, float] = json.loads(said)["report"]["send_latency"]
    return latency


def _read_bytes(broker: Node) -> int:
    """Return the bytes that the broker has had read from disk."""
    lines = Path(f"/proc/{broker.process.pid}/io").read_text().splitlines()
    fields = dict(line.split(": ") for line in lines)
    return int(fields["read_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1000.0, help="sends a second")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--size", type=int, default=1024, help="bytes of an old message")
    parser.add_argument("--megabytes", type=int, default=1500, help="of old log")
    parser.add_argument("--row", action="append", default=[], metavar="KEY=VALUE", help="one more")
    options = parser.parse_args()
    rows = {**ROWS, **{text: dict([text.split("=", 1)]) for text in options.row}}
    rounds: dict[str, list[Round]] = {label: [] for label in rows}
    with (
        tempfile.TemporaryDirectory(prefix="trioha-bench-cold-") as name,
        running_processes(Path(name)) as processes,
    ):
        namesrv = trioha_namesrv(processes).start()
        store, port = Path(name, "store"), free_ports()

        def start(settings: Mapping[str, object]) -> Node:
            broker = trioha_broker(
                processes, namesrv.address, port=port, store=store, settings=settings
            )
            return broker.start()

        broker = start({})
        fill(namesrv.address, options.size, options.megabytes)
        broker.stop()
        for _ in range(options.pairs):
            for label, settings in rows.items():
                drop_page_cache(store)
                broker = start(settings)
                found = measure(namesrv.address, broker, options.rate, options.seconds)
                broker.stop()
                rounds[label].append(found)
                print(label, found, file=sys.stderr, flush=True)
    print("| reads | p99 ms alone | beside | max ms | MB/s from disk | p99 ratio |")
    print("|---|---|---|---|---|---|")
    for label, measured in rounds.items():
        print(row(label, measured))


if __name__ == "__main__":
    main()
