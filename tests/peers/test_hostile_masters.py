"""A master and a name server that turn hostile, before brokers of ours: they go on, and remember.

What they say is changed on its way, behind a valid greeting too. Rounds again:
``HOSTILE_ROUND=N:M pytest tests/peers/test_hostile_masters.py``. A hostile leader of a DLEDGER
group: `test_hostile_leaders.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from support.hostile.masters import Changes, HostileWay
from support.hostile.rounds import run_rounds
from support.nodes.virtual_set import NAMESRV, VirtualSet, virtual_set, without_waits
from support.suite.sizes import HOSTILE_MASTERS, HOSTILE_NAMESRVS, HOSTILE_PARTS, hostile_rounds

from trioha.failover.outcome import Result
from trioha.services.loop.transport import Transport
from trioha.testing.memory_node import HA_PORT
from trioha.wire.remoting_command import RemotingCommand

CHANGES = 120
"""Changed frames of one round."""
VERDICTS = 60
"""Changed answers of one round of a name server."""
PATIENCE_S = 5.0
LIFE_S = 900
"""Virtual time within which the slave must have heard so many."""
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
                    client = set_[1].replication.ha_client
                    if client is not None:
                        client.hurry()
        assert changes.count > CHANGES // 4, changes.count
        assert set_[1].is_up
        faults = [one for one in set_[1].events.events if one[0] in FAULTS]
        assert not faults, faults[0][1].get("traceback") or faults[0]


def pose_as_namesrv(set_: VirtualSet, changes: Changes) -> None:
    """Change what both brokers are told by their name server, which knows no secret."""
    connect = set_.network.connect
    brokers = {broker.host for broker in set_.brokers}

    async def by_a_hostile_way(source: str, target: str, port: int | None = None) -> Transport:
        transport = await connect(source, target, port)
        if source not in brokers or target != NAMESRV:
            return transport
        return HostileWay(transport, changes, is_namesrv=True)

    set_.network.connect = by_a_hostile_way  # type: ignore[method-assign]


async def besiege_by_namesrv(root: Path, rng: Random, secret: str) -> None:
    settings: dict[str, Any] = {"register_name_server_period": 10_000}
    if secret:
        (root / "secret").write_text(secret)
        settings["cluster_secret_file"] = str(root / "secret")
    changes = Changes(rng, "")
    async with virtual_set(root, 2, **settings) as set_:
        pose_as_namesrv(set_, changes)
        changes.is_on, changes.share = True, 0.7
        await set_.forget()
        master, epoch = set_[0], set_[0].epoch
        with trio.move_on_after(LIFE_S):
            while changes.count < VERDICTS:
                code = await set_.send(0)
                if secret:
                    assert master.is_master, master.replication.mastership.fenced_by
                    assert code is not None
                    assert master.epoch == epoch
                question = {"topic": "T", "consumerGroup": "g", "clientId": "c@1"}
                with trio.move_on_after(PATIENCE_S):
                    await master.ask(RemotingCommand(400, {}, json.dumps(question).encode()))
                if rng.random() < 0.2:
                    master.node.registration.topics_changed()
                    set_[1].node.registration.topics_changed()
                if rng.random() < 0.05:  # it comes back, and is in doubt
                    await master.kill()
                    await master.start()
                    if secret:
                        await set_.wait(lambda: master.is_master)
                await trio.sleep(2 * rng.random())
        changes.is_on = False
        assert changes.count > VERDICTS // 4, changes.count
        for broker in set_.brokers:
            assert broker.is_up
            faults = [one for one in broker.events.events if one[0] in FAULTS]
            assert not faults, faults[0][1].get("traceback") or faults[0]
        await trio.sleep(60)  # both have heard what is true
        if not master.is_master:
            assert not secret
            outcome = await set_.fail_over(to=0, force=True)
            assert outcome.result is Result.DONE, outcome
        await set_.check_converged(0)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(HOSTILE_PARTS))
def test_no_word_of_a_name_server_ends_a_broker_or_fences_a_proven_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    without_waits(monkeypatch)
    rounds = hostile_rounds("hostile name servers", HOSTILE_NAMESRVS, part, HOSTILE_PARTS)

    async def besiege(root: Path, number: int) -> None:
        await besiege_by_namesrv(root, Random(number), SECRET if number % 2 else "")

    run_rounds(rounds, tmp_path, "name_server", besiege)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(HOSTILE_PARTS))
def test_no_word_of_a_master_ends_its_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    without_waits(monkeypatch)
    rounds = hostile_rounds("hostile masters", HOSTILE_MASTERS, part, HOSTILE_PARTS)

    async def besiege(root: Path, number: int) -> None:
        await besiege_slave(root, Random(number), SECRET if number % 2 else "")

    run_rounds(rounds, tmp_path, "master", besiege)
