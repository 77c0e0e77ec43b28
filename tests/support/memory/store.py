"""A MessageStore in a list: real records and real offsets, no files.

For tests of the broker's processors. Everything put is readable at once, unless `dispatching` is
off: then `dispatch` makes it readable. Failures are set by hand (`writable`, `full_after`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from trioha.store.interface import (
    DiskBlock,
    DispatchListener,
    GetResult,
    GetStatus,
    MessageFilter,
    PutBatch,
    PutMessage,
    PutResult,
    PutStatus,
    RecordFilter,
    StoreStatistics,
)
from trioha.wire.record import properties_of
from trioha.wire.remoting_command import Buffer

_MAGIC = 0xDAA320A7 - (1 << 32)
_PULL_SCAN_MAX = 800  # entries one pull looks at, as the real store


def record_bytes(
    message: PutMessage, queue_offset: int, phy_offset: int, store_timestamp: int
) -> bytes:
    """One commitlog record, written the slow and obvious way."""
    body = bytes(message.body)
    topic = message.topic.encode()
    parts = [
        struct.pack(
            ">iIiiqqiq",
            _MAGIC,
            zlib.crc32(body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            queue_offset,
            phy_offset,
            message.sys_flag,
            message.born_timestamp,
        ),
        message.born_host,
        struct.pack(">q", store_timestamp),
        message.store_host,
        struct.pack(
            ">iqi", message.reconsume_times, message.prepared_transaction_offset, len(body)
        ),
        body,
        struct.pack(">b", len(topic)),
        topic,
        struct.pack(">h", len(message.properties)),
        message.properties,
    ]
    record = b"".join(parts)
    return struct.pack(">i", len(record) + 4) + record


class MemoryStore:
    """See the module. `entries[(topic, queue_id)]` lists (phy_offset, size, tags_code)."""

    def __init__(self, *, base: int = 0) -> None:
        self._listener: DispatchListener | None = None
        self.dispatching = True
        self.writable = True
        self.unwritable_reason = "disk full"
        self.full_after: int | None = None
        """Refuse every put after this many more."""
        self.messages: list[tuple[PutMessage, PutResult]] = []
        self.log = bytearray()
        self.base = base
        self.records: dict[int, bytes] = {}
        self.entries: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.queue_minimum: dict[tuple[str, int], int] = {}
        self.in_memory_from = 0
        self.on_disk: dict[tuple[str, int], int] = {}
        """Looks at a queue until it is in memory."""
        self._next_index: dict[tuple[str, int], int] = {}
        self._undispatched: list[tuple[PutMessage, PutResult]] = []
        self._flushed = base
        self._gets = 0  # messages given out
        self.deletions_asked = 0

    # Writing.

    def tell_dispatches(self, listener: DispatchListener | None) -> None:
        self._listener = listener

    def put_message(self, message: PutMessage, wall_ms: int) -> PutResult:
        return self._put([message], wall_ms)

    def put_batch(self, batch: PutBatch, wall_ms: int) -> PutResult:
        messages = [
            PutMessage(
                batch.topic,
                batch.queue_id,
                flag,
                batch.sys_flag,
                batch.born_timestamp,
                batch.born_host,
                batch.store_host,
                body,
                properties,
                tags_code,
                keys,
                batch.reconsume_times,
            )
            for flag, body, properties, tags_code, keys in batch.entries
        ]
        result = self._put(messages, wall_ms)
        stored = [each for _, each in self.messages[-len(messages) :]]
        if result.status is PutStatus.PUT_OK:
            result = PutResult(
                PutStatus.PUT_OK,
                stored[0].phy_offset,
                sum(each.size for each in stored),
                stored[0].queue_offset,
                wall_ms,
                "",
                [each.phy_offset for each in stored],
            )
        return result

    def _put(self, messages: Sequence[PutMessage], wall_ms: int) -> PutResult:
        if not self.writable or self.full_after == 0:
            return PutResult(PutStatus.NOT_WRITABLE, reason=self.unwritable_reason)
        for message in messages:
            if len(message.topic.encode()) > 127 or len(message.properties) > 32767:
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="topic or properties too long")
        if self.full_after is not None:
            self.full_after -= 1
        results = [self._append(message, wall_ms) for message in messages]
        return results[0]

    def _append(self, message: PutMessage, wall_ms: int) -> PutResult:
        queue = (message.topic, message.queue_id)
        index = self._next_index.get(queue, 0)
        self._next_index[queue] = index + 1
        phy_offset = self.max_phy_offset
        record = record_bytes(message, index, phy_offset, wall_ms)
        self.log += record
        self.records[phy_offset] = record
        result = PutResult(PutStatus.PUT_OK, phy_offset, len(record), index, wall_ms)
        self.messages.append((message, result))
        self._undispatched.append((message, result))
        if self.dispatching:
            self.dispatch(1 << 62)
        return result

    def dispatch(self, bytes_max: int) -> bool:
        while self._undispatched and bytes_max > 0:
            message, result = self._undispatched.pop(0)
            bytes_max -= result.size
            entries = self.entries.setdefault((message.topic, message.queue_id), [])
            entries.append((result.phy_offset, result.size, message.tags_code))
            if self._listener is not None:
                self._listener(message.topic, message.queue_id, len(entries), (message.tags_code,))
        return bool(self._undispatched)

    # Replication.

    @property
    def min_phy_offset(self) -> int:
        return self.base

    @property
    def max_phy_offset(self) -> int:
        return self.base + len(self.log)

    def read_log(self, phy_offset: int, size_max: int) -> memoryview:
        start = phy_offset - self.base
        return memoryview(bytes(self.log[start : start + size_max]))

    def append_log(self, phy_offset: int, data: Buffer) -> None:
        assert phy_offset == self.max_phy_offset
        self.log += data

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
        minimum = self.min_offset_in_queue(topic, queue_id)
        maximum = self.max_offset_in_queue(topic, queue_id)
        if maximum == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        if offset < minimum:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
        if offset == maximum:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, minimum, maximum)
        if offset > maximum:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, maximum, minimum, maximum)
        looks = self.on_disk.get((topic, queue_id), 0)
        if in_memory_only and looks:
            self.on_disk[topic, queue_id] = looks - 1
            block = DiskBlock(Path("log"), queue_id << 20, 4096, 4096)
            return GetResult(GetStatus.NOT_IN_MEMORY, offset, minimum, maximum, on_disk=[block])
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, minimum, maximum)
        entries = self.entries[topic, queue_id]
        scan_end = min(maximum, offset + _PULL_SCAN_MAX)
        while result.next_begin_offset < scan_end and result.message_count < count_max:
            phy_offset, size, tags_code = entries[result.next_begin_offset]
            result.next_begin_offset += 1
            if isinstance(message_filter, RecordFilter):
                if not message_filter.wants(properties_of(self.records[phy_offset], 0, size)):
                    continue
            elif message_filter is not None and not message_filter(tags_code):
                continue
            result.status = GetStatus.FOUND
            result.buffers.append(memoryview(self.records[phy_offset]))
            result.message_count += 1
            result.size += size
        self._gets += result.message_count
        return result

    def look_message(self, phy_offset: int) -> memoryview | None:
        record = self.records.get(phy_offset)
        return None if record is None else memoryview(record)

    def blocks_on_disk(self, places: list[tuple[int, int]]) -> list[DiskBlock]:
        return [DiskBlock(Path("log"), begin, size, size) for begin, size in places]

    def query_message(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[list[memoryview], int, int]:
        hits = [
            (message, result)
            for message, result in reversed(self.messages)
            if message.topic == topic
            and key.encode() in message.keys
            and begin_ms <= result.store_timestamp <= end_ms
        ]
        views = [memoryview(self.records[result.phy_offset]) for _, result in hits[:count_max]]
        if not self.messages:
            return views, 0, 0
        newest = self.messages[-1][1]
        return views, newest.store_timestamp, newest.phy_offset

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return self.queue_minimum.get((topic, queue_id), 0)

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return len(self.entries.get((topic, queue_id), ()))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        maximum = self.max_offset_in_queue(topic, queue_id)
        for offset in range(self.min_offset_in_queue(topic, queue_id), maximum):
            if self.store_time(topic, queue_id, offset) >= timestamp_ms:
                return offset
        return max(0, maximum - 1)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        entry = self.consume_queue_entry(topic, queue_id, offset)
        if entry is None:
            return -1
        record = self.records.get(entry[0])
        return -1 if record is None else int(struct.unpack_from(">q", record, 56)[0])

    def consume_queue_entry(
        self, topic: str, queue_id: int, offset: int
    ) -> tuple[int, int, int] | None:
        entries = self.entries.get((topic, queue_id), [])
        if not self.min_offset_in_queue(topic, queue_id) <= offset < len(entries):
            return None
        return entries[offset]

    readable_offset = 1 << 62

    def appended_record(self, phy_offset: int) -> memoryview | None:
        return self.look_message(phy_offset)

    def appended_max_offset(self, topic: str, queue_id: int) -> int:
        return self.max_offset_in_queue(topic, queue_id)

    def appended_entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        return self.consume_queue_entry(topic, queue_id, offset)

    def queue_entries(self, topic: str, queue_id: int, offset: int, count_max: int) -> memoryview:
        low = self.min_offset_in_queue(topic, queue_id)
        high = min(self.max_offset_in_queue(topic, queue_id), offset + count_max)
        if offset < low:
            return memoryview(b"")
        entries = self.entries.get((topic, queue_id), [])[offset:high]
        return memoryview(b"".join(struct.pack(">qiq", *entry) for entry in entries))

    def queues(self) -> list[tuple[str, int]]:
        return list(self.entries)

    def delete_topic(self, topic: str) -> None:
        for queue in [queue for queue in self.entries if queue[0] == topic]:
            del self.entries[queue]
            self._next_index.pop(queue, None)

    def is_in_memory_window(self, phy_offset: int) -> bool:
        return phy_offset >= self.in_memory_from

    # Keeping.

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    def flush(self) -> int:
        self._flushed = self.max_phy_offset
        return self._flushed

    def flush_queues(self) -> None:
        pass

    def check_disk(self, wall_ms: int) -> list[str]:
        return []

    def delete_expired_soon(self) -> None:
        self.deletions_asked += 1

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            min_phy_offset=self.min_phy_offset,
            max_phy_offset=self.max_phy_offset,
            flushed_offset=self._flushed,
            dispatched_offset=self.max_phy_offset,
            disk_ratio=0.1,
            writable=self.writable,
            put_total=len(self.messages),
            put_bytes=len(self.log),
            get_total=self._gets,
            get_bytes=0,
            earliest_store_timestamp=self.messages[0][1].store_timestamp if self.messages else -1,
            indexed_offset=self.max_phy_offset,
        )

    def close(self) -> None:
        self.flush()
