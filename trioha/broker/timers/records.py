"""The records of timer messages: pending, rolled, delivered, cancelling (HookUtils 5.3).

A delivered message is as RocketMQ 5.3 makes it: it keeps the properties with which it waited, and
has the times at which it was stored and delivered. TIMER_OUT_MS stays, so a consumer that sends the
message on does not delay it once more. Our own TIMER_DELIVER_MS is removed (`trioha.wire.timers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trioha.broker.message_fields import copied_message
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.store.interface import PutMessage
from trioha.wire.codes import ResponseCode, SysFlag
from trioha.wire.names import TIMER_TOPIC, TRANS_HALF_TOPIC
from trioha.wire.properties import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    Property,
    encode_properties,
)
from trioha.wire.record import Record
from trioha.wire.refusals import system_error
from trioha.wire.timers import (
    WANTED,
    RecallHandle,
    delete_key,
    parse_long,
    slot_of,
    timer_code,
)

ADDED_BYTES: Final = 128
"""Room for the properties that delivery and rolling add."""
RECALL_TAG: Final = "_RECALL_TAG_"
_RECALL_BODY: Final = b"0"


def divert_timer(
    message: PutMessage, properties: dict[str, str], config: BrokerConfig, wall_ms: int
) -> bool:
    """Turn a message that asks for a delay into a pending one; False: deliver it at once.

    Errors: CommandError when it cannot be delayed so.
    """
    if not config.timer_wheel_enable:
        raise system_error("accurate timer message is not enabled, timerWheelEnable is false")
    deliver_ms = _deliver_ms(properties, wall_ms)
    cancelled = properties.get(Property.TIMER_DEL_UNIQKEY)
    if deliver_ms <= wall_ms:
        if cancelled is not None:
            raise _illegal("the delivery time of the message that it cancels is past")
        return False
    max_ms = config.timer_max_delay_sec * 1000
    if deliver_ms - wall_ms > max_ms:
        raise _illegal(
            f"the delay time should not be bigger than the max delay {max_ms}ms "
            f"(timerMaxDelaySec), it is {deliver_ms - wall_ms}ms"
        )
    if cancelled is not None and not cancelled.startswith(delete_key(message.topic, "")):
        # Older clients name the id alone; and no client may cancel messages of another topic.
        properties[Property.TIMER_DEL_UNIQKEY] = delete_key(message.topic, cancelled)
    properties[Property.TIMER_DELIVER_MS] = str(deliver_ms)
    properties[Property.TIMER_OUT_MS] = str(slot_of(deliver_ms, config.timer_precision_ms))
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    properties.pop(Property.TIMER_ROLL_TIMES, None)
    message.topic, message.queue_id = TIMER_TOPIC, 0
    message.tags_code = timer_code(properties)
    message.properties = encode_properties(properties)
    return True


def _deliver_ms(properties: Mapping[str, str], wall_ms: int) -> int:
    name = next(name for name in WANTED if name in properties)
    value = parse_long(properties[name])
    if value is None:
        raise _illegal(f"{name} is not a number: {properties[name]!r:.40}")
    if name == Property.TIMER_DELAY_SEC:
        return wall_ms + value * 1000
    return wall_ms + value if name == Property.TIMER_DELAY_MS else value


def _illegal(what: str) -> CommandError:
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {what}")


def handle_of(properties: Mapping[str, str], broker_name: str) -> str:
    """Return the recall handle of a pending message; empty if it cannot be recalled."""
    topic, unique_id = properties[REAL_TOPIC], properties.get(UNIQ_KEY, "")
    if not unique_id or " " in unique_id or topic.startswith("%RETRY%"):
        return ""
    slot_ms = int(properties[Property.TIMER_OUT_MS])
    return RecallHandle(topic, broker_name, slot_ms + 1, unique_id).encode()


def recall_message(
    handle: RecallHandle, group: str, born_host: bytes, store_host: bytes, wall_ms: int
) -> tuple[PutMessage, dict[str, str]]:
    """Return the message, not yet pending, that cancels another one."""
    properties = {
        TAGS: RECALL_TAG,
        Property.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.message_id),
        UNIQ_KEY: handle.message_id,
        Property.TIMER_DELIVER_MS: str(handle.timestamp_ms),
    }
    if group:
        properties[Property.PGROUP] = group
    sys_flag = SysFlag.STOREHOST_V6 if len(store_host) == 20 else 0
    if len(born_host) == 20:
        sys_flag |= SysFlag.BORNHOST_V6
    message = PutMessage(
        topic=handle.topic,
        queue_id=0,
        flag=0,
        sys_flag=int(sys_flag),
        born_timestamp=wall_ms,
        born_host=born_host,
        store_host=store_host,
        body=_RECALL_BODY,
        properties=b"",
    )
    return message, properties


def delivered_message(record: Record, wall_ms: int) -> PutMessage:
    """Return the message that consumers get.

    Errors: ValueError when the record does not say where it belongs.
    """
    properties = dict(record.properties)
    topic = properties.get(REAL_TOPIC, "")
    if not topic or topic in (TIMER_TOPIC, TRANS_HALF_TOPIC):
        raise ValueError(f"REAL_TOPIC is {topic!r}")
    queue_id = parse_long(properties.get(REAL_QID, ""))
    if queue_id is None or not 0 <= queue_id <= 0x7FFFFFFF:
        raise ValueError(f"REAL_QID is {queue_id}")
    if Property.TIMER_DELAY_SEC in properties or Property.TIMER_DELAY_MS in properties:
        properties.pop(Property.TIMER_DELIVER_MS, None)
    properties[Property.TIMER_ENQUEUE_MS] = str(record.store_timestamp)
    properties[Property.TIMER_DEQUEUE_MS] = str(wall_ms)
    return copied_message(record, topic, queue_id, properties)


def rolled_message(record: Record) -> PutMessage:
    """Return the copy of a pending record that goes to the end of the queue."""
    properties = dict(record.properties)
    times = parse_long(properties.get(Property.TIMER_ROLL_TIMES, "")) or 0
    properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
    return copied_message(record, TIMER_TOPIC, 0, properties, code=timer_code(properties))
