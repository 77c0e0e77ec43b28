"""Rows of a commitlog: `scan_split` walks a range of a segment and yields batches of columns.

The loop over plain records is the hot path of the whole analysis: one unpack, one topic look-up and
one copy of 88 bytes per record. Whatever it does not know at once (another magic, IPv6, a record
larger than the window, bytes that do not add up) is judged by `LogWalk`, and by the same rules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import attrs

from trioha.analysis.log_source import FileSource, LogSource
from trioha.analysis.log_walk import ENTRY, ENTRY_SIZE, LogWalk, Sound, Unsound, topic_text
from trioha.analysis.row_batch import Contents, as_ipv4
from trioha.analysis.row_batch import RowBatch as RowBatch  # of the same interface
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import SPLIT_BYTES, CorruptRow, LogSplit, StoreFiles
from trioha.wire.record import MAGIC, SCAN, SCAN_SIZE

Detail = Literal["headers", "full"]

CLOCK_SLACK_MS = 3_600_000
"""How far a store's timestamps may run backwards before pruning by time could lose a record: a new
master's clock, or one set back. Rows are compared exactly; only the choice of splits allows it."""

_WINDOW_BYTES = 1 << 20
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20
_BODY_SIZE = struct.Struct(">i")
_BODY_SIZE_AT = 84
_MS_MIN = -(1 << 63)
_MS_END = 1 << 63
_WRONG_CHECKSUM = "body does not match its checksum"


@attrs.frozen(kw_only=True)
class ScanFilter:
    """Which records are wanted; all conditions hold at once, ranges are half open. Exact."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    store_ms_from: int | None = None
    store_ms_to: int | None = None
    phy_offset_from: int | None = None
    phy_offset_to: int | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing can match."""
        return (
            self.topics == frozenset()
            or self.queue_ids == frozenset()
            or _is_empty(self.store_ms_from, self.store_ms_to)
            or _is_empty(self.phy_offset_from, self.phy_offset_to)
        )


NO_FILTER = ScanFilter()


def plan_splits(
    store: StoreFiles, filters: ScanFilter = NO_FILTER, bytes_max: int = SPLIT_BYTES
) -> list[LogSplit]:
    """The splits of a store that can hold wanted records, cut to the wanted offsets.

    Errors: AnalysisError when a file cannot be read.
    """
    if filters.is_empty:
        return []
    splits = [cut for split in store.splits(bytes_max) if (cut := _cut(split, filters)) is not None]
    if filters.store_ms_from is None and filters.store_ms_to is None:
        return splits
    kept = []
    following_ms: int | None = None
    for split in reversed(splits):
        first_ms = _first_store_ms(split)
        if not _is_beyond(first_ms, following_ms, filters):
            kept.append(split)
        following_ms = following_ms if first_ms is None else first_ms
    return kept[::-1]


def scan_split(
    split: LogSplit, *, columns: Detail = "headers", filters: ScanFilter | None = None
) -> Iterator[RowBatch]:
    """Rows of the records that begin in the split, and its damaged stretches.

    A file that was deleted since the split was made is reported as a damaged stretch.

    Errors: AnalysisError when the file cannot be read; damage is never an error.
    """
    cut = _cut(split, filters or NO_FILTER)
    if cut is None or (filters is not None and filters.is_empty):
        return
    path = split.segment.path
    try:
        with FileSource(path) as source:
            yield from scan_source(source, cut, columns=columns, filters=filters)
    except FileNotFoundError:
        row = CorruptRow(
            split.store,
            split.segment.name,
            split.segment.from_offset + cut.begin,
            cut.end - cut.begin,
            "segment deleted while it was read",
        )
        yield RowBatch(split.store, split.segment.name, 0, [row], cut.end - cut.begin)
    except OSError as error:
        raise AnalysisError(f"cannot read {path}: {error.strerror}") from None


def scan_source(
    source: LogSource,
    split: LogSplit,
    *,
    columns: Detail = "headers",
    filters: ScanFilter | None = None,
) -> Iterator[RowBatch]:
    """The same over bytes from anywhere."""
    return _Scan(source, split, columns == "full", filters or NO_FILTER).batches()


