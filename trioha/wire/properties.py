"""Message properties: ``name \\x01 value \\x02 name \\x01 value`` (MessageDecoder, MessageConst).

Reading follows string2messageProperties of 4.9.8: a pair with an empty name or an empty value is
dropped, a trailing separator is harmless, a value may contain further \\x01. Writing leaves no
separator behind the last pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
PROPERTIES_BYTES_MAX: Final = 32767
"""Short.MAX_VALUE: the record stores the length as a signed i16."""


class Property:
    """Names that brokers and clients attach a meaning to (MessageConst.java)."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QID: Final = "REAL_QID"
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    BUYER_ID: Final = "BUYER_ID"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    UNIQ_KEY: Final = "UNIQ_KEY"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    TRANSACTION_ID: Final = "__transactionId__"
    INSTANCE_ID: Final = "INSTANCE_ID"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    CLUSTER: Final = "CLUSTER"
    MSG_TYPE: Final = "MSG_TYPE"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    COPIED: Final = "COPIED"
    """Marks an op record that ends one copy of a half message, not the transaction."""


SET_BY_BROKERS: Final = frozenset(
    {
        Property.UNIQ_KEY,
        Property.WAIT,
        Property.CLUSTER,
        Property.MSG_REGION,
        Property.TRACE_ON,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.TRAN_MSG,
    }
)
"""Properties that a message does not take along when it is sent once more.

Brokers and producers put them there for their own use, or decide them anew.
"""


KEYS: Final = Property.KEYS
TAGS: Final = Property.TAGS
WAIT: Final = Property.WAIT
DELAY: Final = Property.DELAY
RETRY_TOPIC: Final = Property.RETRY_TOPIC
REAL_TOPIC: Final = Property.REAL_TOPIC
REAL_QID: Final = Property.REAL_QID
TRAN_MSG: Final = Property.TRAN_MSG
PGROUP: Final = Property.PGROUP
MIN_OFFSET: Final = Property.MIN_OFFSET
MAX_OFFSET: Final = Property.MAX_OFFSET
ORIGIN_MESSAGE_ID: Final = Property.ORIGIN_MESSAGE_ID
UNIQ_KEY: Final = Property.UNIQ_KEY
CLUSTER: Final = Property.CLUSTER
MSG_REGION: Final = Property.MSG_REGION
TRACE_ON: Final = Property.TRACE_ON
CONSUME_START_TIME: Final = Property.CONSUME_START_TIME
RECONSUME_TIME: Final = Property.RECONSUME_TIME
MAX_RECONSUME_TIMES: Final = Property.MAX_RECONSUME_TIMES
REPLY_TO_CLIENT: Final = Property.REPLY_TO_CLIENT


def decode_properties(data: str | bytes | bytearray | memoryview) -> dict[str, str]:
    """The pairs of a property string. Bytes that are not UTF-8 become U+FFFD, as in Java."""
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    properties: dict[str, str] = {}
    if text:
        for pair in text.split("\x02"):
            name, _, value = pair.partition("\x01")
            if name and value:
                properties[name] = value
    return properties


_SHORT_VALUE_BYTES: Final = 8


def property_mark(name: str) -> bytes:
    """The bytes before a value of this name, for `raw_property`."""
    return f"\x02{name}\x01".encode("utf-8", "replace")


def raw_property(data: bytes, mark: bytes, start: int = 0) -> bytes | None:
    """Return the undecoded value that `decode_properties` gives a name; None without one. HOT.

    The property string goes from `start` to the end of `data`. Bytes that are not UTF-8 swallow no
    separator, so a search finds what decoding would.
    """
    at = data.rfind(mark, start)
    while at >= 0:
        begin = at + len(mark)
        end = _value_end(data, begin)
        if end > begin:
            return data[begin:end]
        at = data.rfind(mark, start, at)
    if data.startswith(mark[1:], start):  # the first pair has no separator before it
        begin = start + len(mark) - 1
        end = _value_end(data, begin)
        if end > begin:
            return data[begin:end]
    return None


def _value_end(data: bytes, begin: int) -> int:
    """Return where the value ends that begins there: most are so short that a look is quicker."""
    limit = len(data)
    looked_until = min(limit, begin + _SHORT_VALUE_BYTES)
    end = begin
    while end < looked_until:
        if data[end] == 2:
            return end
        end += 1
    end = data.find(b"\x02", end)
    return limit if end < 0 else end


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string as a record stores it; empty names and values are left out."""
    return "\x02".join(
        [f"{name}\x01{value}" for name, value in properties.items() if name and value]
    ).encode("utf-8", "replace")
