"""Look at a store from outside: read-only, without its lock, whichever broker wrote it.

For `trioha log dump|verify|diff`. Damage does not end the reading: the damaged stretch is reported
and reading goes on at the next bytes that are a record beyond doubt. A store in use may be read as
well; its last records may be missing then, and its queues a little ahead of or behind them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from trioha.errors import StoreError
from trioha.store.consume_queue import ENTRY
from trioha.store.mapped_file_queue import NAME_DIGITS
from trioha.store.record_scan import resynchronise, walk
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import string_hash
from trioha.wire.names import RAFT_TOPICS, SCHEDULE_TOPIC, TIMER_TOPIC
from trioha.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC,
    PRELUDE,
    Record,
    RecordError,
    decode_record,
)

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""

FINDINGS_MAX = 1000
"""Findings a report lists; the rest is only counted."""

_PIECE_BYTES = 4 << 20
_WINDOW_BYTES = 3200 * ENTRY.size
_UNQUEUED = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


@attrs.frozen
class DamagedStretch:
    """Bytes of the log that are no record."""

    begin_offset: int
    end_offset: int
    file: str
    reason: str


@attrs.frozen(kw_only=True)
class VerifyReport:
    first_offset: int
    end_offset: int
    records: int
    queues: int
    damage: list[DamagedStretch]
    queue_errors: list[str]
    """Entries that are missing, wrong or too many."""
    foreign_files: list[str]
    findings: int
    """All of them, also those beyond the lists' limit."""

    @property
    def sound(self) -> bool:
        return self.findings == 0


@attrs.frozen(kw_only=True)
class DiffReport:
    begin_a: int
    end_a: int
    begin_b: int
    end_b: int
    first_difference: int | None
    """Offset of the first byte that both hold and that differs."""

    @property
    def equal(self) -> bool:
        """Both hold the same bytes wherever both have some, and have the same end."""
        return self.first_difference is None and self.end_a == self.end_b


@attrs.define(eq=False)
class _Segment:
    path: Path
    from_offset: int
    size: int
    data_end: int
    """Position behind which the file is a hole: zeros that need no reading."""
    buffer: mmap.mmap

    @property
    def end_offset(self) -> int:
        return self.from_offset + self.size


def iter_records(
    commitlog_path: Path,
    begin: int = 0,
    end: int | None = None,
    *,
    progress: Progress | None = None,
) -> Iterator[Record | DamagedStretch]:
    """Records that begin in begin..end, in order, and the damaged stretches between them.

    Errors: StoreError when the directory cannot be read.
    """
    segments = _segments(commitlog_path)
    total = sum(segment.size for segment in segments)
    done = 0
    expected = None
    tail = _tail_of(segments)
    for number, segment in enumerate(segments):
        if expected is not None and segment.from_offset != expected:
            missing = commitlog_path / f"{expected:0{NAME_DIGITS}d}"
            if segment.from_offset > begin:
                yield DamagedStretch(expected, segment.from_offset, str(missing), "missing")
        expected = segment.end_offset
        if segment.end_offset > begin and (end is None or segment.from_offset < end):
            for item in _iter_segment(segment, begin, is_last=number >= tail):
                if end is not None and _begin_of(item) >= end:
                    return
                yield item
        done += segment.size
        if progress is not None:
            progress(done, total)


def _tail_of(segments: list[_Segment]) -> int:
    """Number of the segment that the log ends in: those behind it are room, kept for what comes."""
    tail = len(segments) - 1
    while tail > 0 and _is_empty(segments[tail]):
        tail -= 1
    return tail


def _is_empty(segment: _Segment) -> bool:
    """Zeros before a record are damage, and no room."""
    if segment.size < BLANK_SIZE or PRELUDE.unpack_from(segment.buffer) != (0, 0):
        return False
    return resynchronise(segment.buffer, 0, segment.data_end, segment.from_offset) == (
        segment.data_end
    )


def _begin_of(item: Record | DamagedStretch) -> int:
    return item.begin_offset if isinstance(item, DamagedStretch) else item.phy_offset


