"""The records of transactions, as RocketMQ 4.9 writes and reads them.

=================  ===========================  ==================================================
record             topic, always queue 0        contents
=================  ===========================  ==================================================
half message       RMQ_SYS_TRANS_HALF_TOPIC     the producer's message; REAL_TOPIC and REAL_QID say
                                                where it goes; no transaction type in its sysFlag
copy of it         the same                     the same with TRANSACTION_CHECK_TIMES, written at
                                                each check; the older copy no longer counts
op message         RMQ_SYS_TRANS_OP_HALF_TOPIC  tag ``d``, body: queue offset of the half message or
                                                copy that is finished
committed message  REAL_TOPIC, REAL_QID         the half message, sysFlag COMMIT, with the half
                                                message's offset in the log
discarded message  TRANS_CHECK_MAX_TIME_TOPIC   the half message after the last check
=================  ===========================  ==================================================

Two properties are ours, and Java's broker reads neither in these records. A copy names the queue
offset of the first half message in TRAN_PREPARED_QUEUE_OFFSET, so that a producer that ends its
transaction by the old offsets ends the copy. (Java writes the property into copies of messages that
are not checked yet, with the same meaning.) An op message that finishes an older copy, and not the
transaction, has the property COPIED. To Java's broker each op message finishes one record, so it
never sees two copies of one message.

RocketMQ 5 writes several offsets into one op message, as ``1,2,3,``. Such messages are read here;
they are not written, on purpose: a broker of 4.9 could not read them, and would ask producers again
about transactions that are finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from trioha.broker.message_fields import index_keys, tags_code
from trioha.broker.transactions.pending import HalfCopy
from trioha.store.interface import PutMessage, PutResult
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, SysFlag
from trioha.wire.message_id import offset_message_id
from trioha.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from trioha.wire.properties import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    Property,
    encode_properties,
    property_mark,
    raw_property,
)
from trioha.wire.record import Record, body_crc, pack_record, record_size
from trioha.wire.remoting_command import RemotingCommand

OP_TAG: Final = "d"
COPIED: Final = "COPIED"
COPY_PROPERTIES_BYTES: Final = 128
"""Room for the properties that copies add to those of a half message."""
_MS_MAX: Final = 1 << 53
_OP_PROPERTIES: Final = encode_properties({TAGS: OP_TAG})
_OP_COPIED_PROPERTIES: Final = encode_properties({TAGS: OP_TAG, COPIED: "true"})
_OP_TAGS_CODE: Final = tags_code({TAGS: OP_TAG})
_IMMUNITY_MARK: Final = property_mark(Property.CHECK_IMMUNITY_TIME_IN_SECONDS)


def divert_half(message: PutMessage, properties: dict[str, str]) -> None:
    """Turn a producer's message into its half message.

    Only the broker sets the properties of a copy: a producer could name another transaction.
    """
    properties.pop(Property.TRAN_PREPARED_QUEUE_OFFSET, None)
    properties.pop(Property.TRANSACTION_CHECK_TIMES, None)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.topic = TRANS_HALF_TOPIC
    message.queue_id = 0
    message.sys_flag &= ~SysFlag.TRANSACTION_MASK


def copy_of(
    record: Record, transaction_time_out: int, check_interval: int, reserved_ms: int
) -> HalfCopy:
    """Read a record of the half queue. The three settings are in milliseconds."""
    properties = record.properties
    check_times = _number(properties.get(Property.TRANSACTION_CHECK_TIMES), 0)
    # The producer's clock may be ahead.
    born_ms = min(record.born_timestamp, record.store_timestamp)
    if check_times:
        due_ms = record.store_timestamp + check_interval
    else:
        immunity = properties.get(Property.CHECK_IMMUNITY_TIME_IN_SECONDS)
        due_ms = _first_check_ms(born_ms, immunity, transaction_time_out, reserved_ms)
    return HalfCopy(
        origin=origin_of(record),
        queue_offset=record.queue_offset,
        phy_offset=record.phy_offset,
        end_offset=record.phy_offset + record.size,
        check_times=check_times,
        born_ms=born_ms,
        due_ms=due_ms,
    )


def copy_of_sent(
    message: PutMessage, result: PutResult, transaction_time_out: int, reserved_ms: int
) -> HalfCopy:
    """Return the `HalfCopy` of a half message that was just appended, without its record."""
    born_ms = min(message.born_timestamp, result.store_timestamp)
    value = raw_property(message.properties, _IMMUNITY_MARK)
    immunity = None if value is None else value.decode("utf-8", "replace")
    return HalfCopy(
        origin=result.queue_offset,
        queue_offset=result.queue_offset,
        phy_offset=result.phy_offset,
        end_offset=result.phy_offset + result.size,
        check_times=0,
        born_ms=born_ms,
        due_ms=_first_check_ms(born_ms, immunity, transaction_time_out, reserved_ms),
    )


def _first_check_ms(
    born_ms: int, immunity: str | None, transaction_time_out: int, reserved_ms: int
) -> int:
    """`immunity` is the time before the first check that the producer asks for, in seconds."""
    immunity_s = _number(immunity, -1)
    immunity_ms = transaction_time_out if immunity_s < 0 else immunity_s * 1000
    return born_ms + min(immunity_ms, reserved_ms)


def origin_of(record: Record) -> int:
    """Return the queue offset of the half message that this record is, or is a copy of."""
    value = record.properties.get(Property.TRAN_PREPARED_QUEUE_OFFSET)
    origin = _number(value, record.queue_offset)
    return origin if origin < record.queue_offset else record.queue_offset


def is_anonymous_copy(record: Record) -> bool:
    """Return whether this is a copy by Java's broker, which does not name its half message."""
    properties = record.properties
    return (
        Property.TRANSACTION_CHECK_TIMES in properties
        and Property.TRAN_PREPARED_QUEUE_OFFSET not in properties
    )


