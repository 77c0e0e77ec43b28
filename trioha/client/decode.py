"""From the records of a pull answer to messages."""

from __future__ import annotations

import zlib

from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import offset_message_id
from trioha.wire.properties import Property
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
    properties = record.properties
    offset_id = offset_message_id(record.store_host, record.phy_offset)
    body = record.body
    sys_flag = record.sys_flag
    if sys_flag & SysFlag.COMPRESSED:
        inflated = _inflate(body, sys_flag)
        if inflated is not None:
            body = inflated
            sys_flag &= ~SysFlag.COMPRESSED
    return ReceivedMessage(
        properties.get(Property.RETRY_TOPIC) or record.topic,
        body,
        properties.get(Property.TAGS, ""),
        tuple(properties.get(Property.KEYS, "").split()),
        properties,
        queue or MessageQueue(record.topic, "", record.queue_id),
        record.queue_offset,
        properties.get(Property.UNIQ_KEY) or offset_id,
        offset_id,
        record.born_timestamp,
        record.store_timestamp,
        record.reconsume_times,
        record.phy_offset,
        record.size,
        record.flag,
        sys_flag,
    )


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
