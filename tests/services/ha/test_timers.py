"""Pending timer messages of whole sets on virtual time, through every kind of switch."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from support.nodes.switches import Switch, cut_off, killed, planned, restarted
from support.nodes.timers import TimerLoad, is_finished
from support.nodes.virtual_set import VirtualBroker, virtual_set, without_waits
from support.suite.sizes import TRANSACTION_RUNS

from trioha.store.inspect import iter_records
from trioha.wire.record import Record


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


@pytest.mark.parametrize("seed", range(TRANSACTION_RUNS))
@pytest.mark.parametrize(
    ("size", "switch"),
    [
        *((2, switch) for switch in (planned, killed, restarted)),
        *((3, switch) for switch in (planned, killed, restarted, cut_off)),
    ],
)
async def test_timers_survive_switches(
    size: int, switch: Switch, seed: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    load = TimerLoad(Random(seed))
    async with virtual_set(tmp_path, size) as set_:
        over = trio.Event()

        async def send(broker: VirtualBroker) -> None:
            while not over.is_set():
                if broker.is_up:
                    await load.send(broker.ask)
                await trio.sleep(0.1)

        async with trio.open_nursery() as senders:
            for broker in set_.brokers:
                senders.start_soon(send, broker)
            for _ in range(2):
                await trio.sleep(3)
                (old,) = set_.masters
                await switch(set_, old, (old + 1) % size)
                await set_.wait_master()
                await set_.wait(set_.is_level)
            over.set()
        master = await set_.wait_master()
        await set_.wait(lambda: is_finished(set_[master].node.core.deliveries.timers), 60)
        await set_.wait(set_.is_level)
        end = set_[master].node.store.max_phy_offset
        log = set_[master].root / "commitlog"
        records = (one for one in iter_records(log, 0, end) if isinstance(one, Record))
        load.check(records, is_exact=switch is planned)
