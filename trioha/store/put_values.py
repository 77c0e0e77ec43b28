"""Messages for a store and results of puts: plain classes, made tens of thousands of times a
second. The rest of trioha imports them from `trioha.store.interface`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from trioha.wire.remoting_command import Buffer


class PutMessage:
    """One message on its way into the log: all of a record that the store does not know."""

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "keys",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        body: Buffer,
        properties: bytes,
        tags_code: int = 0,
        keys: Sequence[bytes] = (),
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        """The client's milliseconds."""
        self.born_host = born_host
        """4 or 16 address bytes, then the port as i32."""
        self.store_host = store_host
        self.body = body
        self.properties = properties
        """Encoded as stored: ``name\\x01value\\x02name\\x01value``, at most 32767 bytes."""
        self.tags_code = tags_code
        """Tags code of the consume queue entry (Java's hash of TAGS, or a delivery time)."""
        self.keys = keys
        """Keys of the message for the index file: UNIQ_KEY first, then each of KEYS."""
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset


BatchEntry = tuple[int, Buffer, bytes, int, Sequence[bytes]]
"""Fields that the messages of a batch do not share: flag, body, properties, tags_code, keys."""


class PutBatch:
    """Messages that go next to each other into one queue. None of them is transactional."""

    __slots__ = (
        "born_host",
        "born_timestamp",
        "entries",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        entries: list[BatchEntry],
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.entries = entries
        """Messages of the batch, at least one."""


class PutStatus(IntEnum):
    PUT_OK = 0
    MESSAGE_ILLEGAL = 1
    """Topic, properties, body or record over its limit, or topic or queue id illegal."""
    NOT_WRITABLE = 2
    """The disk is full or over its ratio, or the store is shutting down."""


class PutResult:
    """Result of a put: the place of a message, or of a whole batch."""

    __slots__ = (
        "phy_offset",
        "phy_offsets",
        "queue_offset",
        "reason",
        "size",
        "status",
        "store_timestamp",
    )

    def __init__(
        self,
        status: PutStatus,
        phy_offset: int = 0,
        size: int = 0,
        queue_offset: int = 0,
        store_timestamp: int = 0,
        reason: str = "",
        phy_offsets: Sequence[int] = (),
    ) -> None:
        self.status = status
        self.phy_offset = phy_offset
        """Offset of the first record in the log."""
        self.size = size
        """Bytes of all records."""
        self.queue_offset = queue_offset
        self.store_timestamp = store_timestamp
        self.reason = reason
        """Human-readable reason when the status is not PUT_OK."""
        self.phy_offsets = phy_offsets
        """Offset of each record of a batch in the log; empty for a single message."""

    @property
    def end_offset(self) -> int:
        """Offset up to which the log must be flushed or transferred to make this message safe."""
        return self.phy_offset + self.size

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.phy_offsets) or 1
