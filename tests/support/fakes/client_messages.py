"""Messages as a client would receive them."""

from __future__ import annotations

from support.stores.records import encode_record
from trioha.client.decode import received_messages
from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.store.interface import PutMessage
from trioha.wire.message_id import pack_host

HOST = pack_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", "a", 0)


def record(
    body: bytes = b"x",
    properties: bytes = b"",
    *,
    topic: str = "T",
    queue_offset: int = 0,
    sys_flag: int = 0,
) -> bytes:
    """One record as a pull answer holds it."""
    message = PutMessage(topic, 0, 0, sys_flag, 1, HOST, HOST, body, properties)
    return encode_record(message, queue_offset, 1000 * queue_offset, 2)


def received(
    body: bytes = b"x",
    properties: bytes = b"",
    *,
    topic: str = "T",
    queue_offset: int = 0,
    sys_flag: int = 0,
    queue: MessageQueue | None = QUEUE,
) -> ReceivedMessage:
    """One message."""
    data = record(body, properties, topic=topic, queue_offset=queue_offset, sys_flag=sys_flag)
    return received_messages(data, queue)[0]
