"""A leader that turns hostile, before a follower of ours: it goes on, and joins its group again.

What the other members say to one follower is changed on its way, behind a valid greeting and under
the secret of the group, and so is what they answer to it. Rounds again:
``HOSTILE_ROUND=N:M pytest tests/peers/test_hostile_leaders.py``.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import trio
from support.hostile.leaders import HostileCaller, LeaderChanges, Muted
from support.hostile.masters import Changes, HostileWay
from support.hostile.rounds import run_rounds
from support.nodes.live_node import SUCCESS, send_request
from support.nodes.virtual_group import (
    PROGRESS,
    VirtualGroup,
    VirtualMember,
    virtual_group,
)
from support.nodes.virtual_set import without_waits
from support.suite.sizes import HOSTILE_LEADERS, HOSTILE_PARTS, hostile_rounds

from trioha.errors import Unreachable
from trioha.services.loop.transport import Transport
from trioha.store.inspect import diff_logs, iter_records
from trioha.testing.network import NetworkListener
from trioha.wire.codes import RequestCode
from trioha.wire.message_id import decode_message_id
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand

CHANGES = 40
"""Changed frames of one round."""
LIFE_S = 120
"""Virtual time within which the follower must have heard so many."""
PATIENCE_S = 3.0
FAULTS = {"handler_failed", "task_failed", "flush_failed", "raft_failed"}
SECRET = "a secret of tests"


async def stand_before(
    group: VirtualGroup, victim: VirtualMember, changes: LeaderChanges, answers: Changes
) -> None:
    """Change what other members tell the follower: their messages, and their answers to it."""
    members = {member.host: member.id for member in group.besides(victim)}
    door = victim.replication.member.setup.door
    connect = group.network.connect

    async def connect_hostile(source: str, target: str, port: int | None = None) -> Transport:
        transport = await connect(source, target, port)
        if source != victim.host or target not in members:
            return transport
        if changes.forges:
            transport = Muted(transport)
        return HostileWay(transport, answers)

    group.network.connect = connect_hostile  # type: ignore[method-assign]
    await victim.kill()
    await victim.start()
    listener: NetworkListener = group.network.listeners[victim.host]
    accept = listener.accept

    async def accept_hostile() -> Transport:
        transport = await accept()
        source = members.get(transport.peer.partition(":")[0])
        return transport if source is None else HostileCaller(transport, changes, door, source)

    listener.accept = accept_hostile  # type: ignore[method-assign]
    # The first connection was accepted by the listener as it was before.
    await group.wait(lambda: victim.replication.member.leader_id)
    for channel in victim.channels():
        channel.close_nowait("the members connect again")
    await group.wait(lambda: victim.replication.member.leader_id)


async def send(member: VirtualMember, body: bytes, held: dict[int, bytes]) -> None:
    """Send a message and keep it if it was acknowledged."""
    with trio.move_on_after(PATIENCE_S):
        try:
            answer = await member.ask(send_request(body))
        except (OSError, Unreachable):
            return
        if answer.code == SUCCESS:
            held[decode_message_id(answer.ext_str("msgId"))[2]] = body


async def ask(member: VirtualMember, request: RemotingCommand) -> None:
    """Ask the follower what it has to ask its leader for."""
    with trio.move_on_after(PATIENCE_S):
        try:
            await member.ask(request)
        except (OSError, Unreachable):
            return


def lacks(member: VirtualMember, held: dict[int, bytes]) -> list[int]:
    """Offsets of acknowledged messages that the member's log does not hold."""
    log = Path(member.node.config.store_path_root_dir) / "commitlog"
    end = member.node.store.max_phy_offset
    records = (one for one in iter_records(log, 0, end) if isinstance(one, Record))
    found = {one.phy_offset: one.body for one in records}
    return [offset for offset, body in held.items() if found.get(offset) != body]


async def join(group: VirtualGroup, members: list[VirtualMember], held: dict[int, bytes]) -> None:
    """Wait until these members have the log of a leader that acknowledges, and it lacks nothing."""
    before, count = len(held), 0

    def is_level() -> bool:
        ends = {one.node.store.max_phy_offset for one in members}
        commits = {one.replication.replicas.push2slave_max_offset for one in members}
        return ends == commits and len(ends) == 1

    with trio.fail_after(60):
        while len(held) == before or not is_level():
            if len(held) == before:
                await send(await group.leader(*members), b"after %d" % count, held)
                count += 1
            await trio.sleep(0.05)
    logs = [Path(one.node.config.store_path_root_dir) / "commitlog" for one in members]
    for log in logs[1:]:
        assert diff_logs(logs[0], log).equal, f"{logs[0]} and {log}"
    assert not lacks(members[0], held)


async def besiege_follower(root: Path, rng: Random, secret: str, *, forges: bool) -> int:
    """Return how often the follower refused what it heard."""
    async with virtual_group(root, 3, d_leger_secret=secret) as group:
        held: dict[int, bytes] = {}
        leader = await group.leader()
        for number in range(5):
            await send(leader, b"before %d" % number, held)
        victim = rng.choice(group.besides(leader))
        sound = group.besides(victim)

        def committed() -> int:
            return max(one.replication.replicas.push2slave_max_offset for one in sound)

        def end() -> int:
            return victim.node.store.max_phy_offset

        def term() -> int:
            return victim.replication.member.term

        def last_term() -> int:
            node = victim.replication.member.node
            return node.state.terms.last_term if node is not None else 0

        changes = LeaderChanges(rng, committed, end, term, last_term, forges=forges)
        answers = Changes(rng, "")
        await stand_before(group, victim, changes, answers)
        changes.is_on = answers.is_on = True
        changes.share = rng.choice((0.15, 0.4))
        number = 0
        with trio.move_on_after(LIFE_S):
            while changes.count < CHANGES:
                number += 1
                await send(rng.choice(sound), b"%d" % number, held)
                if rng.random() < 0.3:
                    fields = {**PROGRESS, "commitOffset": number}
                    await ask(victim, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
                if rng.random() < 0.3:
                    question = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, dict(PROGRESS))
                    await ask(victim, question)
                await trio.sleep(rng.random() / 2)
        changes.is_on = answers.is_on = False
        assert changes.count > CHANGES // 4, changes.count
        assert len(held) > 5, held
        for member in group.members:
            assert member.is_up
            faults = [one for one in member.events.events if one[0] in FAULTS]
            assert not faults, faults[0][1].get("traceback") or faults[0]
        refused = victim.events.of("raft_refused")
        assert len(refused) <= changes.count + answers.count, refused
        if forges:
            # A node that has taken what it should not have starts again all the same.
            await victim.kill()
            await victim.start()
            await join(group, sound, held)
        else:
            await join(group, group.members, held)
        return len(refused)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(HOSTILE_PARTS))
def test_no_word_of_a_leader_ends_its_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    without_waits(monkeypatch)
    rounds = hostile_rounds("hostile leaders", HOSTILE_LEADERS, part, HOSTILE_PARTS)

    async def besiege(root: Path, number: int) -> int:
        secret = SECRET if number % 2 else ""
        return await besiege_follower(root, Random(number), secret, forges=number % 4 >= 2)

    refused = run_rounds(rounds, tmp_path, "leader", besiege)
    # Now and then all words of a round happen to be believed, or ignored.
    assert sum(refused) >= len(rounds) // 4, refused
