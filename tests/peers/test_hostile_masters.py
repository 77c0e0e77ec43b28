"""A master and a name server that turn hostile, before a slave of ours: it goes on, and remembers.

What they say is changed on its way, behind a valid greeting too. Rounds again:
``HOSTILE_ROUND=N:M pytest tests/peers/test_hostile_masters.py``. A hostile leader of a DLEDGER
group is among the peers of `test_hostile_frames.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from support.hostile.masters import Changes, HostileWay
from support.nodes.virtual_set import NAMESRV, VirtualSet, virtual_set, without_waits
from support.suite.processes import own_bytes
from support.suite.sizes import HOSTILE_MASTERS, hostile_rounds
from trio.testing import MockClock

from trioha.services.loop.host import simulate_host
from trioha.services.loop.transport import Transport
from trioha.testing.memory_node import HA_PORT
from trioha.testing.virtual_time import seeded_scheduler

CHANGES = 120
"""Changed frames of one round."""
LIFE_S = 900
"""On virtual time: until then the slave is expected to have heard so many."""
GROWTH_BYTES_MAX = 64 << 20
FAULTS = {"handler_failed", "task_failed", "flush_failed"}
SECRET = "a secret of tests"


def stand_between(set_: VirtualSet, changes: Changes) -> None:
    """Change what the slave, broker 1, is told by its master and its name server."""
    connect = set_.network.connect
    slave, believed = set_[1].host, (set_[0].host, NAMESRV)

    async def by_a_hostile_way(source: str, target: str, port: int | None = None) -> Transport:
        transport = await connect(source, target, port)
        if source != slave or target not in believed:
            return transport
        return HostileWay(transport, changes, is_link=port == HA_PORT)

    set_.network.connect = by_a_hostile_way  # type: ignore[method-assign]


async def besiege_slave(root: Path, rng: Random, secret: str) -> None:
    settings: dict[str, Any] = {"ha_reconnect_interval": 100, "register_name_server_period": 10_000}
    if secret:
        (root / "secret").write_text(secret)
        settings["cluster_secret_file"] = str(root / "secret")
    changes = Changes(rng, secret)
    async with virtual_set(root, 2, **settings) as set_:
        await set_.send_ok(0)
        stand_between(set_, changes)
        await set_[1].kill()
        await set_[1].start()
        changes.is_on = True
        with trio.move_on_after(LIFE_S):
            while changes.count < CHANGES:
                await set_.send(0)
                await trio.sleep(rng.random())
                if rng.random() < 0.1:
                    client = set_[1].node.ha_client
                    if client is not None:
                        client.hurry()
        assert changes.count > CHANGES // 4, changes.count
        assert set_[1].is_up
        faults = [one for one in set_[1].events.events if one[0] in FAULTS]
        assert not faults, faults[0][1].get("traceback") or faults[0]


@pytest.mark.slow
async def test_no_word_of_a_master_ends_its_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    without_waits(monkeypatch)
    for number in hostile_rounds("hostile masters", HOSTILE_MASTERS):
        print(f"round {number}; again: HOSTILE_ROUND={number} pytest tests/peers -k master")
        root = tmp_path / str(number)
        root.mkdir()
        simulate_host(Random(number))
        before = own_bytes()
        with seeded_scheduler(number):
            await besiege_slave(root, Random(number), SECRET if number % 2 else "")
        assert own_bytes() - before < GROWTH_BYTES_MAX
        shutil.rmtree(root)
