"""Writers beside a consumer that reads an old log at full speed: what it costs them.

    PYTHONPATH=tests python tests/bench/bench_cold_reads.py --rounds 5

Sends go on at a fixed rate, and `trioha bench consume` reads a topic that nothing has touched since
the broker started; every other second it stands still. So both p99 are of the same minute, and what
else the machine does hits both alike. Before each round the nodes are started again, and the page
cache drops what their stores hold: pages that a process has mapped stay. Each row is one way to run
the broker, the rows in turns. Beside the latencies stand the reads that the thread of the event
loop itself waited for: its major page faults.

In "a slave" the consumer reads the same old messages from the slave of the ASYNC_MASTER (or
SYNC_MASTER) that the writers use, where `slaveReadEnable` sends it. Two rows are controls, whose
consumers read as many bytes a second. "In memory" reads messages that the page cache holds: what it
costs writers is not the disk's price. "Another broker" reads such messages of a broker that the
writers do not use: what it costs them is the price of a consumer and its broker on the same
machine, whatever ours does.

`--row coldDataFlowControlEnable=false` adds the same read on the event loop. It reads gigabytes in
seconds, and some disks are slow for a minute afterwards, for the rows behind it as well.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio
from support.processes.page_cache import drop_page_cache
from support.processes.rig import (
    Node,
    running_processes,
    trioha_broker,
    trioha_namesrv,
)
from support.processes.status import wait_level
from support.suite.ports import free_ports

from trioha.bench.drain import DrainLoad
from trioha.bench.histogram import Histogram
from trioha.bench.produce import ProduceLoad, ProduceOptions
from trioha.bench.target import open_target, run_load
from trioha.config import BrokerConfig
from trioha.wire.remoting_command import Buffer

IN_MEMORY, ANOTHER_BROKER = "in memory", "another broker"
SLAVE_OF: Mapping[str, str] = {"a slave": "ASYNC_MASTER", "a slave, SYNC": "SYNC_MASTER"}
"""Rows whose consumer reads from a slave, and the role of its master."""
ROWS: Mapping[str, Mapping[str, str]] = {
    IN_MEMORY: {},
    ANOTHER_BROKER: {},
    **{label: {} for label in SLAVE_OF},
    "default": {},
}
_CONTROL_BYTES_PER_S = BrokerConfig().cg_cold_read_threshold
_BENCH = (sys.executable, "-m", "trioha", "bench")
_FOLLOW_S = 300.0
_START_S = 3
"""Before the consumer is heard: a client in Python takes a second to start."""


@attrs.frozen
class Round:
    """Sends without and with the consumer, in milliseconds, and what was read meanwhile."""

    alone_p99_ms: float
    beside_p99_ms: float
    beside_max_ms: float
    loop_faults: int
    """Page faults for which the event loop waited for the disk."""
    read_mb: float
    """Read from disk for the broker that the consumer reads from, unless that is another one."""

    @property
    def ratio(self) -> float:
        return self.beside_p99_ms / self.alone_p99_ms


def fill(namesrv: str, size: int, megabytes: int) -> None:
    count = megabytes * 1_000_000 // (size + 200)
    load = ("--batch", "32", "--concurrency", "8", "--count", str(count))
    command = [*_BENCH, "produce", "-n", namesrv, "-t", "cold", "--size", str(size), *load, "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read_into_page_cache(store: Path, size: int) -> None:
    """Read all consume queues of a store, and the first `size` bytes of its log."""
    for path in [*store.glob("consumequeue/*/*/*"), *sorted(store.glob("commitlog/*"))]:
        with path.open("rb", buffering=0) as file:
            while size > 0 and (piece := file.read(1 << 20)):
                size -= len(piece) if path.parent.name == "commitlog" else 0


class _PacedDrain(DrainLoad):
    """Reads so many bytes a second."""

    def received(self, offsets: int, records: Buffer, now_ns: int) -> None:
        super().received(offsets, records, now_ns)
        time.sleep(len(records) / _CONTROL_BYTES_PER_S)


async def consume(namesrv: str, broker: str) -> None:
    """Read at the pace of a control, or from this broker at full speed."""
    async with open_target(namesrv, role="", slaves=0, settings=()) as target:
        targets = await target.prepare_topic("cold", 8)
        if broker:
            load = DrainLoad([(queue, broker) for queue, _ in targets])
        else:
            load = _PacedDrain(targets)
        await run_load(load.run, load.stop)


class _Turns:
    """Lets the consumer run every other second, and keeps the latencies of both kinds apart."""

    def __init__(self, consumer: Sequence[str]) -> None:
        """`consumer` is its command."""
        quiet = subprocess.DEVNULL
        self.consumer = subprocess.Popen(consumer, stdout=quiet, stderr=quiet)
        self.alone, self.beside = Histogram(), Histogram()
        self._second = 0
        self._runs = True

    def next(self, elapsed_s: float, messages: int, second: Histogram, refusals: int) -> None:
        assert not refusals, refusals
        self._second += 1
        if self._second > _START_S:
            (self.beside if self._runs else self.alone).merge(second)
        self._runs = not self._runs if self._second >= _START_S else True
        if self.consumer.poll() is None:
            self.consumer.send_signal(signal.SIGCONT if self._runs else signal.SIGSTOP)

    def end(self) -> None:
        assert self.consumer.poll() is None, "the consumer came to the end of the backlog"
        self.consumer.kill()
        self.consumer.wait()


async def measure(
    namesrv: str, broker: Node, source: Node, rate: float, seconds: float, consumer: Sequence[str]
) -> Round:
    """Measure sends to the broker. `consumer` is the command of what reads `source` meanwhile."""
    options = ProduceOptions(rate=rate, seconds=seconds + _START_S, warm_up_s=0.0)
    async with open_target(namesrv, role="", slaves=0, settings=()) as target:
        targets = await target.prepare_topic("fresh", 8)
        turns = _Turns(consumer)
        faults, read = _loop_faults(broker), _read_bytes(source)
        load = ProduceLoad(targets, options, turns.next)
        try:
            await run_load(load.run, load.stop)
        finally:
            turns.end()
    return Round(
        turns.alone.summary().p99_ms,
        turns.beside.summary().p99_ms,
        turns.beside.summary().max_ms,
        _loop_faults(broker) - faults,
        (_read_bytes(source) - read) / 1e6,
    )


def row(label: str, rounds: list[Round]) -> str:
    ratios = sorted(each.ratio for each in rounds)
    shown = [label]
    for name in ("alone_p99_ms", "beside_p99_ms", "beside_max_ms", "loop_faults", "read_mb"):
        shown.append(f"{statistics.median(getattr(each, name) for each in rounds):.2f}")
    shown.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return "| " + " | ".join(shown) + " |"


def _read_bytes(broker: Node) -> int:
    """Return the bytes that the broker has had read from disk."""
    lines = Path(f"/proc/{broker.process.pid}/io").read_text().splitlines()
    fields = dict(line.split(": ") for line in lines)
    return int(fields["read_bytes"])


def _loop_faults(broker: Node) -> int:
    """Return the major page faults of the broker's first thread, which runs its event loop."""
    pid = broker.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[9])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1000.0, help="sends a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", type=int, default=1024, help="bytes of an old message")
    # Read on the loop, a fast disk gives 450 MB/s.
    parser.add_argument("--megabytes", type=int, default=8000, help="of old log")
    parser.add_argument("--consumer-of", metavar="NAMESRV", help=argparse.SUPPRESS)
    parser.add_argument("--broker", metavar="ADDRESS", default="", help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=ROWS, help="measure this row alone")
    parser.add_argument("--row", action="append", default=[], metavar="KEY=VALUE", help="one more")
    options = parser.parse_args()
    if options.consumer_of:
        trio.run(consume, options.consumer_of, options.broker)
        return
    chosen = {label: ROWS[label] for label in options.only or ROWS}
    rows = {**chosen, **{text: dict([text.split("=", 1)]) for text in options.row}}
    rounds: dict[str, list[Round]] = {label: [] for label in rows}
    with (
        tempfile.TemporaryDirectory(prefix="trioha-bench-cold-") as name,
        running_processes(Path(name)) as processes,
    ):
        namesrv = trioha_namesrv(processes).start()
        store, port = Path(name, "store"), free_ports()

        def start(settings: Mapping[str, object], role: str = "ASYNC_MASTER") -> Node:
            broker = trioha_broker(
                processes, namesrv.address, port=port, role=role, store=store, settings=settings
            )
            return broker.start()

        slave = trioha_broker(processes, namesrv.address, broker_id=1, role="SLAVE")
        assert slave.store is not None
        broker = start({})
        slave.start()
        fill(namesrv.address, options.size, options.megabytes)
        wait_level(broker, slave, _FOLLOW_S)
        slave.stop()
        broker.stop()
        other_namesrv = trioha_namesrv(processes).start()
        trioha_broker(processes, other_namesrv.address, name="other").start()
        paced_bytes = int(_CONTROL_BYTES_PER_S * (options.seconds + _START_S))
        fill(other_namesrv.address, options.size, 2 * paced_bytes // 1_000_000)
        own = (sys.executable, __file__, "--consumer-of")
        consumers: Mapping[str, Sequence[str]] = {
            IN_MEMORY: (*own, namesrv.address),
            ANOTHER_BROKER: (*own, other_namesrv.address),
            **dict.fromkeys(SLAVE_OF, (*own, namesrv.address, "--broker", slave.address)),
        }
        default = (*_BENCH, "consume", "-n", namesrv.address, "-t", "cold", "-q")
        # The first round comes while the machine still writes what was filled: it counts for none.
        for number in range(options.rounds + 1):
            for label, settings in rows.items():
                drop_page_cache(store)
                drop_page_cache(slave.store)
                if label == IN_MEMORY:
                    read_into_page_cache(store, paced_bytes)
                broker = start(settings, SLAVE_OF.get(label, "ASYNC_MASTER"))
                if label in SLAVE_OF:
                    slave.start()
                    wait_level(broker, slave, _FOLLOW_S)
                found = trio.run(
                    measure,
                    namesrv.address,
                    broker,
                    slave if label in SLAVE_OF else broker,
                    options.rate,
                    options.seconds if number else 1.0,
                    consumers.get(label, default),
                )
                if label in SLAVE_OF:
                    slave.stop()
                broker.stop()
                if not number:
                    continue
                rounds[label].append(found)
                print(label, found, file=sys.stderr, flush=True)
    print("| reads | p99 ms alone | beside | max ms | waits of the loop | MB read | p99 ratio |")
    print("|---|---|---|---|---|---|---|")
    for label, measured in rounds.items():
        print(row(label, measured))


if __name__ == "__main__":
    main()
