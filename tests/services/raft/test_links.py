"""Connections between members: peers let in, faults survived, messages not queued."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import msgpack
import pytest
import trio
from support.nodes.raft_members import Machine, Rig, elected, member_group

from trioha.dledger.message_codec import GroupDoor, code_of
from trioha.dledger.messages import Append, Compare, Heartbeat, RaftMessage, VoteRequest
from trioha.dledger.peer_hello import PeerHello, PeerProofs, pack, unpack
from trioha.dledger.vote_record import decode_vote_record
from trioha.errors import RemoteProtocolError
from trioha.services.loop.transport import Transport
from trioha.services.raft.peer_sends import OUTBOX_BYTES_MAX
from trioha.services.remoting.client import RemotingClient, open_remoting_client
from trioha.testing.network import NetworkListener
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


@asynccontextmanager
async def stranger(rig: Rig, target: str) -> AsyncIterator[RemotingClient]:
    """A connection that no member has opened."""
    transport = await rig.network.connect("stranger", target)
    ended = trio.Event()
    async with open_remoting_client(
        "h", 1, rig.clock, transport=transport, on_closed=ended.set
    ) as client:
        client.ended = ended  # type: ignore[attr-defined]
        yield client


async def closed(client: RemotingClient) -> None:
    with trio.fail_after(10):
        await client.ended.wait()  # type: ignore[attr-defined]


async def ask(client: RemotingClient, fields: list[object]) -> RemotingCommand:
    return await client.request(RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, pack(fields)))


async def let_in(rig: Rig, client: RemotingClient, source: str, target: str) -> GroupDoor:
    """Prove to be `source`, as its process would."""
    door = GroupDoor("c", "g", source, rig.founders)
    await exchange(rig, client, door, target)
    return door


async def exchange(
    rig: Rig, client: RemotingClient, door: GroupDoor, target: str
) -> tuple[list[object], list[object]]:
    """Greet and prove as a member does; return the fields of both requests. Both were accepted."""
    greeting = PeerHello.of(door, target, f"{door.member_id}:1", b"n" * 16)
    answer = unpack((await ask(client, greeting.plain())).body_bytes())
    proof = PeerProofs(rig.secret).of_caller(greeting, cast("bytes", answer[1]))
    said: tuple[list[object], list[object]] = (greeting.plain(), ["proof", proof])
    assert (await ask(client, said[1])).code == ResponseCode.SUCCESS
    return said


def oneway(client: RemotingClient, door: GroupDoor, message: RaftMessage) -> None:
    client.oneway_nowait(RemotingCommand(code_of(message), {}, b"".join(door.encode(message))))


def refusals(machine: Machine) -> list[str]:
    return [str(one["reason"]) for one in machine.events.of("raft_refused")]


async def test_members_with_one_secret_find_each_other() -> None:
    async with elected(3, secret="s3cret") as rig:
        leader = await rig.leader()
        put = leader.put()
        await rig.wait(lambda: put.safe)
        assert all(not refusals(machine) for machine in rig.machines.values())


@pytest.mark.parametrize("secret", ["", "other"])
async def test_a_member_without_the_secret_is_refused_by_name_and_counts_for_nothing(
    secret: str,
) -> None:
    async with member_group(3, secret="s3cret") as rig:
        rig["n2"].overrides["secret"] = secret
        await rig.start()
        await rig.wait(lambda: refusals(rig["n0"]) and refusals(rig["n2"]))
        assert "set dLegerSecret to the same" in refusals(rig["n2"])[0]
        assert not rig["n0"].begun
        await trio.sleep(30)
        # However often it tries, it is a line.
        assert len(refusals(rig["n2"])) <= 4
        assert rig["n0"].member is not None
        shown = rig["n0"].member.status()["refusals"]
        assert isinstance(shown, list)
        assert shown


@pytest.mark.parametrize(
    ("door", "words"),
    [
        (GroupDoor("c", "g", "n2", ("n0", "n1", "n2", "n3")), "has another peer list"),
        (GroupDoor("other", "g", "n2", ("n0", "n1", "n2")), "in cluster other wrote to g in c"),
        (GroupDoor("c", "other", "n2", ("n0", "n1", "n2")), "a member of group other"),
        (GroupDoor("c", "g", "n1", ("n0", "n1", "n2")), "compare dLegerPeers and dLegerSelfId"),
    ],
)
async def test_who_is_configured_differently_is_told_why_and_nothing_begins(
    door: GroupDoor, words: str
) -> None:
    async with member_group(3) as rig:
        rig["n2"].overrides["door"] = door
        await rig.start()
        everybody = rig.machines.values()
        await rig.wait(lambda: any(words in one for m in everybody for one in refusals(m)))
        await trio.sleep(10)
        assert not any(machine.begun for machine in everybody)


async def test_one_that_has_another_address_in_its_own_list_is_told_so() -> None:
    async with member_group(3) as rig:
        rig["n2"].overrides["address"] = "elsewhere:1"
        await rig.start()
        await rig.wait(lambda: refusals(rig["n2"]))
        assert "n2 has the address elsewhere:1 in its dLegerPeers" in refusals(rig["n2"])[0]


async def test_a_raft_message_before_the_greeting_ends_the_connection() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        target = next(one for one in rig.founders if one != leader.member_id)
        term = rig[target].node.state.term
        door = GroupDoor("c", "g", leader.member_id, rig.founders)
        async with stranger(rig, target) as client:
            oneway(client, door, VoteRequest(leader.member_id, target, term + 5, False, True, 9, 9))
            await closed(client)
        assert rig[target].node.state.term == term
        assert "without a proof" in refusals(rig[target])[0]


async def test_a_recorded_greeting_admits_nobody() -> None:
    async with elected(3, secret="s3cret") as rig:
        leader = await rig.leader()
        target = next(one for one in rig.founders if one != leader.member_id)
        source, term = leader.member_id, rig[target].node.state.term
        door = GroupDoor("c", "g", source, rig.founders)
        async with stranger(rig, target) as client:
            greeting, proof = await exchange(rig, client, door, target)
        async with stranger(rig, target) as client:
            assert (await ask(client, greeting)).code == ResponseCode.SUCCESS
            answer = await ask(client, proof)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "cannot prove that it knows the secret" in (answer.remark or "")
            oneway(client, door, VoteRequest(source, target, term + 5, False, True, 9, 9))
            await closed(client)
        assert rig[target].node.state.term == term


@pytest.mark.parametrize("code", range(30040, 30048))
@pytest.mark.parametrize("known", [False, True])
async def test_hostile_bytes_change_nothing(code: int, known: bool) -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        target = next(one for one in rig.founders if one != leader.member_id)
        rng = Random(code)
        before = rig[target].node.state.term
        for _ in range(30):
            async with stranger(rig, target) as client:
                if known:
                    await let_in(rig, client, leader.member_id, target)
                body = rng.randbytes(rng.choice((0, 1, 4, 60, 5000)))
                if rng.random() < 0.5:
                    body = msgpack.packb([rng.choice(("hello", "proof", "note", 3)), body])
                client.oneway_nowait(RemotingCommand(code, {}, body))
                await trio.sleep(0.01)
        assert rig[target].node.state.term == before
        assert leader.is_leader
        put = leader.put()
        await rig.wait(lambda: put.safe)


async def test_whoever_is_let_in_speaks_for_itself_only() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        source, target = (one for one in rig.founders if one != leader.member_id)
        term = rig[target].node.state.term
        async with stranger(rig, target) as client:
            await let_in(rig, client, source, target)
            forged = GroupDoor("c", "g", leader.member_id, rig.founders)
            oneway(client, forged, Heartbeat(leader.member_id, target, term + 1, 0, 0, 0))
            await closed(client)
        assert rig[target].node.state.term == term


async def test_whoever_claims_to_lead_a_term_that_has_a_leader_is_hung_up_on() -> None:
    """Without a secret any stranger may say so; no task fails over it."""
    async with elected(3) as rig:
        leader = await rig.leader()
        source, target = (one for one in rig.founders if one != leader.member_id)
        for claimed in (target, leader.member_id):
            term = leader.node.state.term
            async with stranger(rig, claimed) as client:
                door = await let_in(rig, client, source, claimed)
                oneway(client, door, Heartbeat(source, claimed, term, 0, 0, 0))
                await closed(client)
        assert leader.is_leader
        put = leader.put()
        await rig.wait(lambda: put.safe)


async def test_a_message_of_an_older_term_is_answered_and_does_nothing() -> None:
    async with elected(3) as rig:
        first = await rig.leader()
        await rig.stop(first.member_id)
        leader = await rig.leader(other_than=first.member_id)
        await rig.start(first.member_id)
        await rig.wait_level()
        follower = first
        end = follower.node.state.end_offset
        async with stranger(rig, follower.member_id) as client:
            door = await let_in(rig, client, leader.member_id, follower.member_id)
            stale = Append(leader.member_id, follower.member_id, 1, 1, end, 1, 1, end, b"x" * 64)
            oneway(client, door, stale)
            await trio.sleep(0.1)
        assert follower.node.state.end_offset == end
        assert follower.begun


async def test_what_a_refused_message_has_begun_is_done_all_the_same() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        source, target = (one for one in rig.founders if one != leader.member_id)
        state = rig[target].node.state
        term = state.term + 1
        async with stranger(rig, target) as client:
            door = await let_in(rig, client, source, target)
            rows = ((state.terms.last_term, 1),)
            oneway(client, door, Compare(source, target, term, 1, 0, 1 << 20, rows))
            await closed(client)
        assert state.term == term
        payload = rig[target].slots.payload
        assert payload is not None
        hard = decode_vote_record(payload, GroupDoor("c", "g", target, rig.founders)).hard
        assert hard is not None
        assert hard.term == term
        assert rig[target].roles[-1].leader_id == source


async def test_who_is_thrown_out_for_what_it_says_comes_back_ever_more_slowly() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        follower = next(one for one in rig.machines.values() if one is not leader)
        assert follower.member is not None
        door = follower.member.peers.listener

        def refuse(message: RaftMessage) -> None:
            raise RemoteProtocolError("two leaders had one term")

        door._step = refuse
        before = rig.network.connects
        await trio.sleep(20)
        # Two or three members that come back every two seconds.
        assert rig.network.connects - before < 60


async def test_a_message_that_is_too_large_is_refused() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        target = next(one for one in rig.founders if one != leader.member_id)
        async with stranger(rig, target) as client:
            await let_in(rig, client, leader.member_id, target)
            client.oneway_nowait(
                RemotingCommand(RequestCode.TRIOHA_RAFT_APPEND, {}, bytes(11 << 20))
            )
            await closed(client)
        assert any("no Raft message" in one for one in refusals(rig[target]))


async def test_a_follower_that_reads_nothing_is_dropped_and_recovers() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        name = next(one for one in rig.founders if one != leader.member_id)
        rig.network.set_cuts((leader.member_id, name))
        assert leader.member is not None
        link = next(one for one in leader.member.peers.links.links() if one.member_id == name)
        for _ in range(40):
            for _ in range(16):
                leader.append(bytes(65_536))
            leader.member.log_grown()
            assert link.outbox_bytes <= OUTBOX_BYTES_MAX + (9 << 20)
            await trio.sleep(0.02)
        await rig.wait(lambda: not link.connected, within_s=3)
        assert "has read nothing for 0.5 s" in link.last_error
        rig.network.set_cuts()
        await rig.wait_level(within_s=10)


async def test_an_idle_black_hole_is_noticed_and_left_behind() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        rig.network.isolate(leader.member_id)
        assert leader.member is not None
        links = leader.member.peers.links
        await rig.wait(lambda: not any(link.connected for link in links.links()), within_s=8)
        await rig.leader(other_than=leader.member_id)
        rig.network.set_cuts()
        await rig.wait_level(within_s=4)


async def test_a_member_that_comes_back_is_connected_to_at_once() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        name = next(one for one in rig.founders if one != leader.member_id)
        await rig.stop(name)
        await trio.sleep(5)
        before = rig.network.connects
        await rig.start(name)
        await rig.wait_level(within_s=1)
        assert rig.network.connects - before < 40


async def test_somebody_else_s_port_is_told_apart() -> None:
    async with member_group(3) as rig:
        await rig.start("n0")

        async def other_program(transport: Transport) -> None:
            while await transport.receive_some():
                pass

        async with trio.open_nursery() as nursery:
            listener = NetworkListener()
            rig.network.listeners["n1"] = listener
            transport = await listener.accept()
            nursery.start_soon(other_program, transport)
            member = rig["n0"].member
            assert member is not None
            await rig.wait(
                lambda: (
                    "no answer to our greeting"
                    in next(
                        one for one in member.peers.links.links() if one.member_id == "n1"
                    ).last_error
                )
            )
            nursery.cancel_scope.cancel()
