"""From the records of a pull answer to messages."""

from __future__ import annotations

import zlib

from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.wire.codes import SysFlag
from trioha.wire.record import Record, decode_records
from trioha.wire.remoting_command import Buffer

_COMPRESSOR_SHIFT = 8
_COMPRESSOR_MASK = 0x7
_ZLIB = (0, 3)
_BODY_BYTES_MAX = 64 << 20
"""Of a decompressed body. Brokers take 4 MiB; a bomb is 1000 times its size."""


def received_messages(body: Buffer, queue: MessageQueue | None = None) -> list[ReceivedMessage]:
    """The messages of a pull or query answer.

    `queue` is where they were pulled from; without it (a query) the record tells topic and queue.
    Errors: RemoteProtocolError for anything but whole records.
    """
    return [received_message(record, queue) for record in decode_records(body)]


def received_message(record: Record, queue: MessageQueue | None = None) -> ReceivedMessage:
    """One record as a message."""
    if queue is None:
        queue = MessageQueue(record.topic, "", record.queue_id)
    if record.sys_flag & SysFlag.COMPRESSED:
        inflated = _inflate(record.body, record.sys_flag)
        if inflated is not None:
            return ReceivedMessage(record, queue, inflated)
        return ReceivedMessage(record, queue, record.body, True)
    return ReceivedMessage(record, queue, record.body)


def _inflate(body: bytes, sys_flag: int) -> bytes | None:
    """The body inflated, or None: one message that cannot be must not stop its queue."""
    if sys_flag >> _COMPRESSOR_SHIFT & _COMPRESSOR_MASK not in _ZLIB:
        return None
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, _BODY_BYTES_MAX)
    except zlib.error:
        return None
    return data if inflater.eof else None
