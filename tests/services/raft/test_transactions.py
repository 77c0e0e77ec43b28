"""Open transactions of a whole group on virtual time, through elections, cuts and kills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from support.nodes.transactions import QUICK_CHECKS, TransactionLoad, is_finished
from support.nodes.virtual_group import (
    VirtualGroup,
    VirtualMember,
    virtual_group,
    without_threads,
)
from support.suite.sizes import TRANSACTION_RUNS

from trioha.services.loop.transport import Transport
from trioha.services.raft.member_tasks import hand_over
from trioha.store.inspect import iter_records
from trioha.wire.record import Record

CLIENT = "10.0.9.9"
Hurt = Callable[[VirtualGroup, VirtualMember], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


async def killed(group: VirtualGroup, leader: VirtualMember) -> None:
    await leader.kill()
    await group.leader(*group.besides(leader))
    await leader.start()


async def isolated(group: VirtualGroup, leader: VirtualMember) -> None:
    """Clients reach it all the time; what it appends now is cut off its log later."""
    group.isolate(leader)
    await group.leader(*group.besides(leader))
    await trio.sleep(3)
    group.heal()


async def handed_over(group: VirtualGroup, leader: VirtualMember) -> None:
    await hand_over(leader.replication.member)


@asynccontextmanager
async def loaded(group: VirtualGroup, load: TransactionLoad) -> AsyncIterator[None]:
    """Send transactions to every member while the block runs; then let checks finish the rest."""
    over = trio.Event()

    async def send(member: VirtualMember) -> None:
        while not over.is_set():
            if member.is_up:
                await load.transact(member.ask)
            await trio.sleep(0.25)

    async with trio.open_nursery() as producers:
        for member in group.members:
            producers.start_soon(load.serve_producer, member.host, 0)
        async with trio.open_nursery() as senders:
            for member in group.members:
                senders.start_soon(send, member)
            yield
            over.set()
        leader = await group.leader()
        await group.wait(lambda: is_finished(leader.node.core.deliveries.transactions))
        producers.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(TRANSACTION_RUNS))
@pytest.mark.parametrize("hurt", [killed, isolated, handed_over])
async def test_transactions_survive_elections(
    hurt: Hurt, seed: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path, **QUICK_CHECKS) as group:

        async def connect(host: str, port: int) -> Transport:
            return await group.network.connect(CLIENT, host)

        load = TransactionLoad(group.clock, connect, Random(seed))
        async with loaded(group, load):
            for _ in range(2):
                await trio.sleep(2)
                await hurt(group, await group.leader())
                await group.leader()
        leader = await group.leader()
        node, store = leader.node, leader.node.store
        # The last end of a transaction is appended, and may not be committed yet.
        await group.wait(lambda: node.visibility.limit >= store.max_phy_offset)
        end = node.visibility.limit
        log = Path(store.config.root) / "commitlog"
        load.check(one for one in iter_records(log, 0, end) if isinstance(one, Record))
