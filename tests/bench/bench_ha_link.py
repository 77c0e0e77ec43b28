"""Two processes, one HA link over loopback, real stores: how fast, and how soon acknowledged.

    python tests/bench/bench_ha_link.py [--megabytes 1024] [--puts 10000]

Prints one JSON object: catch-up in MB/s from the first report to the last ack, the time from an
append to the ack of its slave for single puts, and acknowledged puts a second when 64 are appended
at a time. Client connections and dispatching are not part of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import trio

from trioha.config import BrokerConfig
from trioha.journal import NullSink
from trioha.services.ha.client import HaClient
from trioha.services.ha.client_link import SlaveContext
from trioha.services.ha.master import HaMaster, open_replicas
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import open_listener
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire.record import MAGIC, PRELUDE

RECORD = bytes(228)  # a 128-byte body with its record around it
BATCH = 64


def open_store(root: Path) -> FileMessageStore:
    config = StoreConfig.of(BrokerConfig(store_path_root_dir=str(root)))
    return FileMessageStore.open(config, NullSink(), wall_ms=int(time.time() * 1000))


class Acks:
    """The acknowledged offset, which one task can wait for."""

    def __init__(self) -> None:
        self.offset = 0
        self.at_s = 0.0
        self._need = 0
        self._reached = trio.Event()

    def __call__(self, offset: int) -> None:
        self.offset, self.at_s = offset, time.perf_counter()
        if offset >= self._need:
            self._reached.set()

    async def wait(self, offset: int) -> None:
        if self.offset < offset:
            self._need, self._reached = offset, trio.Event()
            await self._reached.wait()


async def serve_slave(address: str, root: Path) -> None:
    config = BrokerConfig(ha_reconnect_interval=10)
    context = SlaveContext(
        store=open_store(root),
        config=config,
        events=NullSink(),
        clock=Clock(),
        on_appended=lambda: None,
    )
    await HaClient(context, MasterAddress(address)).run()


async def measure(root: Path, megabytes: int, puts: int) -> dict[str, float]:
    log, config, events, acks = open_store(root / "master"), BrokerConfig(), NullSink(), Acks()
    # A slave looks at the first bytes it is sent: a record has to begin there.
    block = PRELUDE.pack(1 << 20, MAGIC) + bytes(range(248)) + bytes(range(256)) * 4095
    for _ in range(megabytes):
        log.append_log(log.max_phy_offset, block)
    replicas, listener = open_replicas(config, events), open_listener("127.0.0.1", 0)
    command = [sys.executable, __file__, "--slave", listener.address, str(root / "slave")]
    async with trio.open_nursery() as nursery:
        master = HaMaster(
            store=log,
            replicas=replicas,
            config=config,
            events=events,
            clock=Clock(),
            on_report=acks,
        )
        nursery.start_soon(master.serve, listener)
        slave = await trio.lowlevel.open_process(command)
        try:
            await acks.wait(1)
            begin_s, begin = acks.at_s, acks.offset
            await acks.wait(log.max_phy_offset)
            elapsed_s = acks.at_s - begin_s
            result = {"catch_up_mb_s": round((acks.offset - begin) / elapsed_s / 1e6, 1)}
            result |= await _measure_single_puts(log, master, acks, puts)
            result |= await _measure_batches(log, master, acks, puts)
        finally:
            slave.kill()
            with trio.CancelScope(shield=True):
                await slave.wait()
        nursery.cancel_scope.cancel()
    return result


async def _measure_single_puts(
    log: FileMessageStore, master: HaMaster, acks: Acks, puts: int
) -> dict[str, float]:
    times_us = []
    for _ in range(puts):
        begin_s = time.perf_counter()
        log.append_log(log.max_phy_offset, RECORD)
        master.on_log_grown(urgent=True)
        await acks.wait(log.max_phy_offset)
        times_us.append((acks.at_s - begin_s) * 1e6)
    times_us.sort()
    return {
        "put_ack_p50_us": round(times_us[puts // 2], 1),
        "put_ack_p99_us": round(times_us[puts * 99 // 100], 1),
        "put_ack_max_us": round(times_us[-1], 1),
    }


async def _measure_batches(
    log: FileMessageStore, master: HaMaster, acks: Acks, puts: int
) -> dict[str, float]:
    begin_s = time.perf_counter()
    for _ in range(puts // BATCH):
        for _ in range(BATCH):
            log.append_log(log.max_phy_offset, RECORD)
        master.on_log_grown(urgent=True)
        await acks.wait(log.max_phy_offset)
    elapsed_s = time.perf_counter() - begin_s
    return {"batched_puts_per_s": round(puts // BATCH * BATCH / elapsed_s)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--puts", type=int, default=10_000)
    parser.add_argument("--slave", nargs=2, metavar=("ADDRESS", "DIR"))
    options = parser.parse_args()
    if options.slave:
        trio.run(serve_slave, options.slave[0], Path(options.slave[1]))
        return
    with tempfile.TemporaryDirectory(prefix="bench-ha-") as directory:
        result = trio.run(measure, Path(directory), options.megabytes, options.puts)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
