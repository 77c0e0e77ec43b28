"""SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE as commands (SendMessageRequestHeaderV2.java)."""

from __future__ import annotations

from collections.abc import Sequence

from trioha.client.message import Message, MessageQueue
from trioha.errors import TriohaError
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.codes import RequestCode
from trioha.wire.names import AUTO_CREATE_TOPIC
from trioha.wire.properties import Property, encode_properties
from trioha.wire.remoting_command import Buffer, RemotingCommand

DEFAULT_TOPIC_QUEUE_NUMS = 4
"""Queues a client wants for a topic that its send creates."""

_SEPARATORS = frozenset("\x01\x02")


def message_properties(message: Message, msg_id: str) -> dict[str, str]:
    """The properties a message is sent with: the user's, then what its fields say.

    Errors: TriohaError for a name or value that would be read as two, and for odd delays.
    """
    properties = {Property.UNIQ_KEY: msg_id, **message.properties}
    if message.keys:
        properties[Property.KEYS] = " ".join(message.keys)
    if message.tags:
        properties[Property.TAGS] = message.tags
    if (message.delay_level > 0) + bool(message.delay_s) + bool(message.deliver_at_ms) > 1:
        raise TriohaError("give one of delay_level, delay_s and deliver_at_ms")
    if message.delay_level > 0:
        properties[Property.DELAY] = str(message.delay_level)
    if message.delay_s < 0 or message.deliver_at_ms < 0:
        raise TriohaError("delay_s and deliver_at_ms cannot be negative")
    if message.delay_s:
        delay_ms = round(message.delay_s * 1000)
        # Brokers of RocketMQ 5.0 know seconds alone.
        if delay_ms % 1000:
            properties[Property.TIMER_DELAY_MS] = str(delay_ms)
        else:
            properties[Property.TIMER_DELAY_SEC] = str(delay_ms // 1000)
    if message.deliver_at_ms:
        properties[Property.TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    for name, value in properties.items():
        if not _SEPARATORS.isdisjoint(name) or not _SEPARATORS.isdisjoint(value):
            raise TriohaError(f"property {name!r}: the bytes 1 and 2 separate properties")
    return properties


def send_command(
    group: str, message: Message, msg_id: str, queue: MessageQueue, born_timestamp: int
) -> RemotingCommand:
    """One message for one queue."""
    properties = message_properties(message, msg_id)
    if not message.wait_store_ok:
        properties[Property.WAIT] = "false"
    return _command(
        RequestCode.SEND_MESSAGE_V2,
        message.body,
        group=group,
        queue=queue,
        properties=properties,
        born_timestamp=born_timestamp,
        batch=False,
        flag=message.flag,
        sys_flag=message.sys_flag,
    )


def recall_command(group: str, topic: str, recall_handle: str, broker_name: str) -> RemotingCommand:
    """Take a delayed message back."""
    return RemotingCommand(
        RequestCode.RECALL_MESSAGE,
        {
            "producerGroup": group,
            "topic": topic,
            "recallHandle": recall_handle,
            "bname": broker_name,
        },
    )


def send_batch_command(
    group: str,
    messages: Sequence[Message],
    msg_ids: Sequence[str],
    queue: MessageQueue,
    born_timestamp: int,
) -> RemotingCommand:
    """Several messages of one topic for one queue, stored together or not at all."""
    elements = [
        BatchElement(
            message.flag,
            memoryview(message.body),
            memoryview(encode_properties(message_properties(message, msg_id))),
        )
        for message, msg_id in zip(messages, msg_ids, strict=True)
    ]
    # The property is the batch's: the broker waits if one of its messages asks for it.
    waits = any(message.wait_store_ok for message in messages)
    properties = {} if waits else {Property.WAIT: "false"}
    return _command(
        RequestCode.SEND_BATCH_MESSAGE,
        encode_batch(elements),
        group=group,
        queue=queue,
        properties=properties,
        born_timestamp=born_timestamp,
        batch=True,
    )


def _command(
    code: RequestCode,
    body: Buffer,
    *,
    group: str,
    queue: MessageQueue,
    properties: dict[str, str],
    born_timestamp: int,
    batch: bool,
    flag: int = 0,
    sys_flag: int = 0,
) -> RemotingCommand:
    return RemotingCommand(
        code,
        {
            "a": group,
            "b": queue.topic,
            "c": AUTO_CREATE_TOPIC,
            "d": DEFAULT_TOPIC_QUEUE_NUMS,
            "e": queue.queue_id,
            "f": sys_flag,
            "g": born_timestamp,
            "h": flag,
            "i": encode_properties(properties).decode(),
            "j": 0,
            "k": False,
            "m": batch,
        },
        body,
    )
