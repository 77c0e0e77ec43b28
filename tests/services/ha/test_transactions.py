"""Open transactions of whole sets on virtual time, through every kind of switch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from support.nodes.switches import Switch, cut_off, killed, planned, restarted
from support.nodes.transactions import QUICK_CHECKS, TransactionLoad, is_finished
from support.nodes.virtual_set import CLIENT, VirtualBroker, VirtualSet, virtual_set, without_waits
from support.suite.sizes import TRANSACTION_RUNS

from trioha.store.inspect import iter_records
from trioha.wire.record import Record

MEMBER_PORT = 10911
Clock = trio.testing.MockClock


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


@asynccontextmanager
async def loaded(set_: VirtualSet, load: TransactionLoad) -> AsyncIterator[None]:
    """Send transactions to every node while the block runs; then let checks finish the rest."""
    over = trio.Event()

    async def send(broker: VirtualBroker) -> None:
        while not over.is_set():
            if broker.is_up:
                await load.transact(broker.ask)
            await trio.sleep(0.1)

    async with trio.open_nursery() as producers:
        for broker in set_.brokers:
            producers.start_soon(load.serve_producer, broker.host, MEMBER_PORT)
        async with trio.open_nursery() as senders:
            for broker in set_.brokers:
                senders.start_soon(send, broker)
            yield
            over.set()
        home_id = await set_.wait_master()
        await set_.wait(lambda: is_finished(set_[home_id].node.core.deliveries.transactions), 120)
        producers.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(TRANSACTION_RUNS))
@pytest.mark.parametrize(
    ("size", "switch"),
    [
        *((2, switch) for switch in (planned, killed, restarted)),
        # A pair that is cut in two has two masters for a while.
        *((3, switch) for switch in (planned, killed, restarted, cut_off)),
    ],
)
async def test_transactions_survive_switches(
    size: int, switch: Switch, seed: int, tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path, size, **QUICK_CHECKS) as set_:
        load = TransactionLoad(set_.clock, partial(set_.network.connect, CLIENT), Random(seed))
        async with loaded(set_, load):
            for _ in range(2):
                await trio.sleep(3)
                (old,) = set_.masters
                await switch(set_, old, (old + 1) % size)
                await set_.wait_master()
                await set_.wait(set_.is_level)
        master = await set_.wait_master()
        await set_.wait(set_.is_level)
        end = set_[master].node.store.max_phy_offset
        log = set_[master].root / "commitlog"
        load.check(one for one in iter_records(log, 0, end) if isinstance(one, Record))
