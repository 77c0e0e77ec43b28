"""The log: records of all topics one behind the other (CommitLog.java).

A record never spans two segments. If it and the 8 bytes of a blank do not fit the rest of one, the
rest becomes a blank (size, magic, undefined bytes) and the record begins the next. A slave appends
what its master has, undefined bytes included, cut wherever the network cut it; so its end may lie
inside a record.
"""

from __future__ import annotations

import threading
from typing import Final

from trioha.errors import OffsetOutOfRange, StoreError
from trioha.store.mapped_file import NO_BUFFER, MappedFile
from trioha.store.mapped_file_queue import MappedFileQueue
from trioha.store.store_config import StoreConfig
from trioha.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC,
    PRELUDE,
    RecordError,
    peek,
)
from trioha.wire.remoting_command import Buffer

_EMPTY: Final = memoryview(b"")


class CommitLog:
    """Append, read, truncate, flush.

    Durability: bytes are in the page cache when an append returns, and on disk below
    `flushed_offset`. A failed fsync is final: `failure` says so, nothing is appended any more.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.files = MappedFileQueue(
            config.commitlog_path,
            config.segment_bytes,
            config.log_chunk_bytes,
            keep_descriptors=True,
            cure=f"run `trioha raft repair {config.root}`"
            if config.is_dledger
            else "move the whole store away and let this broker start as an empty slave",
            size_key="mappedFileSizeCommitLog",
            gap_cure=config.accept_cure,
        )
        self.segment_bytes = config.segment_bytes
        self.end = 0
        """Offset at which the next append begins. It moves only behind bytes that are there."""
        self.flushed_offset = 0
        self.failure: str | None = None
        self._is_synced_for_puts = config.is_synced_for_puts
        self._lock = threading.Lock()  # flush against truncate
        # The segment that `end` lies in, so that an append looks nothing up.
        self._segment: MappedFile | None = None
        self._buffer = NO_BUFFER
        self._base = 0
        self._limit = 0
        """Position in the segment up to which records have their blocks, and a blank its place."""

    @property
    def min_offset(self) -> int:
        return self.files.first_offset if self.files.files else self.end

    # Appending.

    def room_for(self, size: int) -> int:
        """Offset at which records of `size` bytes in all go, in a new segment if need be.

        Errors: DiskFull, StoreError; nothing has changed then, save for an empty segment at most.
        """
        if self.end - self._base + size > self._limit:
            self._make_room(size)
        return self.end

    def append(self, records: bytes) -> None:
        """Write records made for the offset that `room_for` has just given."""
        position = self.end - self._base
        stop = position + len(records)
        self._buffer[position:stop] = records
        self.end = self._base + stop

    def append_raw(self, offset: int, data: Buffer) -> None:
        """Copy bytes of another log to the end of this one, across segments if need be.

        Errors: StoreError when `offset` is not the end; DiskFull.
        """
        if self.failure is not None:
            raise StoreError(self.failure)
        if offset != self.end:
            raise StoreError(f"bytes for offset {offset} do not fit a log that ends at {self.end}")
        view = memoryview(data)
        while view:
            segment = self._segment or self._next_segment()
            position = self.end - self._base
            part = view[: self.segment_bytes - position]
            segment.write(position, part)
            self.end += len(part)
            view = view[len(part) :]
            if self.end == segment.end_offset:
                # At once: a blank at the very end of a log does not count when it is recovered.
                self._next_segment()

    def reserve_ahead(self, size: int) -> None:
        """Have blocks on disk for `size` more bytes, in the segments that follow as well.

        Errors: DiskFull, StoreError; nothing has changed then, save for empty segments at most.
        """
        if self.failure is not None:
            raise StoreError(self.failure)
        current = self._segment or self._next_segment()
        position = self.end - current.from_offset
        segment, stop = current, position + size
        segment.reserve(min(segment.size, stop), position)
        while stop > segment.size:
            stop -= segment.size
            following = segment.end_offset
            segment = self.files.find(following) or self.files.create(following)
            segment.reserve(min(segment.size, stop))
        self._select(current)

    def begin_segment(self) -> None:
        """Make the file that the log's end lies in, whose name tells where an empty log begins."""
        if self._segment is None:
            self._next_segment()

    def can_restart_at(self, offset: int) -> bool:
        """An empty log may begin at any segment's start."""
        return self.end == self.min_offset and offset >= 0 and offset % self.segment_bytes == 0

    def restart_at(self, offset: int) -> None:
        """The log, empty so far, is to begin at `offset`."""
        with self._lock:
            self.files.drop_from(0)
            self.settle(offset)
            self.flushed_offset = offset

    def _make_room(self, size: int) -> None:
        segment = self._segment or self._next_segment()
        position = self.end - self._base
        if position + size + BLANK_SIZE > self.segment_bytes:
            rest = self.segment_bytes - position
            assert rest >= BLANK_SIZE, (self.end, rest)
            segment.reserve(position + BLANK_SIZE, position)
            # The next segment first: a full disk must not leave a blank that nothing follows.
            following = self._next_segment(size)
            PRELUDE.pack_into(segment.buffer, position, rest, BLANK_MAGIC)
            self.end = following.from_offset
        else:
            segment.reserve(position + size, position)
            self._select(segment)

    def _next_segment(self, size: int = 0) -> MappedFile:
        """Select the segment behind the current one, with room for `size` bytes."""
        offset = self.end if self._segment is None else self._segment.end_offset
        # It may be there already: made by an attempt that then found the disk full.
        following = self.files.find(offset) or self.files.create(offset)
        following.reserve(size)
        self._select(following)
        return following

    def probe(self) -> None:
        """Is there space for another chunk, in this segment or the next?

        Errors: DiskFull.
        """
        segment = self._segment or self._next_segment()
        if segment.reserved < segment.size:
            segment.reserve(segment.reserved + 1, self.end - self._base)
        else:
            offset = segment.end_offset
            (self.files.find(offset) or self.files.create(offset)).reserve(1)

    def _select(self, segment: MappedFile) -> None:
        limit = min(segment.reserved, self.segment_bytes - BLANK_SIZE)
        is_new = self._segment is not segment
        # Once for each chunk: a member of a group reserves anew for each append.
        if self._is_synced_for_puts and (is_new or limit != self._limit):
            if is_new and self._segment is not None:
                self._segment.expect_reads()
            segment.expect_writes(max(0, self.end - segment.from_offset))
        self._buffer = segment.buffer
        self._base = segment.from_offset
        self._limit = limit
        self._segment = segment

    # Reading.

    def read(self, offset: int, size_max: int) -> memoryview:
        """Bytes from `offset`, never beyond its segment or the end; empty at the end.

        Errors: OffsetOutOfRange.
        """
        end = self.end
        if not self.min_offset <= offset <= end:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.min_offset}..{end}")
        segment = self.files.find(offset)
        if segment is None or offset == end:
            return _EMPTY
        position = offset - segment.from_offset
        stop = min(position + size_max, segment.size, end - segment.from_offset)
        return segment.view[position:stop]

    def record_at(self, offset: int) -> memoryview | None:
        """The record that begins at `offset`, or None when none does."""
        segment = self.files.find(offset)
        if segment is None:
            return None
        position = offset - segment.from_offset
        limit = min(segment.size, self.end - segment.from_offset)
        if limit - position < BLANK_SIZE:
            return None
        try:
            header = peek(segment.buffer, position)
        except RecordError:
            return None
        if header.magic != MAGIC or header.phy_offset != offset or header.size > limit - position:
            return None
        return segment.view[position : position + header.size]

    def is_boundary(self, offset: int) -> bool:
        """Does a record or a blank begin here, or the log end?"""
        if offset == self.end or self.record_at(offset) is not None:
            return True
        segment = self.files.find(offset)
        if segment is None or not self.min_offset <= offset < self.end:
            return False
        position = offset - segment.from_offset
        if segment.size - position < BLANK_SIZE:
            return False
        size, magic = PRELUDE.unpack_from(segment.buffer, position)
        return bool(magic == BLANK_MAGIC and size == segment.size - position)

    # Keeping.

    def settle(self, end: int) -> None:
        """Append at `end` from now on."""
        self.end = end
        self._segment = None
        self._buffer = NO_BUFFER
        self._base = self._limit = 0
        segment = self.files.find(end)
        if segment is not None:
            self._select(segment)

    def truncate(self, offset: int) -> int:
        """Cut everything from `offset` on, durably; returns where the last byte cut had been.

        The segment that holds `offset` stays, even if it is now empty: a blank before it counts
        only while a segment follows.

        Errors: StoreError.
        """
        with self._lock:
            last = offset
            segment = self.files.find(offset)
            if segment is not None:
                for file in self.files.files:
                    # Room that was kept for what never came begins with zeros.
                    if file.from_offset > offset and any(file.view[:BLANK_SIZE]):
                        last = file.end_offset
                self.files.drop_from(segment.end_offset)
                last = max(last, segment.from_offset + segment.clear(offset - segment.from_offset))
            self.files.sync_names()
            self.settle(offset)
            self.flushed_offset = min(self.flushed_offset, offset)
            return last

    def flush(self) -> int:
        """Bring to disk what is appended now and return its end. Thread-safe.

        Errors: StoreError; the page cache may hold what the disk has not, so it is final.
        """
        with self._lock:
            if self.failure is not None:
                raise StoreError(self.failure)
            end = self.end
            begin = self.flushed_offset
            try:
                for segment in list(self.files.files):
                    if segment.from_offset < end and segment.end_offset > begin:
                        segment.sync()
                self.files.sync_names()
            except StoreError as error:
                self.failure = f"the log is no longer written: {error}"
                raise StoreError(self.failure) from error
            self.flushed_offset = end
            return end