def next_copy(record: Record, check_times: int) -> PutMessage:
    """Return the copy to append to the half queue."""
    properties = dict(record.properties)
    if check_times:
        properties[Property.TRANSACTION_CHECK_TIMES] = str(check_times)
    properties[Property.TRAN_PREPARED_QUEUE_OFFSET] = str(origin_of(record))
    return _message(record, TRANS_HALF_TOPIC, 0, record.sys_flag, properties)


def committed_message(record: Record) -> PutMessage:
    """Return the message that consumers get.

    Errors: ValueError when the record does not say where it belongs.
    """
    topic, queue_id = destination_of(record)
    sys_flag = record.sys_flag & ~SysFlag.TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT
    message = _message(record, topic, queue_id, sys_flag, record.properties)
    message.prepared_transaction_offset = record.phy_offset
    return message


def discarded_message(record: Record) -> PutMessage:
    """Return the message for TRANS_CHECK_MAX_TIME_TOPIC."""
    return _message(record, TRANS_CHECK_MAX_TIME_TOPIC, 0, record.sys_flag, record.properties)


def destination_of(record: Record) -> tuple[str, int]:
    """Return the topic and queue that a half message is for. Errors: ValueError if it has none."""
    topic = record.properties.get(REAL_TOPIC, "")
    if not topic or topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
        raise ValueError(f"REAL_TOPIC is {topic!r}")
    queue_id = int(record.properties.get(REAL_QID, ""))
    if not 0 <= queue_id <= 0x7FFFFFFF:
        raise ValueError(f"REAL_QID is {queue_id}")
    return topic, queue_id


def op_message(queue_offset: int, is_copied: bool, store_host: bytes, wall_ms: int) -> PutMessage:
    """Return the op message that finishes one record of the half queue."""
    return PutMessage(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=0,
        flag=0,
        sys_flag=SysFlag.STOREHOST_V6 | SysFlag.BORNHOST_V6 if len(store_host) == 20 else 0,
        born_timestamp=wall_ms,
        born_host=store_host,
        store_host=store_host,
        body=str(queue_offset).encode(),
        properties=_OP_COPIED_PROPERTIES if is_copied else _OP_PROPERTIES,
        tags_code=_OP_TAGS_CODE,
    )


class FinishedOffsets(NamedTuple):
    """Queue offsets of the half queue that one op message finishes."""

    offsets: tuple[int, ...]
    is_copied: bool
    """True if a later copy of the half message stays open."""


def finished_offsets(record: Record) -> FinishedOffsets:
    """Read an op message; one that makes no sense finishes nothing, as in Java's broker."""
    properties = record.properties
    if properties.get(TAGS) != OP_TAG:
        return FinishedOffsets((), False)
    parts = record.body.decode("ascii", "replace").split(",")
    return FinishedOffsets(
        tuple(int(part) for part in parts if part.isascii() and part.isdecimal()),
        COPIED in properties,
    )


def check_request(record: Record, copy: HalfCopy) -> RemotingCommand:
    """Return request 39 for a producer: how did the transaction of this half message end?

    The offsets are those of `copy`; the body is the producer's message as it sent it.
    Errors: ValueError when the record does not say where it belongs.
    """
    topic, queue_id = destination_of(record)
    message = _message(record, topic, queue_id, record.sys_flag, record.properties)
    body = bytearray(
        record_size(
            len(record.body),
            len(topic.encode()),
            len(message.properties),
            bool(record.sys_flag & SysFlag.BORNHOST_V6),
            bool(record.sys_flag & SysFlag.STOREHOST_V6),
        )
    )
    crc = body_crc(record.body)
    offset, phy_offset = copy.queue_offset, copy.phy_offset
    pack_record(body, 0, message, offset, phy_offset, record.store_timestamp, crc)
    unique_id = record.properties.get(UNIQ_KEY, "")
    return RemotingCommand(
        RequestCode.CHECK_TRANSACTION_STATE,
        {
            "tranStateTableOffset": str(offset),
            "commitLogOffset": str(phy_offset),
            "msgId": unique_id,
            "transactionId": unique_id,
            "offsetMsgId": offset_message_id(record.store_host, phy_offset),
        },
        bytes(body),
        flag=ONEWAY_FLAG,
    )


def producer_group(record: Record) -> str:
    """Return the producer group of a half message; empty if it names none."""
    return record.properties.get(PGROUP, "")


def _message(
    record: Record, topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str]
) -> PutMessage:
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        flag=record.flag,
        sys_flag=sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        body=record.body,
        properties=encode_properties(properties),
        tags_code=tags_code(properties),
        keys=index_keys(properties),
        reconsume_times=record.reconsume_times,
    )


def _number(text: str | None, default: int) -> int:
    if text is None or not (text.isascii() and text.isdecimal()):
        return default
    return min(int(text[:18]), _MS_MAX // 1000)
