"""Messages as bytes, and the check that admits messages of this member's group only.

Theory of operation. A message is the body of a one-way remoting command: the length of the head,
the head as a msgpack array, then the bytes of the log, if any, as they are in the log:

    size of head u32 | [group stamp, cluster, group, kind, source, target, term, ...] | log bytes

The *group stamp* is a checksum over cluster, group and the members that the group began with. A
node with another peer list has another stamp, so two nodes that were configured differently never
count each other's votes. A stranger's message is rejected before its fields are read. A message
that is too large is rejected before it is copied. A message is taken as a whole or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgpack

from trioha.checksum import crc32
from trioha.dledger import messages as say
from trioha.dledger.membership import MEMBER_ID_CHARS_MAX, Configuration
from trioha.dledger.settings import MEMBERS_MAX, TERMS_MAX
from trioha.dledger.term_table import TermTable
from trioha.errors import ConfigError, RemoteProtocolError
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import Buffer

LOG_BYTES_MAX: Final = 8 << 20
"""Log bytes in one message: a batch of 1 MiB, or one record, which RocketMQ limits to 4 MiB."""
HEAD_BYTES_MAX: Final = 2 << 20
"""A full table of terms is 65,536 rows of at most 18 bytes."""
TERM_MAX: Final = 1 << 48
"""No group reaches it by elections: at ten a second they take 890,000 years."""
REASON_CHARS_MAX: Final = 200
_OFFSET_MAX: Final = (1 << 63) - 1
_HEAD_SIZE: Final = struct.Struct(">I")
_PACKER: Final = msgpack.Packer()
"""Kept: `msgpack.packb` makes one each time, with a buffer of 256 KiB."""
# A call of an enum costs 0.8 us, and an answer has two.
_PUSH_TYPES: Final = {int(kind): kind for kind in say.PushType}
_PUSH_STATUSES: Final = {int(status): status for status in say.PushStatus}

_Check = Callable[[Any], Any]


def _refuse(value: object, kind: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{str(value)[:60]!r} in a Raft message is no {kind}")


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _OFFSET_MAX:
        raise _refuse(value, "offset")
    return value


def _term(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= TERM_MAX:
        raise _refuse(value, "term")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _OFFSET_MAX:
        raise _refuse(value, "number")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _refuse(value, "flag")
    return value


def _reason(value: Any) -> str:
    if type(value) is not str or len(value) > REASON_CHARS_MAX:
        raise _refuse(value, "reason")
    return value


def _rows(value: Any) -> tuple[tuple[int, int], ...]:
    if type(value) is not list or len(value) > TERMS_MAX:
        raise _refuse(value, "table of terms")
    rows = []
    for row in value:
        if type(row) is not list or len(row) != 2:
            raise _refuse(row, "row of terms")
        rows.append((_term(row[0]), _offset(row[1])))
    return TermTable(tuple(rows)).rows


def _configuration(value: Any) -> tuple[int, Configuration]:
    if type(value) is not list or len(value) != 3:
        raise _refuse(value, "configuration")
    end, voters, learners = value
    for group in (voters, learners):
        if type(group) is not list or len(group) > MEMBERS_MAX:
            raise _refuse(group, "list of members")
        for member in group:
            if type(member) is not str:
                raise _refuse(member, "member id")
    return _offset(end), Configuration(tuple(voters), tuple(learners))


def _push_type(value: Any) -> say.PushType:
    kind = _PUSH_TYPES.get(value) if type(value) is int else None
    if kind is None:
        raise _refuse(value, "kind of push")
    return kind


def _push_status(value: Any) -> say.PushStatus:
    status = _PUSH_STATUSES.get(value) if type(value) is int else None
    if status is None:
        raise _refuse(value, "status of a push")
    return status


def _plain_configuration(row: tuple[int, Configuration]) -> list[Any]:
    return [row[0], row[1].voters, row[1].learners]


_FIELDS: dict[str, _Check] = {
    "is_pre": _flag,
    "by_transfer": _flag,
    "granted": _flag,
    "conflict": _flag,
    "reason": _reason,
    "log_term": _term,
    "prev_term": _term,
    "entry_term": _term,
    "conflict_term": _term,
    "sequence": _count,
    "read_round": _count,
    "sent_ms": _count,
    "rows": _rows,
    "configuration": _configuration,
    "type": _push_type,
    "status": _push_status,
}
"""Check of each field; a field that is not named here is an offset."""

_KINDS: tuple[tuple[type[say.RaftMessage], RequestCode], ...] = (
    (say.VoteRequest, RequestCode.TRIOHA_RAFT_VOTE),
    (say.VoteResponse, RequestCode.TRIOHA_RAFT_VOTE),
    (say.StaleTerm, RequestCode.TRIOHA_RAFT_VOTE),
    (say.Heartbeat, RequestCode.TRIOHA_RAFT_HEARTBEAT),
    (say.HeartbeatResponse, RequestCode.TRIOHA_RAFT_HEARTBEAT),
    (say.Compare, RequestCode.TRIOHA_RAFT_APPEND),
    (say.Truncate, RequestCode.TRIOHA_RAFT_APPEND),
    (say.Append, RequestCode.TRIOHA_RAFT_APPEND),
    (say.PushResponse, RequestCode.TRIOHA_RAFT_APPEND),
    (say.Install, RequestCode.TRIOHA_RAFT_INSTALL),
    (say.TimeoutNow, RequestCode.TRIOHA_RAFT_TRANSFER),
)
_NUMBER: Final = {kind: number for number, (kind, _) in enumerate(_KINDS)}
_CODE: Final = dict(_KINDS)
_APPEND: Final = _NUMBER[say.Append]
_PUSH_RESPONSE: Final = _NUMBER[say.PushResponse]


_CHECKS: list[tuple[_Check, ...]] = [
    tuple(_FIELDS.get(name, _offset) for name in kind.FIELDS if name != "body")
    for kind, _ in _KINDS
]


def code_of(message: say.RaftMessage) -> RequestCode:
    """Return the code of the remoting request that carries the message."""
    return _CODE[type(message)]


class GroupDoor:
    """One member's identity: its stamp on messages, and the check of the messages that arrive."""

    def __init__(self, cluster: str, group: str, member_id: str, founders: tuple[str, ...]) -> None:
        """`founders`: the members that the group began with, as in dLegerPeers.

        Errors: ConfigError.
        """
        for name in (member_id, *founders):
            if not 0 < len(name) <= MEMBER_ID_CHARS_MAX or not name.isprintable():
                raise ConfigError(f"{name[:80]!r} cannot be a dLegerSelfId; use ids like n0")
        if len(set(founders)) != len(founders):
            raise ConfigError(f"dLegerPeers names a member twice: {';'.join(founders)}")
        self.cluster = cluster
        self.group = group
        self.member_id = member_id
        self.founders = founders
        self.stamp = crc32("\n".join((cluster, group, *sorted(founders))).encode())

    def encode(self, message: say.RaftMessage) -> list[Buffer]:
        """Return the buffers of a message, to be sent in this order; log bytes are not copied."""
        number = _NUMBER[type(message)]
        head: list[Any] = [
            *(self.stamp, self.cluster, self.group, number),
            *(message.source, message.target, message.term),
        ]
        body: Buffer = b""
        # The two kinds that each put needs are spelled out, here and in `decode`. HOT.
        if isinstance(message, say.Append):
            head.append(message.sequence)
            head.append(message.prev_offset)
            head.append(message.prev_term)
            head.append(message.entry_term)
            head.append(message.committed_offset)
            body = message.body
            if body:
                head.append(crc32(body))
        elif isinstance(message, say.PushResponse):
            head.append(message.type)
            head.append(message.sequence)
            head.append(message.status)
            head.append(message.matched_offset)
            head.append(message.held_offset)
            head.append(message.conflict)
        else:
            head.extend(message.values()[3:])
            if isinstance(message, say.Install):  # the last field is not packed as it is
                head[-1] = _plain_configuration(message.configuration)
            elif isinstance(message, say.VoteResponse):
                head[-1] = message.reason[:REASON_CHARS_MAX]
        packed: bytes = _PACKER.pack(head)
        return [_HEAD_SIZE.pack(len(packed)) + packed, *([body] if body else [])]

    def decode(self, data: Buffer, known: Iterable[str] = ()) -> say.RaftMessage:
        """Return the message from a member to this member; `known` are members beside the founders.

        Errors: RemoteProtocolError, whose text is one sentence.
        """
        head, body = self._split(data)
        stamp, cluster, group, _, source, target = head[:6]
        self.admit(cluster, group, stamp, source, target, known)
        number = head[3]
        if type(number) is not int or not 0 <= number < len(_KINDS):
            raise _refuse(number, "kind of message")
        kind, checks = _KINDS[number][0], _CHECKS[number]
        takes_body = number == _APPEND and len(body) > 0
        if len(head) != 7 + len(checks) + takes_body:
            raise RemoteProtocolError(
                f"a Raft message has {len(head)} fields, and {kind.__name__} has another number; "
                "run the same version on all members"
            )
        term = _term(head[6])
        if number == _APPEND:
            if takes_body and head[12] != crc32(body):
                raise RemoteProtocolError(
                    "log bytes were damaged on their way; the leader will send them again"
                )
            sequence, prev_offset = _count(head[7]), _offset(head[8])
            prev_term, entry_term, committed = _term(head[9]), _term(head[10]), _offset(head[11])
            return say.Append(
                source,
                target,
                term,
                sequence,
                prev_offset,
                prev_term,
                entry_term,
                committed,
                body,
            )
        if body:
            raise RemoteProtocolError(f"{len(body)} bytes too many after a {kind.__name__}")
        if number == _PUSH_RESPONSE:
            push_type, sequence, status = (
                _push_type(head[7]),
                _count(head[8]),
                _push_status(head[9]),
            )
            matched, held, conflict = _offset(head[10]), _offset(head[11]), _flag(head[12])
            return say.PushResponse(
                source, target, term, push_type, sequence, status, matched, held, conflict
            )
        values = [check(value) for check, value in zip(checks, head[7:], strict=True)]
        return kind(source, target, term, *values)

    def _split(self, data: Buffer) -> tuple[list[Any], memoryview]:
        view = memoryview(data)
        if not _HEAD_SIZE.size <= len(view) <= _HEAD_SIZE.size + HEAD_BYTES_MAX + LOG_BYTES_MAX:
            raise RemoteProtocolError(f"{len(view)} bytes are no Raft message")
        (size,) = _HEAD_SIZE.unpack_from(view)
        head_end = _HEAD_SIZE.size + size
        if size > HEAD_BYTES_MAX or head_end > len(view):
            raise RemoteProtocolError(f"a Raft message says that its head has {size} bytes")
        if len(view) - head_end > LOG_BYTES_MAX:
            raise RemoteProtocolError(
                f"{len(view) - head_end} log bytes in one Raft message, more than {LOG_BYTES_MAX}"
            )
        try:
            head = msgpack.unpackb(view[_HEAD_SIZE.size : head_end])
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            raise RemoteProtocolError(f"the head of a message is no msgpack: {error}") from None
        if type(head) is not list or len(head) < 7:
            raise RemoteProtocolError("the head of a Raft message is no list")
        return head, view[head_end:]

    def admit(
        self, cluster: Any, group: Any, stamp: Any, source: Any, target: Any, known: Iterable[str]
    ) -> None:
        """Check that the source is a member of this group and means this member.

        `known`: members beside the founders. Errors: RemoteProtocolError that names the difference
        and its cure.
        """
        if (cluster, group) != (self.cluster, self.group):
            raise RemoteProtocolError(
                f"a member of group {str(group)[:60]} in cluster {str(cluster)[:60]} wrote to "
                f"{self.group} in {self.cluster}; compare dLegerPeers of both"
            )
        if target != self.member_id:  # another node listens on an address of dLegerPeers
            raise RemoteProtocolError(
                f"a message to {str(target)[:60]} came to {self.member_id}; "
                "compare dLegerPeers and dLegerSelfId"
            )
        if source == self.member_id:  # two with one id could vote twice in a term
            raise RemoteProtocolError(
                f"another node has the id {self.member_id} too; "
                "give each member its own dLegerSelfId"
            )
        if stamp != self.stamp:  # another list of voters has other majorities
            raise RemoteProtocolError(
                f"{str(source)[:60]} has another peer list than {self.member_id}; make dLegerPeers "
                f"the same on all members, here it is {';'.join(sorted(self.founders))}"
            )
        if type(source) is not str or (source not in self.founders and source not in known):
            raise RemoteProtocolError(
                f"{str(source)[:60]!r} is no member of {self.group}; add it with its leader first"
            )