def _iter_segment(
    segment: _Segment, begin: int, *, is_last: bool
) -> Iterator[Record | DamagedStretch]:
    buffer, base, limit = segment.buffer, segment.from_offset, segment.size
    position = 0
    if begin > base:
        position = resynchronise(buffer, begin - base, segment.data_end, base)
        if position >= segment.data_end:
            return
    while limit - position >= BLANK_SIZE:
        size, magic = PRELUDE.unpack_from(buffer, position)
        if magic == BLANK_MAGIC and size == limit - position:
            return
        reason = "no record"
        if magic == MAGIC:
            try:
                record = decode_record(buffer, position)
                if record.phy_offset == base + position:
                    yield record
                    position += record.size
                    continue
                reason = f"record says it begins at {record.phy_offset}"
            except RecordError as error:
                reason = str(error)
        following = resynchronise(buffer, position + 1, segment.data_end, base)
        if following < segment.data_end:
            stretch_end = following
        elif size == 0 and magic == 0:
            if is_last:
                return
            reason, stretch_end = "segment ends early", limit
        else:
            stretch_end = limit if not is_last else max(segment.data_end, position + BLANK_SIZE)
        yield DamagedStretch(base + position, base + stretch_end, str(segment.path), reason)
        position = stretch_end
        if following >= segment.data_end:
            return


def verify_store(
    root: Path, commitlog_path: Path | None = None, *, progress: Progress | None = None
) -> VerifyReport:
    """Read every record and compare every consume queue with what the log says it must hold.

    Errors: StoreError when the directory cannot be read.
    """
    commitlog_path = commitlog_path or root / "commitlog"
    segments = _segments(commitlog_path)
    verifier = _Verifier(root / "consumequeue")
    first = segments[0].from_offset if segments else 0
    for item in iter_records(commitlog_path, progress=progress):
        verifier.feed(item)
    return verifier.report(first, _foreign_files(commitlog_path))


class _Verifier:
    def __init__(self, queues_path: Path) -> None:
        self._queues_path = queues_path
        self._queues: dict[tuple[str, int], _QueueReader] = {}
        self._next_index: dict[tuple[str, int], int] = {}
        self._records = 0
        self._end = 0
        self._damage: list[DamagedStretch] = []
        self._errors: list[str] = []
        self._findings = 0

    def feed(self, item: Record | DamagedStretch) -> None:
        if isinstance(item, DamagedStretch):
            self._end = item.end_offset
            self._findings += 1
            if len(self._damage) < FINDINGS_MAX:
                self._damage.append(item)
            return
        self._records += 1
        self._end = item.phy_offset + item.size
        if item.sys_flag & SysFlag.TRANSACTION_MASK in _UNQUEUED or item.topic in RAFT_TOPICS:
            return
        key = (item.topic, item.queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = _QueueReader(self._queues_path / item.topic / str(item.queue_id))
            self._queues[key] = queue
        self._next_index[key] = item.queue_offset + 1
        entry = queue.entry(item.queue_offset)
        expected = (item.phy_offset, item.size, string_hash(item.tags or ""))
        if item.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) and entry is not None:
            expected = (item.phy_offset, item.size, entry[2])  # a delivery time
        if entry is None or entry[1] == 0:
            if queue.exists:  # else: the topic was deleted
                self._error(f"{queue.directory}: entry {item.queue_offset} is missing")
        elif entry != expected and entry[0] <= item.phy_offset:
            # An entry of a younger record: the topic was made anew.
            self._error(f"{queue.directory}: entry {item.queue_offset} is {entry}, not {expected}")

    def report(self, first_offset: int, foreign_files: list[str]) -> VerifyReport:
        for key, queue in self._queues.items():
            entry = queue.entry(self._next_index[key])
            if entry is not None and entry[1] != 0:
                self._error(f"{queue.directory}: entry {self._next_index[key]} has no record")
        self._findings += len(foreign_files)
        return VerifyReport(
            first_offset=first_offset,
            end_offset=max(self._end, first_offset),
            records=self._records,
            queues=len(self._queues),
            damage=self._damage,
            queue_errors=self._errors,
            foreign_files=foreign_files[:FINDINGS_MAX],
            findings=self._findings,
        )

    def _error(self, text: str) -> None:
        self._findings += 1
        if len(self._errors) < FINDINGS_MAX:
            self._errors.append(text)


