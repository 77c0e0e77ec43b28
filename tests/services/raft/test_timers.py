"""Pending timer messages of a whole group on virtual time, through elections, cuts and kills."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from services.raft.test_transactions import Hurt, handed_over, isolated, killed
from support.nodes.timers import TimerLoad, is_finished
from support.nodes.virtual_group import VirtualMember, virtual_group, without_threads
from support.suite.sizes import TRANSACTION_RUNS

from trioha.store.inspect import iter_records
from trioha.wire.record import Record


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


@pytest.mark.parametrize("seed", range(TRANSACTION_RUNS))
@pytest.mark.parametrize("hurt", [killed, isolated, handed_over])
async def test_timers_survive_elections(
    hurt: Hurt, seed: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    load = TimerLoad(Random(seed))
    async with virtual_group(tmp_path) as group:
        over = trio.Event()

        async def send(member: VirtualMember) -> None:
            while not over.is_set():
                if member.is_up:
                    await load.send(member.ask)
                await trio.sleep(0.25)

        async with trio.open_nursery() as senders:
            for member in group.members:
                senders.start_soon(send, member)
            for _ in range(2):
                await trio.sleep(2)
                await hurt(group, await group.leader())
                await group.leader()
            over.set()
        leader = await group.leader()
        node = leader.node
        await group.wait(lambda: is_finished(node.core.deliveries.timers))
        # The last deliveries count once a majority holds them.
        await group.wait(lambda: node.visibility.limit >= node.store.max_phy_offset)
        end = leader.node.visibility.limit
        log = Path(leader.node.store.config.root) / "commitlog"
        records = (one for one in iter_records(log, 0, end) if isinstance(one, Record))
        load.check(records, is_exact=hurt is handed_over)
