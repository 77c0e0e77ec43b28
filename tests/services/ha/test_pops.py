"""Popped messages of whole sets on virtual time, through every kind of switch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from support.nodes.pops import Ask, PopLoad
from support.nodes.switches import Switch, cut_off, killed, planned, restarted
from support.nodes.virtual_set import VirtualBroker, VirtualSet, virtual_set, without_waits
from support.suite.sizes import TRANSACTION_RUNS


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


@asynccontextmanager
async def loaded(set_: VirtualSet, load: PopLoad) -> AsyncIterator[None]:
    """Send to every node, and pop from each, while the block runs; then pop the rest."""
    over = trio.Event()

    async def use(broker: VirtualBroker) -> None:
        while not over.is_set():
            if broker.is_up:
                await load.send(broker.ask)
                await load.pop(broker.ask, 0.6)
            await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        for broker in set_.brokers:
            nursery.start_soon(use, broker)
        yield
        over.set()

    async def find_master() -> Ask:
        return set_[await set_.wait_master()].ask

    await load.drain(find_master)


@pytest.mark.parametrize("seed", range(TRANSACTION_RUNS))
@pytest.mark.parametrize(
    ("size", "switch"),
    [
        *((2, switch) for switch in (planned, killed, restarted)),
        # A pair that is cut in two has two masters for a while.
        *((3, switch) for switch in (planned, killed, restarted, cut_off)),
    ],
)
async def test_popped_messages_survive_switches(
    size: int, switch: Switch, seed: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_set(tmp_path, size) as set_:
        load = PopLoad(set_.clock, Random(seed))
        async with loaded(set_, load):
            for _ in range(2):
                await trio.sleep(3)
                (old,) = set_.masters
                await switch(set_, old, (old + 1) % size)
                await set_.wait_master()
                await set_.wait(set_.is_level)
