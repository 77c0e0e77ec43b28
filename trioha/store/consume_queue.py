"""One queue of one topic: 20 bytes per message, ``phyOffset i64 | size i32 | tagsCode i64``
(ConsumeQueue.java).

The entry's place is the message's queue offset. A queue that does not begin at index 0 (its log
came to this node from the middle) has its first file filled up with padding entries, which point
nowhere and are below `min_index`.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trioha.store.interface import DiskBlock
from trioha.store.mapped_file import NO_BUFFER
from trioha.store.mapped_file_queue import MappedFileQueue
from trioha.store.store_config import QUEUE_ENTRY_BYTES as _SIZE
from trioha.store.store_config import StoreConfig
from trioha.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC
from trioha.wire.record import FIXED_SIZE

ENTRY: Final = struct.Struct(">qiq")
PADDING_SIZE: Final = 0x7FFFFFFF

_TAGS_CODE: Final = struct.Struct(">q")
_TAGS_CODE_AT: Final = ENTRY.size - _TAGS_CODE.size
_PADDING: Final = ENTRY.pack(0, PADDING_SIZE, 0)
_PACK: Final = ENTRY.pack_into


class ConsumeQueue:
    """Entries `min_index` .. `next_index` - 1."""

    __slots__ = (
        "_buffer",
        "_limit",
        "_lock",
        "_position",
        "entries_per_file",
        "files",
        "flushed_index",
        "is_schedule",
        "mark_index",
        "mark_log_end",
        "max_phy_offset",
        "min_index",
        "next_index",
        "queue_id",
        "record_bytes_min",
        "seen_begin",
        "seen_end",
        "seen_until",
        "topic",
        "topic_field",
        "topic_size",
        "young_index",
    )

    def __init__(self, config: StoreConfig, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        encoded = topic.encode()
        size = len(encoded)
        self.topic_size = size
        self.topic_field = bytes((size & 0xFF,)) + encoded
        """The topic as its records hold it, behind its length. None holds one over 255 bytes."""
        self.record_bytes_min = FIXED_SIZE + size
        """A record's size without body and properties."""
        self.is_schedule = topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
        """Entries of the queue carry a delivery time in place of a tags code."""
        self.files = MappedFileQueue(
            config.consume_queue_path / topic / str(queue_id),
            config.queue_file_bytes,
            config.queue_chunk_bytes,
            cure=f"remove {config.consume_queue_path}, it is then rebuilt from the log",
            size_key="mappedFileSizeConsumeQueue",
        )
        self.entries_per_file = config.queue_file_bytes // _SIZE
        self.min_index = 0
        self.next_index = 0
        self.max_phy_offset = -1
        """End of the last record that has an entry; an older record is a repetition."""
        self.flushed_index = 0
        self.young_index = 0
        """Entries from here on were written lately: their pages are in memory (`Lookup`)."""
        self.mark_index = 0
        self.mark_log_end = 0
        """End of the queue (index) and of the log (offset) when `young_index` was last set."""
        self.seen_begin = 0
        self.seen_end = 0
        """Entries between the two were in memory; that counts until pull number `seen_until`."""
        self.seen_until = 0
        self._lock = threading.Lock()  # flush against truncate and reset
        self._buffer = NO_BUFFER
        self._position = 0
        self._limit = 0

    @property
    def directory(self) -> Path:
        return self.files.directory

    # Appending.

    def append(self, phy_offset: int, size: int, tags_code: int) -> None:
        """Errors: DiskFull; nothing has changed then."""
        position = self._position
        if position + _SIZE > self._limit:
            self.make_room(1)
            position = self._position
        _PACK(self._buffer, position, phy_offset, size, tags_code)
        self._position = position + _SIZE
        self.next_index += 1
        self.max_phy_offset = phy_offset + size

    def append_all(self, entries: bytes, end_phy_offset: int) -> None:
        """Append entries that lie back to back; there is room for them."""
        while entries:
            position = self._position
            part = entries[: self._limit - position]
            assert part, f"no room for {len(entries)} bytes of entries behind {self.next_index}"
            self._buffer[position : position + len(part)] = part
            self._position = position + len(part)
            self.next_index += len(part) // _SIZE
            entries = entries[len(part) :]
            if entries:
                self._select()
        self.max_phy_offset = end_phy_offset

    def has_room(self, count: int) -> bool:
        return self._position + count * _SIZE <= self._limit

    def make_room(self, count: int) -> None:
        """Have blocks on disk for `count` more entries.

        Errors: DiskFull, StoreError; no entry is lost then.
        """
        files = self.files
        begin = self.next_index * _SIZE
        end = begin + count * _SIZE
        if not files.files:
            self._begin_at(self.next_index)
        while files.end_offset < end:
            files.create(files.end_offset)
        offset = begin
        while offset < end:
            file = files.find(offset)
            assert file is not None
            stop = min(end, file.end_offset)
            file.reserve(stop - file.from_offset, offset - file.from_offset)
            offset = stop
        self._select()

    def start_at(self, index: int) -> None:
        """The queue is empty; its first entry will be `index`."""
        self.reset()
        self._begin_at(index)
        self.min_index = self.next_index = self.flushed_index = index

    def _begin_at(self, index: int) -> None:
        offset = index * _SIZE
        file_offset = offset - offset % self.files.file_bytes
        file = self.files.create(file_offset)
        padding = offset - file_offset
        if padding:
            file.reserve(padding)
            file.buffer[:padding] = _PADDING * (padding // _SIZE)

    def _select(self) -> None:
        file = self.files.find(self.next_index * _SIZE)
        if file is None:
            self._buffer = NO_BUFFER
            self._position = self._limit = 0
        else:
            self._buffer = file.buffer
            self._position = self.next_index * _SIZE - file.from_offset
            self._limit = file.reserved

    # Reading.

    def entry(self, index: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code), or None outside of the queue."""
        if not self.min_index <= index < self.next_index:
            return None
        return self._entry(index)

    def entries(self, index: int, count_max: int) -> memoryview | None:
        """Entries from `index` on, back to back, never beyond their file; None if none is there."""
        file = self.files.find(index * _SIZE)
        if file is None or index >= self.next_index:
            return None
        begin = index * _SIZE - file.from_offset
        end = min(begin + count_max * _SIZE, file.size, self.next_index * _SIZE - file.from_offset)
        return file.view[begin:end]

    def block(self, index: int, size: int, missing_bytes: int) -> DiskBlock:
        """Return the bytes of the file that holds entry `index`; there is such a file."""
        file = self.files.find(index * _SIZE)
        assert file is not None, (index, self.min_index, self.next_index)
        return DiskBlock(file.path, index * _SIZE - file.from_offset, size, missing_bytes)

    def _entry(self, index: int) -> tuple[int, int, int]:
        file = self.files.find(index * _SIZE)
        if file is None:
            return (0, 0, 0)
        entry: tuple[int, int, int] = ENTRY.unpack_from(
            file.buffer, index * _SIZE - file.from_offset
        )
        return entry

    def bisect(self, low: int, high: int, is_before: Callable[[int, int], bool]) -> int:
        """First index in low..high whose (phy_offset, size) is not before something."""
        while low < high:
            middle = (low + high) // 2
            phy_offset, size, _ = self._entry(middle)
            if is_before(phy_offset, size):
                low = middle + 1
            else:
                high = middle
        return low

    def last_tagged(self, tags_code: int, before: int) -> int:
        """The newest index below `before` whose entry carries this tags code, or -1.

        A search for bytes, file by file from the end: 100,000 entries take five milliseconds.
        """
        pattern = _TAGS_CODE.pack(tags_code)
        before = min(before, self.next_index)
        for file in reversed(self.files.files):
            first = file.from_offset // _SIZE
            low = max(self.min_index - first, 0) * _SIZE
            high = min((before - first) * _SIZE, file.size)
            while low < high:
                at = file.buffer.rfind(pattern, low, high)
                if at < 0:
                    break
                if (at - _TAGS_CODE_AT) % _SIZE == 0:
                    return first + at // _SIZE
                high = at + len(pattern) - 1  # it lay across two fields
        return -1

    # Recovery.

    def recover(self, phy_offset: int | None, *, foreign: bool = False) -> None:
        """Find the end: behind the entries of records below `phy_offset`, or behind the last one.

        Our own files hold zeros behind their end. A Java broker may leave stale entries behind
        the first zero one, so a `foreign` file is searched for that.
        """
        self.min_index = self.first_index

        def is_before(offset: int, size: int) -> bool:
            return size > 0 and (phy_offset is None or offset < phy_offset)

        end = self.first_index
        for file in reversed(self.files.files):
            first = file.from_offset // _SIZE
            entry_offset, size, _ = self._entry(first)
            if is_before(entry_offset, size):
                high = first + self.entries_per_file
                if foreign:
                    # No 20 zeros in a row lie inside of valid entries: a size is in between.
                    gap = file.buffer.find(bytes(_SIZE))
                    high = first + -(-gap // _SIZE) if gap >= 0 else high
                end = self.bisect(first, high, is_before)
                break
        self.settle(end)

    def last_entry(self) -> tuple[int, int, int] | None:
        """The newest entry, unless it is padding."""
        if self.next_index <= self.first_index:
            return None
        entry = self._entry(self.next_index - 1)
        return None if entry[1] == PADDING_SIZE else entry

    @property
    def written_end(self) -> int:
        """End of the newest record that any entry on disk lists, also behind `next_index`; -1
        where nothing lies behind."""
        next_index = self.next_index
        if self._entry(next_index)[1] <= 0:
            return -1
        self.recover(None)
        end = self.max_phy_offset
        self.settle(next_index)
        return end

    # Keeping.

    def settle(self, next_index: int) -> None:
        """The queue ends before `next_index`: append there."""
        self.next_index = next_index
        self.flushed_index = min(self.flushed_index, next_index)
        last = self.last_entry()
        self.max_phy_offset = -1 if last is None else last[0] + last[1]
        self.min_index = min(self.min_index, next_index)
        self._select()

    @property
    def first_index(self) -> int:
        """Index of the first entry on disk, padding included."""
        return self.files.first_offset // _SIZE

    def truncate(self, next_index: int) -> None:
        """Forget every entry from `next_index` on, durably: stale ones must not come back.

        Errors: StoreError.
        """
        offset = next_index * _SIZE
        with self._lock:
            file = self.files.find(offset)
            if file is not None:
                self.files.drop_from(file.end_offset)
                file.clear(offset - file.from_offset)
                self.files.sync_names()
            self.settle(next_index)

    def truncate_phy(self, phy_offset: int) -> None:
        """Forget the entries of records at or behind `phy_offset`."""
        keep = self.bisect(
            self.min_index, self.next_index, lambda offset, size: offset < phy_offset
        )
        if keep < self.next_index:
            self.truncate(keep)

    def correct_min(self, min_phy_offset: int) -> None:
        """The log now begins at `min_phy_offset`: move `min_index` up and delete spent files."""
        self.min_index = self.bisect(
            self.min_index,
            self.next_index,
            lambda offset, size: offset < min_phy_offset or size == PADDING_SIZE,
        )
        # The last file always stays: it is what remembers the next index.
        while len(self.files.files) > 1:
            if self.files.files[0].end_offset > self.min_index * _SIZE:
                break
            self.files.drop_first()

    def forget_before(self, index: int) -> None:
        """The queue holds `index`, and nothing before it from now on, durably.

        Errors: StoreError.
        """
        assert self.min_index <= index < self.next_index, (self.min_index, index, self.next_index)
        with self._lock:
            files = self.files
            while files.files[0].end_offset <= index * _SIZE:
                files.drop_first()
            file = files.files[0]
            padding = index * _SIZE - file.from_offset
            file.buffer[:padding] = _PADDING * (padding // _SIZE)
            file.sync()
            files.sync_names()
            self.min_index = index

    def reset(self) -> None:
        """Forget every entry; the queue begins anew."""
        with self._lock:
            self.files.drop_from(0)
            self.min_index = self.next_index = self.flushed_index = 0
            self.max_phy_offset = -1
            self._select()

    def flush(self) -> bool:
        """Bring new entries to disk; True if files came or went since the last time. Thread-safe.

        Errors: StoreError.
        """
        with self._lock:
            end = self.next_index
            begin = self.flushed_index
            if end != begin:
                for file in list(self.files.files):
                    if file.from_offset < end * _SIZE and file.end_offset > begin * _SIZE:
                        file.sync()
                self.flushed_index = end
            changed = self.files.names_changed
            self.files.sync_names()
            return changed
