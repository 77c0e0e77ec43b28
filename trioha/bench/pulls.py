"""Pulls of one queue without a client library around them."""

from __future__ import annotations

import struct

import attrs

from trioha.client.message import MessageQueue
from trioha.errors import CommandError, RemoteProtocolError
from trioha.security.signature import Credentials
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode
from trioha.wire.record import MAGIC
from trioha.wire.remoting_command import Buffer, RemotingCommand, decode_frame, encode

_LENGTH = struct.Struct(">I")
_PULLED = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}
# Size, magic, and where the body's length stands if both hosts are IPv4.
_RECORD_HEAD = struct.Struct(">II")
_BODY_SIZE_AT = 84
BODY_AT = 88


@attrs.define(eq=False)
class QueueCursor:
    """One queue and how far it has been read."""

    queue: MessageQueue
    offset: int
    max_offset: int = 0


@attrs.define(eq=False)
class PullReader:
    """Encodes pulls for cursors and applies their answers. The opaque is the cursor's index."""

    _group: str
    cursors: list[QueueCursor]
    _count: int = attrs.field(kw_only=True)
    _suspend_ms: int = attrs.field(kw_only=True)
    _credentials: Credentials | None = attrs.field(kw_only=True, default=None)
    """The account that signs every pull."""
    _sql: str = attrs.field(kw_only=True, default="")
    """An SQL92 filter; without one all messages are read."""
    _rest: bytes = attrs.field(default=b"", init=False)

    def request(self, index: int) -> bytes:
        """The next pull of a cursor as a frame."""
        cursor = self.cursors[index]
        flags = PullSysFlag.SUBSCRIPTION
        if self._suspend_ms:
            flags |= PullSysFlag.SUSPEND
        command = RemotingCommand(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": self._group,
                "topic": cursor.queue.topic,
                "queueId": cursor.queue.queue_id,
                "queueOffset": cursor.offset,
                "maxMsgNums": self._count,
                "sysFlag": flags,
                "commitOffset": 0,
                "suspendTimeoutMillis": self._suspend_ms,
                "subscription": self._sql or "*",
                "subVersion": 0,
                "expressionType": "SQL92" if self._sql else "TAG",
            },
            opaque=index,
        )
        if self._credentials is not None:
            self._credentials.sign(command)
        return encode(command)

    def answers(self, data: bytes) -> list[tuple[int, int, Buffer]]:
        """Per whole answer in `data`: cursor index, offsets that it passes over, its records.

        Without a filter these are as many. The cursor has moved on by then.
        Errors: CommandError when a pull is refused, RemoteProtocolError.
        """
        if self._rest:
            data = self._rest + data
        position = 0
        found: list[tuple[int, int, Buffer]] = []
        while len(data) - position >= 4:
            end = position + 4 + _LENGTH.unpack_from(data, position)[0]
            if end > len(data):
                break
            command = decode_frame(memoryview(data)[position:end])
            position = end
            if not command.is_response:
                continue
            if command.code not in _PULLED:
                raise CommandError(command.code, command.remark or "pull refused")
            cursor = self.cursors[command.opaque]
            begin = cursor.offset
            cursor.offset = command.ext_int("nextBeginOffset")
            cursor.max_offset = command.ext_int("maxOffset", 0)
            has_any = self._sql or command.code == ResponseCode.SUCCESS
            body = command.body
            assert isinstance(body, (bytes, memoryview)), "a decoded body is one buffer"
            found.append((command.opaque, cursor.offset - begin if has_any else 0, body))
        self._rest = data[position:]
        return found


def record_bodies(records: Buffer) -> list[memoryview]:
    """The bodies of records whose hosts are IPv4, as views.

    Errors: RemoteProtocolError.
    """
    view = memoryview(records)
    bodies = []
    position = 0
    try:
        while position < len(view):
            size, magic = _RECORD_HEAD.unpack_from(view, position)
            if magic != MAGIC:
                raise RemoteProtocolError(f"no record at {position} of a pull answer")
            (body_size,) = _LENGTH.unpack_from(view, position + _BODY_SIZE_AT)
            bodies.append(view[position + BODY_AT : position + BODY_AT + body_size])
            position += size
    except struct.error:
        raise RemoteProtocolError(f"record at {position} of a pull answer is cut off") from None
    return bodies
