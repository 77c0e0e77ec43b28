"""The values users of the client meet: what they send, what they get, where it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import attrs

from trioha.wire.bodies import MessageQueue
from trioha.wire.heartbeat import MessageModel
from trioha.wire.names import is_retry_topic
from trioha.wire.properties import Property
from trioha.wire.record import Record

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
    """Keys by which the broker indexes the message. No blanks inside a key."""
    delay_level: int = 0
    """1..18 deliver later (1s 5s 10s 30s 1m … 2h), 0 at once."""
    delay_s: float = 0
    """Deliver so many seconds later, to the millisecond; at most `timerMaxDelaySec` of the broker.
    Brokers before RocketMQ 5 deliver at once."""
    deliver_at_ms: int = 0
    """Deliver at this time of the broker's wall clock, in milliseconds; 0 at once."""
    wait_store_ok: bool = True
    """False: the broker answers without waiting for its disk or its slave."""
    flag: int = 0
    """The application's own bits; carried untouched."""
    properties: Mapping[str, str] = attrs.field(factory=dict)
    """User properties, and UNIQ_KEY if the id is to be chosen by the caller."""
    sys_flag: int = 0
    """Bits of MessageSysFlag: what the body is, where it comes compressed."""


class SendStatus(Enum):
    """Status of a message that is stored on the master; the values differ in what else is known."""

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
    recall_handle: str = ""
    """Handle with which `Producer.recall` takes a delayed message back; empty where it cannot."""


@attrs.frozen
class ReceivedMessage:
    """A message as it came from a queue: a view of its record.

    What has to be parsed is parsed when asked for; most consumers look at the body alone.
    """

    record: Record = attrs.field(repr=False)
    queue: MessageQueue
    """The queue it was pulled from."""
    body: bytes
    """Inflated if the sender compressed it by zlib. By another method, or damaged: as stored, and
    `is_compressed` says so."""
    is_compressed: bool = False

    @property
    def topic(self) -> str:
        """The original topic, also when the message comes back through the retry topic."""
        topic = self.record.topic
        if is_retry_topic(topic):
            return self.properties.get(Property.RETRY_TOPIC) or topic
        return topic

    @property
    def properties(self) -> Mapping[str, str]:
        return self.record.properties

    @property
    def tags(self) -> str:
        return self.properties.get(Property.TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.record.keys)

    @property
    def msg_id(self) -> str:
        """UNIQ_KEY, or the broker's id when the sender gave none."""
        return self.properties.get(Property.UNIQ_KEY) or self.record.message_id

    @property
    def offset_msg_id(self) -> str:
        """The broker's id."""
        return self.record.message_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def phy_offset(self) -> int:
        return self.record.phy_offset

    @property
    def store_size(self) -> int:
        return self.record.size

    @property
    def born_timestamp(self) -> int:
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp

    @property
    def reconsume_times(self) -> int:
        """Number of times that the message was handed back before."""
        return self.record.reconsume_times

    @property
    def flag(self) -> int:
        return self.record.flag


class ConsumeFrom(Enum):
    """Position at which a group without progress begins."""

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
    """Broker id that the next pull of this queue should go to."""