class _Scan:
    """One pass over one split."""

    def __init__(
        self, source: LogSource, split: LogSplit, is_full: bool, filters: ScanFilter
    ) -> None:
        segment = split.segment
        self._source = source
        self._split = split
        self._segment = segment
        self._filters = filters
        self._is_full = is_full
        self._lead = ENTRY_SIZE if segment.is_dledger else 0
        self._walk = LogWalk(source, segment.from_offset, is_dledger=segment.is_dledger)
        self._stop = min(split.end, source.size)
        self._topic_codes: dict[bytes, int] = {}
        self._topic_names: list[str] = []
        self._window = b""
        self._window_at = 0
        self._last = -1
        """Where the last entry begins that `_take` took."""
        self._last_is_row = False
        self._clear()
        if split.gap is not None:
            self._corrupt.append(split.gap)

    def _clear(self) -> None:
        self._heads: list[bytes] = []
        self._codes: list[int] = []
        self._bodies: list[bytes] = []
        self._properties: list[bytes] = []
        self._odd_hosts: dict[int, tuple[str, str]] = {}
        self._corrupt: list[CorruptRow] = []
        self._log_bytes = 0

    def batches(self) -> Iterator[RowBatch]:
        position = done = self._split.begin
        if position > 0:
            position = self._walk.find(position, self._stop)
            if position < 0:
                position = self._source.size
        while position < self._stop:
            reached = self._advance(position)
            self._log_bytes += reached - position
            position = reached
            if len(self._heads) >= _BATCH_ROWS or self._log_bytes >= _BATCH_BYTES:
                reached = min(position, self._stop)
                yield self._batch(reached - done)
                done = reached
        self._look_behind(position)
        yield self._batch(self._stop - done)

    def _advance(self, position: int) -> int:
        """Take rows up to the window's end, or get past one thing that is no plain record."""
        if not 0 <= position - self._window_at <= len(self._window) // 2:
            self._window = self._source.read(position, _WINDOW_BYTES)
            self._window_at = position
        reached = self._take(position)
        if self._last >= 0:
            # Only the last one can be unsound: it ends where no record begins, or the data ends.
            if isinstance(self._walk.sound(self._last), Sound):
                return reached
            if self._last_is_row:
                self._drop_last()
            reached = self._last
        return self._step(reached)

    def _take(self, position: int) -> int:
        """Rows of the plain records from `position` to the window's end; where it stopped."""
        window, window_at = self._window, self._window_at
        heads_append, codes_append = self._heads.append, self._codes.append
        bodies_append, properties_append = self._bodies.append, self._properties.append
        known, is_full, lead = self._topic_codes, self._is_full, self._lead
        unpack, unpack_entry = SCAN.unpack_from, ENTRY.unpack_from
        window_size = len(window)
        begin = position - window_at
        stop = min(self._stop - window_at, window_size)
        base = self._segment.from_offset + window_at
        place = begin
        last = code = -1
        while place < stop:
            try:
                while place < stop:
                    record = place + lead
                    size, magic, phy_offset, sys_flag, body_size = unpack(window, record)
                    if magic != MAGIC or phy_offset != base + record or sys_flag & 0x30:
                        stop = 0
                        break
                    length_at = record + 88 + body_size
                    topic_end = length_at + 1 + window[length_at]
                    end = record + size
                    if topic_end + 2 + (window[topic_end] << 8 | window[topic_end + 1]) != end:
                        stop = 0
                        break
                    if lead:
                        kind, entry_size, _, _, stated = unpack_entry(window, place)
                        if kind != 1 or entry_size != size + lead or stated != base + place:
                            stop = 0
                            break
                    code = known[window[length_at + 1 : topic_end]]
                    if is_full:
                        if end > window_size:
                            stop = 0
                            break
                        if code >= 0:
                            bodies_append(window[record + 88 : length_at])
                            properties_append(window[topic_end + 2 : end])
                    if code >= 0:
                        heads_append(window[place : record + 88])
                        codes_append(code)
                    last = place
                    place = end
            except KeyError:
                if not self._learn(window[length_at + 1 : topic_end]):
                    break
            except (IndexError, struct.error):
                break  # it goes on behind the window
        self._last = -1 if last < 0 else window_at + last
        self._last_is_row = code >= 0
        return window_at + place

    def _learn(self, topic: bytes) -> bool:
        """Give a topic its code, -1 when it is not wanted; False when it is no topic."""
        text = topic_text(topic)
        if text is None:
            return False
        wanted = self._filters.topics
        if wanted is not None and text not in wanted:
            self._topic_codes[topic] = -1
        else:
            self._topic_codes[topic] = len(self._topic_names)
            self._topic_names.append(text)
        return True

    def _drop_last(self) -> None:
        self._heads.pop()
        self._codes.pop()
        if self._is_full:
            self._bodies.pop()
            self._properties.pop()

    def _step(self, position: int) -> int:
        """Get past the one thing at `position`, whatever it is; behind the split at the end."""
        found = self._walk.sound(position)
        if isinstance(found, Sound):
            if found.record_at >= 0:
                self._take_slowly(position, found)
            return found.end
        if self._walk.is_blank(position):
            return self._source.size
        return self._damage(position, found.reason)

    def _take_slowly(self, position: int, record: Sound) -> None:
        if record.topic not in self._topic_codes:
            self._learn(record.topic)
        code = self._topic_codes[record.topic]
        if code < 0:
            return
        head = self._source.read(position, record.body_at - position)
        if record.body_at - record.record_at > SCAN_SIZE:
            head, hosts = as_ipv4(head, self._lead)
            self._odd_hosts[len(self._heads)] = hosts
        self._heads.append(head)
        self._codes.append(code)
        if self._is_full:
            contents = self._source.read(record.body_at, record.end - record.body_at)
            (body_size,) = _BODY_SIZE.unpack_from(head, self._lead + _BODY_SIZE_AT)
            self._bodies.append(contents[:body_size])
            self._properties.append(contents[record.properties_at - record.body_at :])

    def _damage(self, position: int, reason: str) -> int:
        """Report what is no record at `position`; where the next record begins."""
        walk, segment = self._walk, self._segment
        following = walk.find(position + 1, segment.data_end)
        last = -1
        if following < 0:
            last = walk.last_byte(position, segment.data_end)
        if isinstance(walk.sound(position), Sound):
            return position  # it was being written, and now is there
        if following >= 0:
            self._report(position, following, reason)
            return following
        if not segment.is_tail:
            self._report(position, walk.limit, "segment ends early" if last < 0 else reason)
        elif last >= 0:
            is_unfinished = walk.is_unfinished(position, last)
            if not is_unfinished or self._split.is_closed:
                self._report(position, last + 1, "record is cut off" if is_unfinished else reason)
        return self._source.size

    def _look_behind(self, position: int) -> None:
        """Report damage behind the last record: whoever scans on from here passes over it."""
        while position < self._segment.data_end:
            found = self._walk.sound(position)
            if isinstance(found, Sound) and found.record_at < 0:
                position = found.end
                continue
            if isinstance(found, Unsound) and not self._walk.is_blank(position):
                self._damage(position, found.reason)
            return

    def _report(self, begin: int, end: int, reason: str) -> None:
        segment = self._segment
        self._corrupt.append(
            CorruptRow(
                self._split.store, segment.name, segment.from_offset + begin, end - begin, reason
            )
        )

    def _batch(self, bytes_done: int) -> RowBatch:
        batch = RowBatch(
            self._split.store,
            self._segment.name,
            len(self._heads),
            self._corrupt,
            bytes_done,
            b"".join(self._heads),
            self._lead + SCAN_SIZE,
            self._codes,
            self._topic_names,
            self._odd_hosts,
            Contents(self._bodies, self._properties) if self._is_full else None,
        )
        self._clear()
        batch = _filtered(batch, self._filters)
        if self._is_full and not all(batch.crc_ok):
            _report_checksums(batch)
        return batch


