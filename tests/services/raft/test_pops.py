"""Popped messages of a whole group on virtual time, through elections, cuts and kills."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from services.raft.test_transactions import Hurt, handed_over, isolated, killed
from support.nodes.pops import Ask, PopLoad
from support.nodes.virtual_group import (
    VirtualGroup,
    VirtualMember,
    virtual_group,
    without_threads,
)
from support.suite.sizes import TRANSACTION_RUNS


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


@asynccontextmanager
async def loaded(group: VirtualGroup, load: PopLoad) -> AsyncIterator[None]:
    """Send to every member, and pop from each, while the block runs; then pop the rest."""
    over = trio.Event()

    async def use(member: VirtualMember) -> None:
        while not over.is_set():
            if member.is_up:
                await load.send(member.ask)
                await load.pop(member.ask, 0.6)
            await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        for member in group.members:
            nursery.start_soon(use, member)
        yield
        over.set()

    async def find_master() -> Ask:
        return (await group.leader()).ask

    await load.drain(find_master)


@pytest.mark.parametrize("seed", range(TRANSACTION_RUNS))
@pytest.mark.parametrize("hurt", [killed, isolated, handed_over])
async def test_popped_messages_survive_elections(
    hurt: Hurt, seed: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path) as group:
        load = PopLoad(group.clock, Random(seed))
        async with loaded(group, load):
            for _ in range(2):
                await trio.sleep(2)
                await hurt(group, await group.leader())
                await group.leader()
