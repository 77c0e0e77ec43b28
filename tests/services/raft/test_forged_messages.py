"""Strangers that pose as members of a group without a secret: no message of theirs ends a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio
from services.raft.test_broker import holds
from support.nodes.live_group import LiveGroup, Member, live_group
from support.nodes.live_node import SUCCESS
from support.nodes.raft_messages import names_of, with_values
from support.stores.records import encode_record

from trioha.broker.raft.controls import control_message
from trioha.dledger import messages as say
from trioha.dledger.membership import Configuration
from trioha.dledger.message_codec import TERM_MAX, GroupDoor, code_of
from trioha.dledger.peer_hello import PeerHello, PeerProofs, pack, unpack
from trioha.dledger.ready import Control
from trioha.dledger.settings import TERM_ROOM
from trioha.errors import Unreachable
from trioha.services.loop.clock import Clock
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.store.put_values import PutMessage
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

VOTERS = Configuration.of("n0", "n1", "n2")


@attrs.frozen
class Target:
    """A member as a stranger finds it."""

    member: Member
    source: str
    """The member that the stranger poses as."""
    term: int
    """Term of the member and of the last byte of its log."""
    end: int
    """End of its log; all of it is committed."""

    @property
    def head(self) -> tuple[str, str, int]:
        """Source, target and term of a leader's message."""
        return self.source, self.member.id, self.term + 1


@asynccontextmanager
async def posing(target: Target) -> AsyncIterator[tuple[RemotingClient, GroupDoor, trio.Event]]:
    """A connection that the target admits as its peer's."""
    config = target.member.config
    addresses = dict(peer.split("-", 1) for peer in config.d_leger_peers.split(";"))
    door = GroupDoor(
        config.broker_cluster_name, config.broker_name, target.source, tuple(addresses)
    )
    ended = trio.Event()
    address = parse_address(target.member.address)
    async with open_remoting_client(*address, Clock(), on_closed=ended.set) as client:
        hello = PeerHello.of(door, target.member.id, addresses[target.source], b"n" * 16)
        greeting = RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, pack(hello.plain()))
        nonce = unpack((await client.request(greeting)).body_bytes())[1]
        proof = pack(["proof", PeerProofs("").of_caller(hello, nonce)])
        answer = await client.request(RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, proof))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        yield client, door, ended


