"""Interface of a store to the rest of trioha: values, results and the MessageStore protocol.

The one implementation is `trioha.store.message_store.FileMessageStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

import attrs

from trioha.store.put_values import BatchEntry, PutBatch, PutMessage, PutResult, PutStatus
from trioha.store.record_filter import PropertyFilter, RecordFilter
from trioha.wire.remoting_command import Buffer

__all__ = [
    "BatchEntry",
    "DiskBlock",
    "DispatchListener",
    "GetResult",
    "GetStatus",
    "MessageFilter",
    "MessageStore",
    "MissingBytes",
    "PropertyFilter",
    "PutBatch",
    "PutMessage",
    "PutResult",
    "PutStatus",
    "RecordFilter",
    "StoreStatistics",
    "TagFilter",
]


class GetStatus(Enum):
    """GetMessageStatus.java."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    NOT_IN_MEMORY = "NOT_IN_MEMORY"
    """Not in Java's enum. `on_disk` has to be read first, `size` bytes of it."""


class DiskBlock(NamedTuple):
    """Bytes of a file that are read from disk in one go."""

    path: Path
    begin: int
    size: int
    missing_bytes: int
    """Part of `size` that was not in memory."""


class GetResult:
    """Result of a pull."""

    __slots__ = (
        "buffers",
        "is_old",
        "max_offset",
        "message_count",
        "min_offset",
        "next_begin_offset",
        "on_disk",
        "size",
        "status",
        "suggest_pulling_from_slave",
    )

    def __init__(
        self,
        status: GetStatus,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        buffers: list[memoryview] | None = None,
        message_count: int = 0,
        size: int = 0,
        suggest_pulling_from_slave: bool = False,
        on_disk: Sequence[DiskBlock] = (),
        is_old: bool = False,
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.buffers = [] if buffers is None else buffers
        """Whole records, neighbours in the log merged into one view of the mapped segment."""
        self.message_count = message_count
        self.size = size
        self.suggest_pulling_from_slave = suggest_pulling_from_slave
        self.on_disk = on_disk
        """Blocks that have to be read before the same call finds messages."""
        self.is_old = is_old
        """True if the messages may have left memory, on this node or another. Only told where the
        caller asks for messages in memory."""


TagFilter = Callable[[int], bool]
"""tags_code of a consume queue entry -> does the subscription want it?"""


MessageFilter = TagFilter | RecordFilter

MissingBytes = Callable[[memoryview], int]
"""Returns the bytes of a mapping's view that are not in memory, in whole pages."""

DispatchListener = Callable[[str, int, int, Sequence[int]], None]
"""topic, queue_id, max_offset behind the last of them, tags codes: called when messages of a queue
became readable, one or several in a row. Must be quick and must not raise."""


@attrs.frozen
class StoreStatistics:
    min_phy_offset: int
    max_phy_offset: int
    flushed_offset: int
    dispatched_offset: int
    """Consume queues hold everything below this offset."""
    disk_ratio: float
    """Used share of the commitlog's file system, 0..1."""
    writable: bool
    put_total: int
    put_bytes: int
    get_total: int
    get_bytes: int
    earliest_store_timestamp: int
    """Store timestamp of the first record held, in milliseconds; -1 if there is none."""
    indexed_offset: int
    """The index holds the keys of every message below this offset."""


class MessageStore(Protocol):
    """A commitlog with its consume queues and index. One process, one thread (flush aside)."""

    # Writing (masters).
    def put_message(self, message: PutMessage, wall_ms: int) -> PutResult: ...
    def put_batch(self, batch: PutBatch, wall_ms: int) -> PutResult:
        """All of them in one file, consecutive in their queue, or none."""

    # Replication.
    @property
    def min_phy_offset(self) -> int: ...
    @property
    def max_phy_offset(self) -> int:
        """End of the log: where the next byte goes."""

    def read_log(self, phy_offset: int, size_max: int) -> memoryview:
        """Bytes from `phy_offset`, never beyond its segment or the end; empty at the end.

        Errors: OffsetOutOfRange below the first or beyond the last byte.
        """

    def append_log(self, phy_offset: int, data: Buffer) -> None:
        """Append raw bytes at the end (slaves); on an empty log any segment start will do.

        Errors: StoreError when `phy_offset` is not the end; DiskFull.
        """

    def dispatch(self, bytes_max: int) -> bool:
        """Read on in the log and bring consume queues and index up to it; True if more is left."""

    # Reading.
    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None,
        in_memory_only: bool = False,
    ) -> GetResult:
        """The records of a pull. With `in_memory_only` no disk is read: NOT_IN_MEMORY instead."""

    def look_message(self, phy_offset: int) -> memoryview | None:
        """The one record that a consume queue lists at this offset, or None.

        Clients name offsets. Bytes in a message's body can look like a record, with the topic of
        another message or a size that reaches beyond it; no queue lists them.
        """

    def blocks_on_disk(self, places: list[tuple[int, int]]) -> list[DiskBlock]:
        """Return what has to be read from disk for records, by their offsets and sizes."""

    def query_message(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[list[memoryview], int, int]:
        """Records by key, newest first; index's last update timestamp and phy offset."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int: ...
    def max_offset_in_queue(self, topic: str, queue_id: int) -> int: ...
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store timestamp of a queue's entry in ms, or -1."""

    def consume_queue_entry(
        self, topic: str, queue_id: int, offset: int
    ) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code) of one entry, or None."""

    def queue_entries(self, topic: str, queue_id: int, offset: int, count_max: int) -> memoryview:
        """Entries from `offset` on, 20 bytes each, back to back; possibly fewer than there are, and
        none outside of the queue."""

    # Reading what is in the log, whether or not readers may see it yet.
    @property
    def readable_offset(self) -> int:
        """Readers see records that end at most here, in bytes of the log."""

    def appended_record(self, phy_offset: int) -> memoryview | None: ...
    def appended_max_offset(self, topic: str, queue_id: int) -> int: ...
    def appended_entry(
        self, topic: str, queue_id: int, offset: int
    ) -> tuple[int, int, int] | None: ...

    def queues(self) -> list[tuple[str, int]]:
        """Every (topic, queue_id) that has a consume queue on disk."""

    def delete_topic(self, topic: str) -> None: ...
    def is_in_memory_window(self, phy_offset: int) -> bool:
        """Within accessMessageInMemoryMaxRatio of RAM behind the end of the log (the 40 % rule)."""

    # Keeping.
    @property
    def flushed_offset(self) -> int: ...
    def flush(self) -> int:
        """fsync what is dirty and return the offset now durable. Thread-safe; blocks.

        Errors: StoreError when fsync fails: the page cache may have lied, the node must stop.
        """

    def flush_queues(self) -> None:
        """Consume queues, index and checkpoint to disk. Thread-safe against the loop; blocks."""

    def check_disk(self, wall_ms: int) -> list[str]:
        """Measure the disk, delete expired segments, update `writable`; returns what went."""

    def delete_expired_soon(self) -> None:
        """At the next looks at the disk, delete expired segments at any hour until none is left."""

    def statistics(self) -> StoreStatistics: ...
    def close(self) -> None:
        """Flush everything, write the checkpoint, remove `abort` if dispatch caught up, unlock."""
