"""Leaders of a Raft group that turn hostile: what they say is changed on its way to a follower.

`HostileCaller` stands on the connections that other members open to a follower. It reads each
greeting and each Raft message, and makes of some of them what a member that knows the group and its
secret could send. `LeaderChanges.forges` tells how far it goes. Without forgery no sound follower
takes its bytes, so afterwards the follower has to be where the group is. With forgery it writes
whole records that no other member has, and commits them. Raft promises nothing to a group one of
whose members lies: the follower may then vote, and be elected, for a log that no group has. So
`Muted` keeps its messages from the other members, which are checked as the follower's node is.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgpack

from support.hostile.bodies import packed
from support.hostile.masters import Changes, damaged_log
from support.hostile.values import NUMBERS, changed, damaged, odd_bytes, odd_value
from support.nodes.raft_messages import names_of, with_values
from support.stores.records import encode_record
from trioha.broker.raft.records import CHANGES, SNAPSHOT, messages_of
from trioha.dledger import messages as say
from trioha.dledger.membership import Configuration
from trioha.dledger.message_codec import LOG_BYTES_MAX, GroupDoor, code_of
from trioha.errors import RemoteProtocolError
from trioha.remoting.connection import RemotingConnection
from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import Transport, take_each
from trioha.store.put_values import PutMessage
from trioha.wire.codes import RequestCode
from trioha.wire.names import RAFT_TOPIC
from trioha.wire.remoting_command import Buffer, RemotingCommand, encode

_RAFT = (
    RequestCode.TRIOHA_RAFT_VOTE,
    RequestCode.TRIOHA_RAFT_APPEND,
    RequestCode.TRIOHA_RAFT_HEARTBEAT,
    RequestCode.TRIOHA_RAFT_TRANSFER,
    RequestCode.TRIOHA_RAFT_INSTALL,
)
_SPOKEN = (*_RAFT, RequestCode.TRIOHA_RAFT_HELLO)
_INTS = tuple(one for one in NUMBERS if type(one) is int and 0 <= one < 2**63)


class LeaderChanges(Changes):
    """Changes that a hostile leader makes to a sound leader's messages."""

    def __init__(
        self,
        rng: Random,
        committed: Callable[[], int],
        end: Callable[[], int],
        term: Callable[[], int],
        last_term: Callable[[], int],
        *,
        forges: bool,
    ) -> None:
        """`committed`: the newest commit of the sound members; the others are
        the follower's: the end of its log, its term, and the term of its last byte."""
        super().__init__(rng, "")
        self.forges = forges
        self._committed = committed
        self._term = term
        self._last_term = last_term
        self._end = end
        self._last_body: Buffer = b""
        self._told_commit = 0

    def frame(self, command: RemotingCommand, door: GroupDoor, source: str) -> bytes:
        """A request to the follower, changed."""
        rng = self.rng
        if command.code == RequestCode.TRIOHA_RAFT_HELLO:
            frame = encode(_with_body(command, self.body(command.body_bytes())))
            return damaged(rng, frame) if rng.random() < 0.1 else frame
        try:
            message = door.decode(command.body_bytes(), (source,))
        except RemoteProtocolError:
            return encode(command)
        made = self.message(message, door)
        head = [
            bytes(one)
            for one in GroupDoor(door.cluster, door.group, source, door.founders).encode(made)
        ]
        if rng.random() < 0.1:  # no longer a message, though it may look like one
            head[0] = _odd_head(rng, head[0])
        frame = encode(_with_body(command, b"".join(head), int(code_of(made))))
        return damaged(rng, frame) if rng.random() < 0.05 else frame

    def message(self, message: say.RaftMessage, door: GroupDoor) -> say.RaftMessage:
        """A message of the same source, as a liar of the same or a newer term sends it."""
        rng = self.rng
        values: dict[str, Any] = {}
        if isinstance(message, say.Append) and message.body:
            if rng.random() < 0.7:
                values["body"] = self._log_bytes(message)
            self._last_body = message.body
        for name in names_of(type(message)):
            if name in ("source", "target", "body") or rng.random() > 0.15:
                continue
            values[name] = self._value(name, getattr(message, name), message)
        if self.forges:  # a leader that the follower does not call out of date
            values["term"] = max(message.term, self._term()) + (rng.random() < 0.05)
            if isinstance(message, say.Append) and rng.random() < 0.7:
                values |= self._next_bytes(message, values)
        else:
            values.pop("entry_term", None)  # whole records of a term that no group has are forged
        made: say.RaftMessage = with_values(message, **values)
        if rng.random() < 0.1:
            made = self._other_push(made, door)
        if not self.forges:
            made = self._without_false_commit(made)
            if isinstance(made, say.VoteResponse) and made.granted and not made.is_pre:
                return message  # forged votes make two leaders of one term
            if isinstance(made, say.Heartbeat):
                self._told_commit = made.committed_offset
            if isinstance(made, say.Install) and made.begin_offset <= self._told_commit:
                return message  # two words that agree are a forgery: a follower has no other proof
        return made

    def _value(self, name: str, value: Any, message: say.RaftMessage) -> Any:
        rng = self.rng
        if name == "configuration":
            return rng.choice((0, *_INTS)), rng.choice((value[1], Configuration(())))
        if name == "rows":
            return rng.choice(((), value[:-1], value[1:], ((message.term, self._end()),)))
        if type(value) is bool:
            return not value
        if name == "term":
            return value + rng.choice((1, 1, 2, 1000, 1 << 20))
        if "term" in name:
            return max(0, rng.choice((value - 1, value + 1, message.term, message.term + 1, 0)))
        if type(value) is int and name not in ("type", "status"):
            near = (self._end(), self._end() + 1, max(0, value - 1), value + 1, 0)
            return rng.choice((*near, rng.choice(_INTS)))
        return value

    def _next_bytes(self, message: say.Append, values: dict[str, Any]) -> dict[str, Any]:
        """Records in their place behind the follower's log, as its leader would write them."""
        rng, end = self.rng, self._end()
        made: dict[str, Any] = {"prev_offset": end, "prev_term": self._last_term()}
        made["entry_term"] = rng.choice((made["prev_term"], values["term"]))
        made["body"] = self._own_records(end)
        if message.body and rng.random() < 0.3:
            made["body"] = _record("T", bytes(message.body), end)
        if rng.random() < 0.2:  # one of several parts, or two halves of two bodies
            made["body"] = made["body"][: int.from_bytes(made["body"][:4], "big")]
        made["committed_offset"] = rng.choice((end, 1 << 62))
        return made

    def _log_bytes(self, message: say.Append) -> bytes:
        """Bytes of log that are no log of this group, or no log at all."""
        rng, body = self.rng, bytes(message.body)
        kind = rng.randrange(8 if self.forges else 6)
        if kind == 0:
            return b""
        if kind == 1:
            return body[: rng.randrange(len(body))]
        if kind == 2:
            at = rng.choice((0, 4, 28))  # size, magic code, own place
            return body[:at] + bytes(one ^ 0xFF for one in body[at : at + 4]) + body[at + 4 :]
        if kind == 3:
            return bytes(self._last_body) or odd_bytes(rng)  # of another place
        if kind == 4:
            return body * min(rng.choice((2, 100, 1 << 20)), LOG_BYTES_MAX // len(body))
        if kind == 5:
            place = message.prev_offset + rng.choice((8, 1 << 20, -1))  # of another group
            return _record("T", b"of another group", max(0, place))
        if kind == 6:
            return damaged_log(rng, body)
        return self._own_records(message.prev_offset)

    def _own_records(self, phy_offset: int) -> bytes:
        """Records of tables or of members, whole and in their place, whose content is odd."""
        rng = self.rng
        if rng.random() < 0.2:
            fields = [1, 1 << 20, 1, "n0", phy_offset, ["n0"], [], {"n0": "x"}]
            return _record(RAFT_TOPIC, packed(changed(rng, fields)), phy_offset)
        ops = [1, *([rng.randrange(14), odd_value(rng)] for _ in range(rng.randrange(1, 4)))]
        plain = packed(ops if rng.random() < 0.7 else odd_value(rng))
        kind = rng.choice((CHANGES, CHANGES, SNAPSHOT))
        size = rng.choice((1 << 20, 5 + -(-len(plain) // 2), 6 + len(plain) // 3))
        made = b""
        for message in messages_of(kind, plain, size, 1000):
            queue_offset = rng.choice((0, 0, -1, 1 << 40))
            made += encode_record(message, queue_offset, phy_offset + len(made), 1000)
        return made

    def _other_push(self, message: say.RaftMessage, door: GroupDoor) -> say.RaftMessage:
        """A push or an order in place of the message."""
        rng, end = self.rng, self._end()
        head = (message.source, message.target, message.term)
        at = rng.choice((0, end, max(0, end - 7), end + 1, self._committed(), 1 << 20))
        term = message.term
        members = Configuration.of(*door.founders)
        return rng.choice(
            (
                say.Truncate(*head, 1, at, rng.choice((0, term)), term),
                say.Compare(*head, 1, 0, at, rng.choice(((), ((term, 0),), ((1, 0), (term, at))))),
                say.Install(*head, 1, at, ((term, 0),), at + 100, (0, members)),
                say.Append(*head, 1, end, term, term, 1 << 62, b""),
                say.Heartbeat(*head, 1 << 62, 0, 0),
                say.TimeoutNow(*head),
                say.StaleTerm(*head),
            )
        )

    def _without_false_commit(self, message: say.RaftMessage) -> say.RaftMessage:
        """Commit nothing that the group has not committed: a follower believes its leader there."""
        if not isinstance(message, (say.Heartbeat, say.Append)):
            return message
        most = self._committed()
        end = self._end()
        if isinstance(message, say.Append):
            end = max(end, message.prev_offset + len(message.body))
        if end <= most:
            return message  # it may say what it likes
        return with_values(message, committed_offset=min(message.committed_offset, most))


class HostileCaller:
    """The follower's end of a connection that a hostile member opened. Implements `Transport`."""

    def __init__(
        self, transport: Transport, changes: LeaderChanges, door: GroupDoor, source: str
    ) -> None:
        """`door`: the follower's; `source`: the id of the member that has connected."""
        self.peer = transport.peer
        self.waited_ms = 0
        self._transport = transport
        self._changes = changes
        self._door = door
        self._source = source
        self._machine = RemotingConnection()

    async def receive_some(self) -> bytes:
        while True:
            data = await self._transport.receive_some()
            if not data:
                return data
            self._machine.receive_data(data)
            made = b""
            while (command := self._machine.next_frame()) is not None:
                if command.code in _SPOKEN and self._changes.takes():
                    made += self._changes.frame(command, self._door, self._source)
                else:
                    made += encode(command)
            if made:
                return made

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        return self._transport.try_send(buffers)

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        return await self._transport.send_some(buffers)

    async def send_all(self, buffers: list[Buffer]) -> None:
        await self._transport.send_all(buffers)

    def finish(self) -> None:
        self._transport.finish()

    def close(self) -> None:
        self._transport.close()

    def peer_has_gone(self) -> bool:
        return self._transport.peer_has_gone()

    def abort(self) -> None:
        self._transport.abort()


class Muted:
    """A connection of the follower's that carries no Raft message to the member it leads to."""

    def __init__(self, transport: Transport) -> None:
        self.peer = transport.peer
        self.waited_ms = 0
        self._transport = transport
        self._machine = RemotingConnection()
        self._unsent: list[Buffer] = []

    async def receive_some(self) -> bytes:
        return await self._transport.receive_some()

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        self._unsent = self._transport.try_send(self._allowed(buffers))
        return self._unsent

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        self._unsent = await self._transport.send_some(self._allowed(buffers))
        return self._unsent

    async def send_all(self, buffers: list[Buffer]) -> None:
        await self._transport.send_all(self._allowed(buffers))
        self._unsent = []

    def finish(self) -> None:
        self._transport.finish()

    def close(self) -> None:
        self._transport.close()

    def peer_has_gone(self) -> bool:
        return self._transport.peer_has_gone()

    def abort(self) -> None:
        self._transport.abort()

    def _allowed(self, buffers: list[Buffer]) -> list[Buffer]:
        # The unsent buffers come again, in front.
        again = buffers[: len(self._unsent)] if self._unsent else []
        self._machine.receive_data(b"".join(buffers[len(again) :]))
        made: list[Buffer] = [*again]
        while (command := self._machine.next_frame()) is not None:
            if command.code not in _RAFT:
                made.append(encode(command))
        return made


def _with_body(command: RemotingCommand, body: bytes, code: int | None = None) -> RemotingCommand:
    return RemotingCommand(
        command.code if code is None else code,
        dict(command.ext_fields),
        body,
        command.opaque,
        command.flag,
        command.remark,
    )


def _odd_head(rng: Random, head: bytes) -> bytes:
    fields = packed(changed(rng, msgpack.unpackb(head[4:])))
    return len(fields).to_bytes(4, "big") + fields


def _record(topic: str, body: bytes, phy_offset: int) -> bytes:
    message = PutMessage(topic, 0, 0, 0, 1000, bytes(8), bytes(8), body, b"", 0)
    return encode_record(message, 0, phy_offset, 1000)