async def forge(target: Target, message: say.RaftMessage) -> bool:
    """Send a message; return whether the target closed the connection once it had handled it."""
    async with posing(target) as (client, door, ended):
        client.oneway_nowait(RemotingCommand(code_of(message), {}, b"".join(door.encode(message))))
        try:
            # Requests of one connection are handled in order.
            await client.request(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        except Unreachable:
            await ended.wait()
            return True
    return False


async def begun(group: LiveGroup) -> Member:
    """The leader of a group that has stored messages everywhere."""
    await group.start()
    leader = await group.leader()
    for number in range(5):
        assert (await leader.send(b"%d" % number)).code == SUCCESS
    end = (await leader.status())["max_phy_offset"]
    for member in group.members:
        await member.wait(lambda it: holds(it, end))
    return leader


@asynccontextmanager
async def follower(tmp_path: Path) -> AsyncIterator[Target]:
    """A member whose peers are away: only the stranger speaks to it."""
    async with live_group(tmp_path) as group:
        leader = await begun(group)
        others = group.besides(leader)
        for member in (others[1], leader):  # no majority without a leader, so no election
            await member.break_off()
        status = await others[0].status()
        yield Target(others[0], leader.id, status["raft"]["term"], status["max_phy_offset"])
        assert not others[0].ended.is_set(), others[0].error
        await others[0].break_off()


def record(at: int, topic: str = "T", body: bytes = b"x", queue_id: int = 0) -> bytes:
    message = PutMessage(topic, queue_id, 0, 0, 1000, bytes(8), bytes(8), body, b"", 0)
    return encode_record(message, 0, at, 1000)


def append(target: Target, body: bytes, **changes: Any) -> say.Append:
    plain = say.Append(
        *(*target.head, 1, target.end, target.term, target.term + 1, target.end, body)
    )
    return with_values(plain, **changes)


def table_in_two_parts(at: int) -> bytes:
    first = record(at, "TRIOHA_METADATA", b"\x01\x00\x00\x00\x02\xc1")
    return first + record(at + len(first), "TRIOHA_METADATA", b"\x01\x00\x01\x00\x02\xc1")


def members(target: Target, configuration: Configuration) -> bytes:
    """A control record of the leader that sets these members."""
    segment_bytes = target.member.config.mapped_file_size_commit_log
    control = Control(target.term + 1, target.source, configuration)
    message = control_message(control, target.end, segment_bytes, {}, 1000)
    return encode_record(message, 0, target.end, 1000)


FORGED: dict[str, Callable[[Target], say.RaftMessage]] = {
    "bytes of no log": lambda it: append(it, b"\x00" * 5),
    "garbage": lambda it: append(it, bytes(range(200))),
    "half a record": lambda it: append(it, record(it.end)[:-1]),
    "a record of another place": lambda it: append(it, record(it.end + 8)),
    "a damaged control record": lambda it: append(it, record(it.end, "TRIOHA_RAFT", b"\xc1")),
    "a damaged table": lambda it: append(it, record(it.end, "TRIOHA_METADATA", b"\x01")),
    "a table of no kind": lambda it: append(
        it, record(it.end, "TRIOHA_METADATA", b"\x01\x00\x00\x00\x01\xc1")
    ),
    "a table in two parts, of no kind": lambda it: append(it, table_in_two_parts(it.end)),
    "a table in a queue of its own": lambda it: append(
        it, record(it.end, "TRIOHA_METADATA", b"\x01\x00\x00\x00\x01\x91\x01", queue_id=7)
    ),
    "a topic of no letters": lambda it: append(
        it, record(it.end, "ABCD").replace(b"ABCD", b"\xff\xff\xff\xff")
    ),
    "a term that falls": lambda it: append(it, record(it.end), entry_term=0),
    "a term of the future": lambda it: append(it, record(it.end), entry_term=it.term + 9),
    "no voters": lambda it: append(it, members(it, Configuration(()))),
    "a cut within a record": lambda it: say.Truncate(
        *(*it.head, 1, it.end - 7, it.term, it.term + 1)
    ),
    "a cut of what is committed": lambda it: say.Truncate(*(*it.head, 1, 0, 0, it.term + 1)),
    "a beginning within a segment": lambda it: say.Install(
        *(*it.head, 1, it.end + 100, ((it.term + 1, 0),), it.end + 200, (0, VOTERS))
    ),
    "a beginning without voters": lambda it: say.Install(
        *(*it.head, 1, 1 << 20, ((it.term + 1, 0),), 1 << 21, (0, Configuration(())))
    ),
    "a beginning without terms": lambda it: say.Install(
        *(*it.head, 1, 1 << 20, (), 1 << 21, (0, VOTERS))
    ),
    "a log that ends before it begins": lambda it: say.Install(
        *(*it.head, 1, 1 << 20, ((it.term + 1, 0),), 0, (0, VOTERS))
    ),
    "terms beyond its own": lambda it: say.Compare(*(*it.head, 1, 0, 1 << 30, ((it.term + 7, 0),))),
    "the last term of all": lambda it: say.Heartbeat(it.source, it.member.id, TERM_MAX, 0, 0, 0),
    "a term too far": lambda it: say.StaleTerm(it.source, it.member.id, it.term + TERM_ROOM + 2),
}


@pytest.mark.parametrize("name", FORGED)
async def test_no_forged_message_ends_a_follower(tmp_path: Path, name: str) -> None:
    async with follower(tmp_path) as target:
        for _ in range(2):
            assert await forge(target, FORGED[name](target))
        status = await target.member.status()
        assert status["max_phy_offset"] == target.end
        assert len(target.member.events.of("raft_refused")) == 1
        # Its log can still be read when it starts.
        await target.member.stop()
        await target.member.start()
        assert (await target.member.status())["max_phy_offset"] == target.end


async def test_one_word_of_a_stranger_empties_no_log(tmp_path: Path) -> None:
    """The word is that of a leader of a group that has deleted its oldest messages."""
    async with follower(tmp_path) as target:
        rows = ((target.term, 0),)
        beginning = say.Install(*(*target.head, 1, 1 << 20, rows, 1 << 21, (0, VOTERS)))
        assert not await forge(target, beginning)
        status = await target.member.status()
        assert (status["min_phy_offset"], status["max_phy_offset"]) == (0, target.end)


SUCCESS_OF_APPEND = (say.PushType.APPEND, 0, say.PushStatus.SUCCESS)
ANSWERS: dict[str, Callable[[tuple[str, str, int], int], say.RaftMessage]] = {
    "within a record": lambda head, end: say.PushResponse(*head, *SUCCESS_OF_APPEND, end - 3, 0),
    "within a record, in a heartbeat": lambda head, end: say.HeartbeatResponse(
        *(*head, 0, 0, end - 3, 0)
    ),
    "beyond the end": lambda head, end: say.PushResponse(
        *(*head, *SUCCESS_OF_APPEND, end + 1, end + 1)
    ),
    "a heartbeat of the future": lambda head, end: say.HeartbeatResponse(*head, 0, 1 << 60, 0, 0),
    "a round of the future": lambda head, end: say.HeartbeatResponse(*head, 1 << 60, 0, 0, 0),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_no_forged_answer_ends_a_leader(tmp_path: Path, name: str) -> None:
    async with live_group(tmp_path) as group:
        leader = await begun(group)
        source = group.besides(leader)[0].id
        for _ in range(2):
            status = await leader.status()
            term, end = status["raft"]["term"], status["max_phy_offset"]
            target = Target(leader, source, term, end)
            assert await forge(target, ANSWERS[name]((source, leader.id, term), end))
            assert (await (await group.leader()).send()).code == SUCCESS
        assert not leader.ended.is_set(), leader.error
        for member in group.members:
            await member.break_off()


class Forger:
    """Draws messages of every kind, of numbers that are near to what the target has, or far off."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._rng = Random(seed)
        self._newest = target.term

    def message(self) -> say.RaftMessage:
        rng, target = self._rng, self._target
        kind = rng.choice(
            (
                *(say.VoteRequest, say.VoteResponse, say.StaleTerm, say.Heartbeat, say.Compare),
                *(say.HeartbeatResponse, say.Truncate, say.Append, say.Install, say.PushResponse),
                say.TimeoutNow,
            )
        )
        # Messages of older terms are ignored, so the term grows, and slowly.
        self._newest += rng.random() < 0.2
        term = self._newest + rng.choice((-1, 0, 0, 0, 0, 0, 1))
        values: dict[str, Any] = {
            "source": target.source,
            "target": target.member.id,
            "term": term,
            "is_pre": rng.random() < 0.5,
            "by_transfer": rng.random() < 0.5,
            "granted": rng.random() < 0.5,
            "conflict": rng.random() < 0.5,
            "reason": "forged",
            "type": rng.choice(list(say.PushType)),
            "status": rng.choice(list(say.PushStatus)),
            "rows": self._rows(),
            "configuration": self._configuration(),
            "body": self._body(),
        }
        names = names_of(kind)
        for name in names:
            if name not in values:
                values[name] = self._term() if name.endswith("term") else self._offset()
        return kind(**{name: values[name] for name in names})

    def _offset(self) -> int:
        end = self._target.end
        return self._rng.choice((0, 1, end, end, end, end - 1, end + 1, end // 2, 1 << 20, 1 << 62))

    def _term(self) -> int:
        term = self._target.term
        return self._rng.choice((0, term, term, term + 1, self._newest, 1 << 47))

    def _rows(self) -> tuple[tuple[int, int], ...]:
        rows: list[tuple[int, int]] = []
        for _ in range(self._rng.choice((0, 1, 2, 3))):
            row = (self._term(), self._offset())
            if not rows or (row[0] > rows[-1][0] and row[1] > rows[-1][1]):
                rows.append(row)
        return tuple(rows)

    def _configuration(self) -> tuple[int, Configuration]:
        voters = self._rng.choice(((), ("n0",), ("n0", "n1", "n2"), ("n1", "zz")))
        return self._offset(), Configuration(voters, self._rng.choice(((), ("l0",))))

    def _body(self) -> bytes:
        rng, end = self._rng, self._target.end
        whole = record(self._offset(), rng.choice(("T", "TRIOHA_RAFT", "TRIOHA_METADATA", "")))
        return rng.choice(
            (b"", record(end), record(end) * 2, whole, whole[:-1], rng.randbytes(rng.randrange(99)))
        )


@pytest.mark.parametrize("seed", range(3))
async def test_no_mixture_of_forged_messages_ends_a_follower(tmp_path: Path, seed: int) -> None:
    async with follower(tmp_path) as target:
        forger = Forger(target, seed)
        refused = 0
        for _ in range(150):
            refused += await forge(target, forger.message())
        assert 0 < refused < 150
        assert target.member.events.of("handler_failed") == []
