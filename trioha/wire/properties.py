"""Message properties: ``name \\x01 value \\x02 name \\x01 value`` (MessageDecoder, MessageConst).

Reading follows string2messageProperties of 4.9.8: a pair with an empty name or an empty value is
dropped, a trailing separator is harmless, a value may contain further \\x01. Writing leaves no
separator behind the last pair.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
PROPERTIES_BYTES_MAX = 32767
"""Short.MAX_VALUE: the record stores the length as a signed i16."""


class Property:
    """Names that brokers and clients attach a meaning to (MessageConst.java)."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QID = "REAL_QID"
    TRAN_MSG = "TRAN_MSG"
    PGROUP = "PGROUP"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    BUYER_ID = "BUYER_ID"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    TRANSFER_FLAG = "TRANSFER_FLAG"
    CORRECTION_FLAG = "CORRECTION_FLAG"
    MQ2_FLAG = "MQ2_FLAG"
    RECONSUME_TIME = "RECONSUME_TIME"
    MSG_REGION = "MSG_REGION"
    TRACE_ON = "TRACE_ON"
    UNIQ_KEY = "UNIQ_KEY"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME = "CONSUME_START_TIME"
    TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    SHARDING_KEY = "__SHARDINGKEY"
    TRANSACTION_ID = "__transactionId__"
    INSTANCE_ID = "INSTANCE_ID"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    ARRIVE_TIME = "ARRIVE_TIME"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    CLUSTER = "CLUSTER"
    MSG_TYPE = "MSG_TYPE"


KEYS = Property.KEYS
TAGS = Property.TAGS
WAIT = Property.WAIT
DELAY = Property.DELAY
RETRY_TOPIC = Property.RETRY_TOPIC
REAL_TOPIC = Property.REAL_TOPIC
REAL_QID = Property.REAL_QID
TRAN_MSG = Property.TRAN_MSG
PGROUP = Property.PGROUP
MIN_OFFSET = Property.MIN_OFFSET
MAX_OFFSET = Property.MAX_OFFSET
ORIGIN_MESSAGE_ID = Property.ORIGIN_MESSAGE_ID
UNIQ_KEY = Property.UNIQ_KEY
CLUSTER = Property.CLUSTER
MSG_REGION = Property.MSG_REGION
TRACE_ON = Property.TRACE_ON
CONSUME_START_TIME = Property.CONSUME_START_TIME
RECONSUME_TIME = Property.RECONSUME_TIME
MAX_RECONSUME_TIMES = Property.MAX_RECONSUME_TIMES
REPLY_TO_CLIENT = Property.REPLY_TO_CLIENT


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


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string as a record stores it; empty names and values are left out."""
    return "\x02".join(
        [f"{name}\x01{value}" for name, value in properties.items() if name and value]
    ).encode("utf-8", "replace")
