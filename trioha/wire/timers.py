"""Timer messages of RocketMQ 5, as records and clients hold them (HookUtils, TimerMessageStore and
RecallMessageHandle of 5.3).

A client asks for a delay with one of three properties; the first of them that is there counts:
TIMER_DELAY_SEC, TIMER_DELAY_MS, and TIMER_DELIVER_MS, a time on the wall clock. The broker stores
the message in `rmq_sys_wheel_timer`, queue 0, and adds REAL_TOPIC, REAL_QID and TIMER_OUT_MS: the
*slot*, the largest multiple of timerPrecisionMs that is before the delivery time. RocketMQ delivers
a slot when the next one begins, so up to one precision late. Here the delivery time itself stands
in TIMER_DELIVER_MS of the stored record, and counts wherever it lies within the slot.

A *cancellation* is a record of the same slot with TIMER_DEL_UNIQKEY, the topic and unique id of the
message that is not to be delivered.

An entry of the queue carries the delivery time in milliseconds instead of a tags code. That of a
cancellation carries its slot, so that it comes before every message of the slot, and `CANCEL_BIT`.
Java's broker writes the hash of the tags there, below `CODE_MIN`: then the record tells.
"""

from __future__ import annotations

import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Final

import attrs

from trioha.wire.properties import Property

SLOT_MS: Final = 1_000
"""The longest slot: timerPrecisionMs is 100, 200, 500 or 1000."""
CANCEL_BIT: Final = 1 << 62
CODE_MIN: Final = 1 << 32
"""Smaller codes of entries, and negative ones, are hashes of tags: as times they are of 1970."""
TIME_MAX_MS: Final = 1 << 46
"""The year 4199. Later times come from nobody's clock."""
HANDLE_CHARS_MAX: Final = 2_048

WANTED: Final = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
"""Properties by which a client asks for a delay, the strongest first."""

_is_long = re.compile(r"[+-]?[0-9]{1,19}").fullmatch


def is_timer(properties: Mapping[str, str]) -> bool:
    """Return whether a client asks for a delay. TIMER_OUT_MS tells that it has been waited for."""
    seconds, milliseconds, time = WANTED
    return (
        seconds in properties or milliseconds in properties or time in properties
    ) and Property.TIMER_OUT_MS not in properties


def parse_long(text: str) -> int | None:
    """Read a number as Java's Long.parseLong does; None for anything else."""
    return int(text) if _is_long(text) else None


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """Return TIMER_OUT_MS of a delivery time."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def timer_code(properties: Mapping[str, str]) -> int:
    """Return what the queue entry of a record carries; 0 if the record is no timer message."""
    slot_ms = parse_long(properties.get(Property.TIMER_OUT_MS, ""))
    if slot_ms is None or not CODE_MIN <= slot_ms < TIME_MAX_MS:
        return 0
    if Property.TIMER_DEL_UNIQKEY in properties:
        return slot_ms | CANCEL_BIT
    deliver_ms = parse_long(properties.get(Property.TIMER_DELIVER_MS, ""))
    if deliver_ms is not None and slot_ms < deliver_ms <= slot_ms + SLOT_MS:
        return deliver_ms
    return slot_ms + SLOT_MS


def delete_key(topic: str, unique_id: str) -> str:
    """Return TIMER_DEL_UNIQKEY of a message."""
    return f"{topic}+{unique_id}"


_CHECKPOINT: Final = struct.Struct(">7q")


@attrs.frozen
class TimerCheckpoint:
    """`config/timercheck`, as RocketMQ 5 writes it when it stops (TimerCheckpoint.java)."""

    read_time_ms: int
    """Slots before it are delivered, as far as their records are before `queue_offset`."""
    queue_offset: int

    def encode(self) -> bytes:
        """Return the contents of the file. RocketMQ finds no log of its own, and reads the queue
        from `queue_offset` on."""
        offset = self.queue_offset
        return _CHECKPOINT.pack(self.read_time_ms, 0, offset, offset, 0, 0, 0)

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint | None:
        """Read the contents of the file; None if there is nothing sensible in it."""
        if len(data) < _CHECKPOINT.size:
            return None
        read_time_ms, _, offset, masters_offset, *_ = _CHECKPOINT.unpack_from(data)
        if not CODE_MIN <= read_time_ms < TIME_MAX_MS or min(offset, masters_offset) < 0:
            return None
        return cls(read_time_ms, min(offset, masters_offset))


@attrs.frozen
class RecallHandle:
    """The name of a pending message that its producer got with the answer to the send."""

    topic: str
    broker_name: str
    timestamp_ms: int
    """One millisecond behind the beginning of its slot."""
    message_id: str

    def encode(self) -> str:
        """Return the handle as clients hold it."""
        parts = ("v1", self.topic, self.broker_name, str(self.timestamp_ms), self.message_id)
        return urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Read a handle. Errors: ValueError when it is none."""
        try:
            if not 0 < len(text) <= HANDLE_CHARS_MAX:
                raise ValueError
            padded = text.encode() + b"=" * (-len(text) % 4)
            raw = urlsafe_b64decode(padded).decode()
            version, topic, broker_name, timestamp, message_id = raw.split(" ")[:5]
        except (ValueError, Base64Error):
            raise ValueError("recall handle is invalid") from None
        timestamp_ms = parse_long(timestamp)
        if version != "v1" or timestamp_ms is None or not message_id:
            raise ValueError("recall handle is invalid")
        return cls(topic, broker_name, timestamp_ms, message_id)
