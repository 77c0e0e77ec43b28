"""Turns the records of a pull answer into messages."""

from __future__ import annotations

from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.wire.codes import SysFlag
from trioha.wire.compression import inflate
from trioha.wire.record import Record, decode_records
from trioha.wire.remoting_command import Buffer


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
        inflated = inflate(record.body, record.sys_flag)
        # One message that cannot be inflated must not stop its queue.
        if inflated is not None:
            return ReceivedMessage(record, queue, inflated)
        return ReceivedMessage(record, queue, record.body, True)
    return ReceivedMessage(record, queue, record.body)
