"""Frames of every request code at every port, by peers that break every rule: no node ends.

A round makes whole nodes of one kind and lets hostile peers talk to their ports, behind a valid
greeting too. Rounds again: ``HOSTILE_ROUND=N:M pytest tests/peers/test_hostile_frames.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from support.hostile import peers
from support.hostile.frames import CLOSING, HostileFrames
from support.hostile.rounds import run_rounds
from support.nodes.virtual_group import PORT as MEMBER_PORT
from support.nodes.virtual_group import virtual_group
from support.nodes.virtual_set import CLIENT, NAMESRV, virtual_set, without_waits
from support.suite.sizes import HOSTILE_FRAME_PARTS, HOSTILE_ROUNDS, hostile_rounds

from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.peer_hello import PeerProofs
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.security.signature import Credentials
from trioha.services.admin.http import serve_http
from trioha.services.loop.transport import Transport
from trioha.services.node.broker_node import BrokerNode
from trioha.testing.memory_node import HA_PORT, NAMESRV_PORT, PORT
from trioha.testing.network import NetworkListener
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.keyring import Keyring

FRAMES = 5_000
"""Frames of one round."""
FRAMES_EACH = 40
"""Frames of one connection."""
SIDE_BY_SIDE = 10
SECRET = "a secret of tests"
OPERATOR = Credentials("operator-1", "operator-secret")
STRANGER = "10.0.9.9"
"""Machine of the peers; the set's own client is another one."""
ACCOUNTS = f"""\
globalWhiteRemoteAddresses:
- {CLIENT}
accounts:
- accessKey: operator-1
  secretKey: operator-secret
  admin: true
"""
FAULTS = {"handler_failed", "task_failed", "flush_failed"}

Peer = Callable[[], Awaitable[int]]
"""One connection of a hostile peer; returns how many frames it has sent."""


async def besiege(rng: Random, kinds: list[tuple[int, Peer]]) -> None:
    """Let peers of these kinds connect, a few at a time, until all frames are sent."""
    sent = 0
    weights, made = [weight for weight, _ in kinds], [peer for _, peer in kinds]

    async def one() -> None:
        nonlocal sent
        while sent < FRAMES:
            (peer,) = rng.choices(made, weights)
            count = await peer()
            sent += count

    async with trio.open_nursery() as nursery:
        for _ in range(SIDE_BY_SIDE):
            nursery.start_soon(one)


def check(events: Iterable[RecordedEvents], nodes: Iterable[BrokerNode]) -> None:
    faults = [one for recorded in events for one in recorded.events if one[0] in FAULTS]
    assert not faults, faults[0][1].get("traceback") or faults[0]
    for node in nodes:
        assert node.traffic.used_bytes == 0, str(node.traffic)


async def besiege_set(root: Path, rng: Random, secret: str, *, accounts: bool = False) -> None:
    """A master, its slave, their name server; the HA port and the HTTP port."""
    settings: dict[str, Any] = {"mapped_file_size_consume_queue": 20_000}
    if secret:
        (root / "secret").write_text(secret)
        settings["cluster_secret_file"] = str(root / "secret")
    if accounts:
        (root / "plain_acl.yml").write_text(ACCOUNTS)
        settings |= {"acl_enable": True, "acl_file": str(root / "plain_acl.yml")}
    async with virtual_set(root, 2, **settings) as set_:
        nodes = [broker.node for broker in set_.brokers]
        network, clock = set_.network, set_.clock
        page_listener = NetworkListener()
        network.listeners["pages"] = page_listener
        set_.nursery.start_soon(serve_http, page_listener, nodes[0].pages)
        of_broker = HostileFrames(rng, Port.BROKER, OPERATOR.sign if accounts else None)
        of_namesrv = HostileFrames(rng, Port.NAMESRV)
        keyring = Keyring(secret)

        def at(host: str, port: int, frames: HostileFrames) -> Peer:
            async def talk() -> int:
                transport = await network.connect(STRANGER, host, port)
                if secret and rng.random() < 0.3:
                    await peers.talk_proven(transport, frames, 10, clock, keyring)
                    return 10
                await peers.talk(transport, frames, FRAMES_EACH)
                return FRAMES_EACH

            return talk

        async def follow() -> int:
            transport = await network.connect(CLIENT, set_[0].host, HA_PORT)
            await peers.follow(transport, rng, FRAMES_EACH, secret)
            return FRAMES_EACH

        async def scrape() -> int:
            await peers.scrape(await network.connect(CLIENT, "pages"), rng)
            return 1

        await besiege(
            rng,
            [
                (8, at(set_[0].host, PORT, of_broker)),
                (3, at(set_[1].host, PORT, of_broker)),
                (5, at(NAMESRV, NAMESRV_PORT, of_namesrv)),
                (2, follow),
                (1, scrape),
            ],
        )
        # The peers are no mere noise: nodes do what some of the requests ask.
        assert min(of_broker.answers[0], of_namesrv.answers[0]) > FRAMES // 50
        assert of_broker.codes_sent >= set(REQUIREMENTS[Port.BROKER]) - set(CLOSING)
        assert of_namesrv.codes_sent >= set(REQUIREMENTS[Port.NAMESRV])
        assert [broker.is_up for broker in set_.brokers] == [True, True]
        # A forged ticket parks writes for as long as five minutes.
        await trio.sleep(400)
        assert isinstance(set_.namesrv.events, RecordedEvents)
        check(
            [set_.namesrv.events, *(broker.events for broker in set_.brokers)],
            nodes,
        )


async def besiege_group(root: Path, rng: Random, secret: str) -> None:
    """A Raft group of three, and a peer that poses as one of its members."""
    async with virtual_group(root, 3, d_leger_secret=secret) as group:
        network = group.network
        frames = HostileFrames(rng, Port.BROKER)

        def at(number: int) -> Peer:
            async def talk() -> int:
                transport: Transport = await network.connect(CLIENT, group[number].host)
                await peers.talk(transport, frames, FRAMES_EACH)
                return FRAMES_EACH

            return talk

        async def pose() -> int:
            target = rng.choice(group.members)
            source = rng.choice(group.besides(target))
            node = target.node
            config = node.config
            guise = peers.RaftGuise(
                GroupDoor(
                    config.broker_cluster_name,
                    config.broker_name,
                    source.id,
                    tuple(member.id for member in group.members),
                ),
                target.id,
                f"{source.host}:{MEMBER_PORT}",
                PeerProofs(secret),
            )
            transport = await network.connect(CLIENT, target.host)
            term, end = target.replication.member.term, node.store.max_phy_offset
            return await peers.pose(transport, guise, rng, 15, term, end)

        await besiege(rng, [(3, at(0)), (3, at(1)), (1, at(2)), (3, pose)])
        await trio.sleep(20)
        check(
            [member.events for member in group.members],
            [member.node for member in group.members],
        )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(HOSTILE_FRAME_PARTS))
def test_no_frame_of_any_peer_ends_a_node_or_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    without_waits(monkeypatch)
    rounds = hostile_rounds("hostile frames", HOSTILE_ROUNDS, part, HOSTILE_FRAME_PARTS)

    async def besiege_one(root: Path, number: int) -> None:
        rng, secret = Random(number), SECRET if number % 2 else ""
        if number % 5 == 4:
            await besiege_group(root, rng, secret)
        else:
            await besiege_set(root, rng, secret, accounts=number % 3 == 2)

    run_rounds(rounds, tmp_path, "no_frame", besiege_one)