def _filtered(batch: RowBatch, filters: ScanFilter) -> RowBatch:
    """The batch without rows of other queues and times; topics and offsets are dealt with."""
    mask: list[bool] | None = None
    if filters.queue_ids is not None:
        wanted = filters.queue_ids
        mask = [queue_id in wanted for queue_id in batch.column("queue_id")]
    if filters.store_ms_from is not None or filters.store_ms_to is not None:
        low = _MS_MIN if filters.store_ms_from is None else filters.store_ms_from
        high = _MS_END if filters.store_ms_to is None else filters.store_ms_to
        in_time = [low <= store_ms < high for store_ms in batch.column("store_ms")]
        mask = in_time if mask is None else [a and b for a, b in zip(mask, in_time, strict=True)]
    if mask is None or all(mask):
        return batch
    return batch.only(mask)


def _report_checksums(batch: RowBatch) -> None:
    rows = zip(batch.crc_ok, batch.column("phy_offset"), batch.column("size"), strict=True)
    batch.corrupt.extend(
        CorruptRow(batch.store, batch.segment, phy_offset, size, _WRONG_CHECKSUM)
        for is_ok, phy_offset, size in rows
        if not is_ok
    )
    batch.corrupt.sort(key=lambda row: row.phy_offset)


def _cut(split: LogSplit, filters: ScanFilter) -> LogSplit | None:
    """The split without offsets that are not wanted; None when nothing is left."""
    # A DLEDGER record's offset is 48 behind its entry's position.
    base = split.segment.from_offset + (ENTRY_SIZE if split.segment.is_dledger else 0)
    begin, end = split.begin, split.end
    if filters.phy_offset_from is not None:
        begin = max(begin, filters.phy_offset_from - base)
    if filters.phy_offset_to is not None:
        end = min(end, filters.phy_offset_to - base)
    if begin >= end:
        return None
    gap = split.gap if begin == split.begin else None
    return attrs.evolve(split, begin=begin, end=end, gap=gap)


def _first_store_ms(split: LogSplit) -> int | None:
    segment = split.segment
    try:
        with FileSource(segment.path) as source:
            walk = LogWalk(source, segment.from_offset, is_dledger=segment.is_dledger)
            position = walk.find(split.begin, split.end)
            record = None if position < 0 else walk.sound(position)
            return walk.store_ms(record) if isinstance(record, Sound) else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AnalysisError(f"cannot read {segment.path}: {error.strerror}") from None


def _is_beyond(first_ms: int | None, following_ms: int | None, filters: ScanFilter) -> bool:
    """Whether no record of a split can be within the times, by the first of it and of the next."""
    low, high = filters.store_ms_from, filters.store_ms_to
    if first_ms is None:
        return False  # damage from end to end: it is to be reported
    if high is not None and first_ms - CLOCK_SLACK_MS >= high:
        return True
    return low is not None and following_ms is not None and following_ms + CLOCK_SLACK_MS < low


def _is_empty(begin: int | None, end: int | None) -> bool:
    return begin is not None and end is not None and begin >= end
