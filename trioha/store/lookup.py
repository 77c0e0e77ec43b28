"""Reads by queue: pulls, entries, offsets by time (DefaultMessageStore.getMessage)."""

from __future__ import annotations

import struct
from functools import lru_cache
from mmap import mmap
from typing import Final

from trioha.store.commitlog import CommitLog
from trioha.store.consume_queue import ENTRY, PADDING_SIZE, ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues
from trioha.store.interface import (
    DiskBlock,
    GetResult,
    GetStatus,
    MessageFilter,
    MissingBytes,
    RecordFilter,
    TagFilter,
)
from trioha.store.store_config import QUEUE_ENTRY_BYTES, StoreConfig
from trioha.wire.record import RecordError, dispatch_fields, peek, properties_begin, properties_of

_SCAN_BYTES_MIN: Final = 16000
"""Queue bytes one pull may look through, or more if it wants more messages: RocketMQ's figure."""
_FILTER_WORK_MAX: Final = 65_536
_PROPERTY_BYTES_SHIFT: Final = 4
"""A pull stops at the record at which its filter has done so many steps, 16 bytes of properties
being one. 800 records of 20 steps each come to a quarter of that."""
_BLOCK_BYTES: Final = 128 << 10
"""Bytes of one read from disk: what lies beside a record is often what its consumer wants next."""
_AHEAD_BLOCKS: Final = 8
"""Blocks that are read for a pull and for what its consumer asks for next. Each handing-over to the
thread that reads costs the event loop a moment, whatever the number of bytes."""
_BLOCK_ENTRIES: Final = _BLOCK_BYTES // QUEUE_ENTRY_BYTES
_SPAN_BYTES_MAX: Final = 4 << 20
"""A filter's records lie so near to each other that memory is asked about all of them at once."""
_APART_MAX: Final = 64
"""Records that are asked about one by one, 3 µs each, where a filter's lie further apart."""
_WINDOW_BYTES: Final = 1 << 20
_WINDOW_ENTRIES: Final = 4096
_SEEN_FOR_PULLS: Final = 64
"""Parts that were in memory count as being there for so many pulls: that saves two thirds of the
questions' time. A page that was taken away meanwhile costs its reader a pause, and no more."""
_WINDOWS_MAX: Final = 1024
UNBOUNDED: Final = 1 << 62
"""Value of `readable_offset` that lets readers see everything that is dispatched."""

_COPIED_MAX: Final = 2048
"""Bytes of a record that are copied for a filter at once; of a longer one, its properties alone."""
_NEIGHBOURS_MAX: Final = 64


@lru_cache(maxsize=_NEIGHBOURS_MAX)
def _entries(count: int) -> struct.Struct:
    """Return the layout of so many consecutive consume queue entries."""
    return struct.Struct(">" + "qiq" * count)


