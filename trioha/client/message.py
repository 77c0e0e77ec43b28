"""The values users of the client meet: what they send, what they get, where it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import attrs

from trioha.wire.bodies import MessageQueue
from trioha.wire.heartbeat import MessageModel

__all__ = [
    "ConsumeFrom",
    "Message",
    "MessageModel",
    "MessageQueue",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
]


def _keys(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@attrs.frozen
class Message:
    """A message to send."""

    topic: str
    body: bytes
    tags: str = ""
    """One tag as a rule; consumers select by it."""
    keys: tuple[str, ...] = attrs.field(default=(), converter=_keys)
    """What the broker indexes it by. No blanks inside a key."""
    delay_level: int = 0
    """1..18 deliver later (1s 5s 10s 30s 1m … 2h), 0 at once."""
    wait_store_ok: bool = True
    """False: the broker answers without waiting for its disk or its slave."""
    flag: int = 0
    """The application's own bits; carried untouched."""
    properties: Mapping[str, str] = attrs.field(factory=dict)
    """User properties, and UNIQ_KEY if the id is to be chosen by the caller."""


class SendStatus(Enum):
    """All of these are stored on the master; they differ in what else is known to have happened."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@attrs.frozen
class SendResult:
    """A stored message."""

    status: SendStatus
    msg_id: str
    """The client's id (UNIQ_KEY); comma-joined for a batch."""
    offset_msg_id: str
    """The broker's id: its address and the offset in its log."""
    queue: MessageQueue
    queue_offset: int


@attrs.frozen
class ReceivedMessage:
    """A message as it came from a queue."""

    topic: str
    """The original topic, also when the message comes back through the retry topic."""
    body: bytes
    """Inflated if the sender compressed it by zlib. By another method, or damaged: as stored, and
    `sys_flag` keeps its COMPRESSED bit."""
    tags: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    queue: MessageQueue
    """The queue it was pulled from."""
    queue_offset: int
    msg_id: str
    """UNIQ_KEY, or the broker's id when the sender gave none."""
    offset_msg_id: str
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    """How often it was handed back before."""
    phy_offset: int
    store_size: int
    flag: int = 0
    sys_flag: int = 0


class ConsumeFrom(Enum):
    """Where a group begins that has no progress yet."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class PullStatus(Enum):
    FOUND = 0
    NOT_FOUND = 19
    """The end of the queue: nothing came while the pull was parked."""
    NO_MATCHED_MESSAGE = 20
    """Messages were scanned, none matched; go on at `next_offset`."""
    OFFSET_MOVED = 21
    """The offset is outside the queue; `next_offset` is the nearest one inside."""


@attrs.frozen
class PullResult:
    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0
    """Where the broker wants the next pull of this queue to go."""