class _QueueReader:
    """Entries of one consume queue, read as they are asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.exists = directory.is_dir()
        self._sizes: dict[int, int] = {}
        if self.exists:
            for path in directory.iterdir():
                if _is_offset(path.name):
                    self._sizes[int(path.name)] = path.stat().st_size
        self._file_bytes = next(iter(self._sizes.values()), 0)
        self._window_offset = -1
        self._window = b""

    def entry(self, index: int) -> tuple[int, int, int] | None:
        if not self._file_bytes:
            return None
        offset = index * ENTRY.size
        file_offset = offset - offset % self._file_bytes
        if file_offset not in self._sizes:
            return None
        window_offset = offset - (offset - file_offset) % _WINDOW_BYTES
        if window_offset != self._window_offset:
            # Records come in the order of their entries, so a window serves many.
            with open(self.directory / f"{file_offset:0{NAME_DIGITS}d}", "rb") as file:
                file.seek(window_offset - file_offset)
                self._window = file.read(_WINDOW_BYTES)
            self._window_offset = window_offset
        if len(self._window) < offset - window_offset + ENTRY.size:
            return None
        entry: tuple[int, int, int] = ENTRY.unpack_from(self._window, offset - window_offset)
        return entry


def diff_logs(a: Path, b: Path, *, progress: Progress | None = None) -> DiffReport:
    """Compare two commitlog directories byte by byte where both have bytes.

    Errors: StoreError when one cannot be read.
    """
    segments_a, segments_b = _segments(a), _segments(b)
    begin_a, end_a = _extent(segments_a)
    begin_b, end_b = _extent(segments_b)
    begin, end = max(begin_a, begin_b), min(end_a, end_b)
    difference = None
    offset = begin
    while offset < end and difference is None:
        piece_a = _piece(segments_a, offset, end)
        piece_b = _piece(segments_b, offset, end)
        size = min(len(piece_a), len(piece_b))
        if size == 0:
            difference = offset  # one has a hole where a segment is missing
        elif piece_a[:size] != piece_b[:size]:
            pairs = zip(piece_a, piece_b, strict=False)
            difference = offset + next(i for i, (x, y) in enumerate(pairs) if x != y)
        offset += size
        if progress is not None:
            progress(offset - begin, end - begin)
    return DiffReport(
        begin_a=begin_a, end_a=end_a, begin_b=begin_b, end_b=end_b, first_difference=difference
    )


def _extent(segments: list[_Segment]) -> tuple[int, int]:
    """First offset, and the end of the sound records in the last segment."""
    if not segments:
        return (0, 0)
    last = segments[_tail_of(segments)]
    walked = walk(last.buffer, 0, last.size, last.from_offset, check_crc=False)
    return segments[0].from_offset, last.from_offset + walked.position


def _piece(segments: list[_Segment], offset: int, end: int) -> bytes:
    for segment in segments:
        if segment.from_offset <= offset < segment.end_offset:
            position = offset - segment.from_offset
            stop = min(segment.size, position + _PIECE_BYTES, end - segment.from_offset)
            return segment.buffer[position:stop]
    return b""


def _is_offset(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isdecimal()


def _foreign_files(directory: Path) -> list[str]:
    return [str(path) for path in sorted(directory.iterdir()) if not _is_offset(path.name)]


def _segments(directory: Path) -> list[_Segment]:
    segments = []
    try:
        for path in sorted(directory.iterdir()):
            if not _is_offset(path.name) or path.stat().st_size == 0:
                continue
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                data_end = _data_end(file.fileno(), size)
                buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            segments.append(_Segment(path, int(path.name), size, data_end, buffer))
    except OSError as error:
        raise StoreError(f"cannot read {directory}: {error.strerror}") from error
    return segments


def _data_end(fd: int, size: int) -> int:
    end = 0
    while end < size:
        try:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError:
            break  # no data behind it
    return end