class Lookup:
    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        missing_bytes: MissingBytes | None,
    ) -> None:
        """Without `missing_bytes`, everything counts as in memory."""
        self.get_total = 0
        self.get_bytes = 0
        self.readable_offset = UNBOUNDED
        """End of the records that readers get: nobody has promised yet those that end beyond it."""
        self._missing_bytes = missing_bytes
        self._pull_number = 0
        self._seen_until: dict[int, int] = {}
        """Number of the pull until which a window of the log counts as in memory, by the window's
        number. Below 0: until then it counts as partly on disk, and its parts are looked up."""
        self._config = config
        self._log = log
        self._table = queues.table

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        message_filter: MessageFilter | None,
        in_memory_only: bool = False,
    ) -> GetResult:
        """The records of a pull; see the table in GetMessageStatus.java."""
        queue = self._table.get((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_index, queue.next_index
        if queue.max_phy_offset > self.readable_offset:
            high = self._readable_end(queue)
            if high < offset <= queue.next_index:
                # A master that starts again does not know yet what its slaves hold. The reader may
                # have been shown this offset before, and is not sent back.
                return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        scan_max = max(_SCAN_BYTES_MIN // QUEUE_ENTRY_BYTES, count_max)
        entries = queue.entries(offset, min(scan_max, high - offset))
        if entries is None:
            per_file = queue.entries_per_file
            following = (offset // per_file + 1) * per_file
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high)
        is_old = False
        if in_memory_only and self._missing_bytes is not None:
            self._pull_number += 1
            if offset < self._young_index(queue) and self._entries_on_disk(queue, entries, offset):
                entries = queue.entries(offset, min(_BLOCK_ENTRIES, high - offset)) or entries
                missing = self._missing_bytes(entries)
                block = queue.block(offset, len(entries), missing)
                return GetResult(
                    GetStatus.NOT_IN_MEMORY, offset, low, high, size=missing, on_disk=[block]
                )
            begin: int = ENTRY.unpack_from(entries)[0]
            is_old = begin < self._log.end - self._config.recent_bytes
        if message_filter is None:
            result = self._take_neighbours(queue, entries, offset, high, count_max, is_old)
            if result is not None:
                return result
        elif is_old and isinstance(message_filter, RecordFilter):
            # The filter reads each record: look at so many that are in memory.
            found, on_disk = self._entries_in_memory(entries)
            if on_disk:
                return self._not_in_memory(on_disk, entries, None, offset, low, high)
            entries = found
        return self._collect(queue, entries, offset, high, count_max, message_filter, is_old)

    def begin(self) -> None:
        """Note that what the queues hold now may be on disk only: this process did not write it."""
        for queue in self._table.values():
            queue.young_index = queue.mark_index = queue.next_index
            queue.mark_log_end = self._log.end

    def _entries_on_disk(self, queue: ConsumeQueue, entries: memoryview, offset: int) -> bool:
        """Return whether some of these entries, a queue's from `offset` on, are on disk only."""
        assert self._missing_bytes is not None
        end = offset + len(entries) // QUEUE_ENTRY_BYTES
        if (
            self._pull_number < queue.seen_until
            and queue.seen_begin <= offset < end <= queue.seen_end
        ):
            return False
        more = queue.entries(offset, min(_WINDOW_ENTRIES, queue.next_index - offset))
        if more is not None and not self._missing_bytes(more):
            queue.seen_begin = offset
            queue.seen_end = offset + len(more) // QUEUE_ENTRY_BYTES
            queue.seen_until = self._pull_number + _SEEN_FOR_PULLS
            return False
        return self._missing_bytes(entries) > 0

    def _young_index(self, queue: ConsumeQueue) -> int:
        """Return from where on a queue's entries were written not long before the log's end."""
        recent = self._config.recent_bytes
        grown = self._log.end - queue.mark_log_end
        if grown >= recent >> 1:
            queue.young_index = queue.mark_index if grown < recent else queue.next_index
            queue.mark_index = queue.next_index
            queue.mark_log_end = self._log.end
        return queue.young_index

    def _not_in_memory(
        self,
        runs: list[tuple[int, int]],
        entries: memoryview,
        tag_filter: TagFilter | None,
        offset: int,
        low: int,
        high: int,
    ) -> GetResult:
        """Ask for the blocks of `runs`, and for some of those with the records that come next."""
        blocks: list[DiskBlock] = []
        block_end = 0
        for begin, end in runs:
            block_end = self._add_blocks(blocks, begin, end, block_end)
        for phy_offset, size, tags_code in ENTRY.iter_unpack(entries):
            if len(blocks) >= _AHEAD_BLOCKS:
                break
            if (
                phy_offset + size > block_end
                and size != PADDING_SIZE
                and (tag_filter is None or tag_filter(tags_code))
            ):
                block_end = self._add_blocks(blocks, phy_offset, phy_offset + size, block_end)
        missing = sum(block.missing_bytes for block in blocks)
        return GetResult(GetStatus.NOT_IN_MEMORY, offset, low, high, size=missing, on_disk=blocks)

    def _add_blocks(self, blocks: list[DiskBlock], begin: int, end: int, block_end: int) -> int:
        """Add the blocks of a part of the log from `block_end` on; return where the last ends."""
        assert self._missing_bytes is not None
        segment = self._log.files.find(begin)
        if segment is None:
            return block_end
        base, limit = segment.from_offset, segment.size
        first = max(begin, block_end) - base
        for place in range(first - first % _BLOCK_BYTES, end - base, _BLOCK_BYTES):
            view = segment.random_view[place : place + _BLOCK_BYTES]
            missing = self._missing_bytes(view)
            blocks.append(DiskBlock(segment.path, place, len(view), missing))
            block_end = base + min(place + _BLOCK_BYTES, limit)
        return block_end

    def blocks_on_disk(self, places: list[tuple[int, int]]) -> list[DiskBlock]:
        """Return the blocks that have to be read for records, by their offsets and sizes."""
        blocks: list[DiskBlock] = []
        recent = self._log.end - self._config.recent_bytes
        block_end = 0
        for begin, size in sorted(places) if self._missing_bytes is not None else []:
            if begin >= recent:
                break
            if begin + size > block_end:
                block_end = self._add_blocks(blocks, begin, begin + size, block_end)
        return [block for block in blocks if block.missing_bytes]

    def _is_on_disk(self, begin: int, end: int) -> bool:
        """Return whether a part of the log from `begin` to `end` has to be read from disk."""
        assert self._missing_bytes is not None
        window = begin // _WINDOW_BYTES
        seen_until = self._seen_until.get(window, 0)
        is_within = end <= (window + 1) * _WINDOW_BYTES
        if is_within and seen_until > self._pull_number:
            return False
        segment = self._log.files.find(begin)
        if segment is None:
            return False
        base = segment.from_offset
        place = window * _WINDOW_BYTES - base
        if (
            is_within
            and -seen_until <= self._pull_number
            and 0 <= place <= segment.size - _WINDOW_BYTES
        ):
            missing = self._missing_bytes(segment.random_view[place : place + _WINDOW_BYTES])
            if len(self._seen_until) >= _WINDOWS_MAX:
                self._seen_until.clear()
            seen_until = self._pull_number + _SEEN_FOR_PULLS
            self._seen_until[window] = -seen_until if missing else seen_until
            if not missing:
                return False
        return self._missing_bytes(segment.random_view[begin - base : end - base]) > 0

    def _entries_in_memory(self, entries: memoryview) -> tuple[memoryview, list[tuple[int, int]]]:
        """Return the first entries whose records are in memory, or what is to be read for them."""
        begin: int = ENTRY.unpack_from(entries)[0]
        last_begin, last_size, _ = ENTRY.unpack_from(entries, len(entries) - QUEUE_ENTRY_BYTES)
        segment = self._log.files.find(begin)
        last_end = last_begin + last_size
        if (
            segment is not None
            and last_size != PADDING_SIZE
            and begin < last_end <= min(segment.end_offset, begin + _SPAN_BYTES_MAX)
            and not self._is_on_disk(begin, last_end)
        ):
            return entries, []
        on_disk: list[tuple[int, int]] = []
        end = 0
        for phy_offset, size, _ in ENTRY.iter_unpack(entries[: _APART_MAX * QUEUE_ENTRY_BYTES]):
            if size != PADDING_SIZE and self._is_on_disk(phy_offset, phy_offset + size):
                if end:
                    break
                on_disk.append((phy_offset, phy_offset + size))
                continue
            if on_disk:
                break
            end += QUEUE_ENTRY_BYTES
        return entries[:end], on_disk

    def max_index(self, queue: ConsumeQueue) -> int:
        """Return the index behind the last entry that readers may see."""
        if queue.max_phy_offset <= self.readable_offset:
            return queue.next_index
        return self._readable_end(queue)

    def _readable_end(self, queue: ConsumeQueue) -> int:
        """Return `max_index` of a queue that goes on beyond it.

        The entries that readers may not see yet are the youngest, and few: look from the end.
        """
        readable = self.readable_offset
        low, high, step = queue.min_index, queue.next_index, 1
        while low < high:
            probe = max(low, high - step)
            entry = queue.entry(probe)
            if entry is None or entry[0] + entry[1] <= readable:
                low = probe + 1
                break
            high = probe
            step *= 2
        return queue.bisect(low, high, lambda phy_offset, size: phy_offset + size <= readable)

    def _take_neighbours(
        self,
        queue: ConsumeQueue,
        entries: memoryview,
        offset: int,
        high: int,
        count_max: int,
        is_old: bool,
    ) -> GetResult | None:
        """Do the same as `_collect` if the records lie back to back in memory, as batches do."""
        config, log = self._config, self._log
        count = min(count_max, config.memory_transfer_count_max, len(entries) // QUEUE_ENTRY_BYTES)
        if not 0 < count <= _NEIGHBOURS_MAX:
            return None
        fields = _entries(count).unpack_from(entries)
        begin: int = fields[0]
        end: int = fields[-3] + fields[-2]
        size = end - begin
        # Offsets rise along a queue: as long as the records it is, so nothing lies between them.
        if (
            sum(fields[1::3]) != size
            or size > config.memory_transfer_bytes_max
            or begin < log.min_offset
            or begin < log.end - config.memory_window_bytes
        ):
            return None
        segment = log.files.find(begin)
        if segment is None or end > segment.end_offset:
            return None
        if is_old and self._is_on_disk(begin, end):
            return self._not_in_memory([(begin, end)], entries, None, offset, queue.min_index, high)
        view = segment.random_view if is_old else segment.view
        self.get_total += count
        self.get_bytes += size
        return GetResult(
            GetStatus.FOUND,
            offset + count,
            queue.min_index,
            high,
            [view[begin - segment.from_offset : end - segment.from_offset]],
            count,
            size,
            is_old=is_old,
        )

    def _collect(
        self,
        queue: ConsumeQueue,
        entries: memoryview,
        offset: int,
        high: int,
        count_max: int,
        message_filter: MessageFilter | None,
        is_old: bool,
    ) -> GetResult:
        config, log = self._config, self._log
        files = log.files
        record_filter = message_filter if isinstance(message_filter, RecordFilter) else None
        tag_filter = None if isinstance(message_filter, RecordFilter) else message_filter
        filter_work = 0
        filter_cost = 0 if record_filter is None else record_filter.cost
        in_memory_from = log.end - config.memory_window_bytes
        memory_count_max = min(count_max, config.memory_transfer_count_max)
        memory_bytes_max = config.memory_transfer_bytes_max
        min_offset = log.min_offset
        status = GetStatus.NO_MATCHED_MESSAGE
        buffers: list[memoryview] = []
        runs: list[tuple[int, int]] = []
        total = count = scanned = 0
        last_offset = log.end
        # Neighbours in one segment become one view.
        filter_bytes: mmap | bytes = b""
        filter_base = filter_limit = 0
        run_view: memoryview | None = None
        run_base = run_begin = run_end = run_limit = 0
        phy_offset: int
        size: int
        tags_code: int
        for phy_offset, size, tags_code in ENTRY.iter_unpack(entries):
            if count:
                if phy_offset >= in_memory_from:
                    if count >= memory_count_max or total + size > memory_bytes_max:
                        break
                elif (
                    count >= count_max
                    or count >= config.disk_transfer_count_max
                    or total + size > config.disk_transfer_bytes_max
                ):
                    break
            scanned += 1
            if tag_filter is not None and not tag_filter(tags_code):
                last_offset = phy_offset
                continue
            if phy_offset < min_offset or size == PADDING_SIZE:
                if not count:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            if record_filter is not None:
                if not filter_base <= phy_offset < filter_limit:
                    segment = files.find(phy_offset)
                    if segment is None:
                        filter_bytes, filter_base, filter_limit = b"", 0, 0
                    else:
                        filter_bytes = segment.random_buffer if is_old else segment.buffer
                        filter_base, filter_limit = segment.from_offset, segment.end_offset
                # Empty if the segment is gone or the record is damaged.
                at = phy_offset - filter_base
                if 0 < size <= _COPIED_MAX:
                    record = filter_bytes[at : at + size]
                    begin = properties_begin(record, size)
                else:
                    record = properties_of(filter_bytes, at, size)
                    begin = 0
                filter_work += filter_cost + ((len(record) - begin) >> _PROPERTY_BYTES_SHIFT)
                if not record_filter.wants(record, begin):
                    last_offset = phy_offset
                    if filter_work >= _FILTER_WORK_MAX:
                        break
                    continue
            last_offset = phy_offset
            if phy_offset == run_end and phy_offset < run_limit:
                run_end += size
            else:
                if run_view is not None:
                    buffers.append(run_view[run_begin - run_base : run_end - run_base])
                    runs.append((run_begin, run_end))
                if run_view is None or not run_base <= phy_offset < run_limit:
                    segment = files.find(phy_offset)
                    if segment is None:
                        run_view = None
                        continue
                    run_view = segment.random_view if is_old else segment.view
                    run_base, run_limit = segment.from_offset, segment.end_offset
                run_begin, run_end = phy_offset, phy_offset + size
            count += 1
            total += size
        if run_view is not None:
            buffers.append(run_view[run_begin - run_base : run_end - run_base])
            runs.append((run_begin, run_end))
        if is_old and any(self._is_on_disk(begin, end) for begin, end in runs):
            return self._not_in_memory(runs, entries, tag_filter, offset, queue.min_index, high)
        if count:
            status = GetStatus.FOUND
            self.get_total += count
            self.get_bytes += total
        return GetResult(
            status,
            offset + scanned,
            queue.min_index,
            high,
            buffers,
            count,
            total,
            last_offset < in_memory_from,
            is_old=is_old,
        )

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The entry stored at that time, or the nearest one; the earlier of two as near."""
        queue = self._table.get((topic, queue_id))
        if queue is None:
            return 0
        low, high = queue.min_index, self.max_index(queue)
        if low == high:
            return 0
        after = queue.bisect(
            low, high, lambda phy_offset, size: self._time_of(phy_offset) < timestamp_ms
        )
        if after == low:
            return low
        if after == high:
            return high - 1
        before_ms = self.store_time(topic, queue_id, after - 1)
        after_ms = self.store_time(topic, queue_id, after)
        return after if after_ms - timestamp_ms < timestamp_ms - before_ms else after - 1

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store timestamp of one entry's record, or -1."""
        queue = self._table.get((topic, queue_id))
        entry = None if queue is None else queue.entry(offset)
        return -1 if entry is None else self._time_of(entry[0])

    def readable_record(self, phy_offset: int) -> memoryview | None:
        """The record at an offset where one is known to begin, if readers may see it."""
        record = self._log.record_at(phy_offset)
        is_readable = record is not None and phy_offset + len(record) <= self.readable_offset
        return record if is_readable else None

    def listed_record(self, phy_offset: int) -> memoryview | None:
        """The record at `phy_offset`, if readers may see it and its queue lists it; or None."""
        record = self.readable_record(phy_offset)
        if record is None:
            return None
        try:
            fields = dispatch_fields(record, 0)
        except RecordError:
            return None
        queue = self._table.get((fields.topic, fields.queue_id))
        if queue is None:
            return None
        place = (phy_offset, len(record))
        entry = queue.entry(fields.queue_offset)
        if entry is None or entry[:2] != place:
            # A queue with a gap, or one that counts what is in this log alone.
            low, high = queue.min_index, queue.next_index
            entry = queue.entry(queue.bisect(low, high, lambda begin, _: begin < phy_offset))
        return record if entry is not None and entry[:2] == place else None

    def newest_timestamp(self) -> int:
        """Store timestamp of the youngest record that a queue lists; 0 for none."""
        entries = [queue.last_entry() for queue in self._table.values()]
        return max([0, *(self._time_of(entry[0]) for entry in entries if entry is not None)])

    def _time_of(self, phy_offset: int) -> int:
        record = self._log.record_at(phy_offset)
        return -1 if record is None else peek(record, 0).store_timestamp
