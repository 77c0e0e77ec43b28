"""Rows of a commitlog: `scan_split` walks a range of a segment and yields batches of columns.

Runs of plain records are taken at once (`plain_records`). Whatever is none (another magic, IPv6, a
record larger than the window, bytes that do not add up) is judged by `LogWalk`, and by the same
rules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import attrs
import numpy as np
from numpy.typing import NDArray

from trioha.analysis.log_source import LogSource
from trioha.analysis.log_walk import ENTRY_SIZE, LogWalk, Sound, Unsound
from trioha.analysis.open_source import open_source
from trioha.analysis.plain_records import PlainReader
from trioha.analysis.row_batch import Contents, as_ipv4
from trioha.analysis.row_batch import RowBatch as RowBatch  # of the same interface
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import SPLIT_BYTES, CorruptRow, LogSplit, StoreFiles
from trioha.analysis.topic_codes import TopicCodes
from trioha.wire.record import SCAN_SIZE

Detail = Literal["headers", "full"]

CLOCK_SLACK_MS = 3_600_000
"""Largest step back of a store's clock (a new master's, or one set back) with which pruning by time
loses no record. Rows are compared exactly; only the choice of splits allows for the step."""

_WINDOW_BYTES = 4 << 20
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20
_BODY_SIZE = struct.Struct(">i")
_BODY_SIZE_AT = 84
_WRONG_CHECKSUM = "body does not match its checksum"


@attrs.frozen(kw_only=True)
class ScanFilter:
    """Conditions on wanted records, which hold all at once; ranges are half open. Exact."""

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
    split: LogSplit,
    *,
    columns: Detail = "headers",
    filters: ScanFilter | None = None,
    checks_bodies: bool = True,
) -> Iterator[RowBatch]:
    """Rows of the records that begin in the split, and its damaged stretches.

    Of a full scan a body that does not match its checksum is damage, unless `checks_bodies` is off.
    A file that was deleted since the split was made is reported as a damaged stretch.

    Errors: AnalysisError when the file cannot be read; damage is never an error.
    """
    cut = _cut(split, filters or NO_FILTER)
    if cut is None or (filters is not None and filters.is_empty):
        return
    path = split.segment.path
    try:
        with open_source(path) as source:
            yield from scan_source(
                source, cut, columns=columns, filters=filters, checks_bodies=checks_bodies
            )
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
    checks_bodies: bool = True,
) -> Iterator[RowBatch]:
    """Scan bytes from any source, as `scan_split` does."""
    is_full = columns == "full"
    scan = _Scan(source, split, is_full, filters or NO_FILTER, is_full and checks_bodies)
    return scan.batches()


class _Scan:
    """One pass over one split."""

    def __init__(
        self,
        source: LogSource,
        split: LogSplit,
        is_full: bool,
        filters: ScanFilter,
        checks_bodies: bool,
    ) -> None:
        segment = split.segment
        self._source = source
        self._split = split
        self._segment = segment
        self._filters = filters
        self._is_full = is_full
        self._checks_bodies = checks_bodies
        self._lead = ENTRY_SIZE if segment.is_dledger else 0
        self._walk = LogWalk(source, segment.from_offset, is_dledger=segment.is_dledger)
        self._stop = min(split.end, source.size)
        self._topics = TopicCodes(filters.topics)
        self._window = b""
        self._window_at = 0
        self._plain = PlainReader(self._lead)
        self._wants_few = filters.topics is not None
        self._clear()
        if split.gap is not None:
            self._corrupt.append(split.gap)

    def _clear(self) -> None:
        self._heads: list[bytes] = []
        self._codes: list[NDArray[np.int32]] = []
        self._contents: list[Contents] = []
        self._row_count = 0
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
            if self._row_count >= _BATCH_ROWS or self._log_bytes >= _BATCH_BYTES:
                reached = min(position, self._stop)
                yield self._batch(reached - done)
                done = reached
        self._look_behind(position)
        yield self._batch(self._stop - done)

    def _advance(self, position: int) -> int:
        """Take rows up to the window's end, or get past one thing that is no plain record."""
        if not 0 <= position - self._window_at <= len(self._window) // 8 * 7:
            self._window = self._source.read(position, _WINDOW_BYTES)
            self._window_at = position
        reached = self._take(position)
        return self._step(position) if reached == position else reached

    def _take(self, position: int) -> int:
        """Rows of the plain records from `position` to the window's end; where they stop."""
        window, at = self._window, self._window_at
        found = self._plain.read(
            window, self._segment.from_offset + at, position - at, self._stop - at
        )
        if found is None:
            return position
        codes = self._topics.codes(found, window)
        if len(codes) < len(found):
            found = found.first(len(codes))
        # Only the last one can be unsound: it ends where no record begins, or the data ends.
        if len(found) and not isinstance(self._walk.sound(at + int(found.begins[-1])), Sound):
            found = found.first(len(found) - 1)
        if not len(found):
            return position
        codes = codes[: len(found)]
        reached = at + int(found.ends[-1])
        if self._wants_few:
            is_wanted = codes >= 0
            found, codes = found.only(is_wanted), codes[is_wanted]
        self._keep(found.heads, codes)
        if self._is_full:
            self._contents.append(
                Contents(
                    window,
                    found.begins,
                    found.body_at,
                    found.body_end,
                    found.topic_end + 2,
                    found.ends,
                )
            )
        return reached

    def _keep(self, heads: NDArray[np.void], codes: NDArray[np.int32]) -> None:
        self._heads.append(heads.tobytes())
        self._codes.append(codes)
        self._row_count += len(codes)

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
        code = self._topics.code(record.topic)
        if code is None or code < 0:
            return
        whole = self._source.read(
            position, (record.end if self._is_full else record.body_at) - position
        )
        body_at, properties_at = record.body_at - position, record.properties_at - position
        head = whole[:body_at]
        if record.body_at - record.record_at > SCAN_SIZE:
            head, hosts = as_ipv4(head, self._lead)
            self._odd_hosts[self._row_count] = hosts
        self._heads.append(head)
        self._codes.append(np.array([code], np.int32))
        self._row_count += 1
        if self._is_full:
            (body_size,) = _BODY_SIZE.unpack_from(head, self._lead + _BODY_SIZE_AT)
            places = (0, body_at, body_at + body_size, properties_at, len(whole))
            self._contents.append(
                Contents(whole, *(np.array([place], np.int64) for place in places))
            )

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
        """Report damage behind the last record: a scan that goes on from here passes over it."""
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
            self._row_count,
            self._corrupt,
            bytes_done,
            b"".join(self._heads),
            self._lead + SCAN_SIZE,
            np.concatenate(self._codes) if self._codes else np.empty(0, np.int32),
            self._topics.names,
            self._odd_hosts,
            self._contents if self._is_full else None,
        )
        self._clear()
        batch = _filtered(batch, self._filters)
        if self._checks_bodies and not all(batch.crc_ok):
            _report_checksums(batch)
        return batch


def _filtered(batch: RowBatch, filters: ScanFilter) -> RowBatch:
    """The batch without rows of other queues and times; topics and offsets are dealt with."""
    mask = np.ones(batch.row_count, np.bool_)
    if filters.queue_ids is not None:
        mask &= np.isin(batch.numbers("queue_id"), list(filters.queue_ids))
    if filters.store_ms_from is not None:
        mask &= batch.numbers("store_ms") >= filters.store_ms_from
    if filters.store_ms_to is not None:
        mask &= batch.numbers("store_ms") < filters.store_ms_to
    return batch if mask.all() else batch.only(mask)


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
    base = split.segment.first_offset
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
        with open_source(segment.path) as source:
            walk = LogWalk(source, segment.from_offset, is_dledger=segment.is_dledger)
            position = walk.find(split.begin, split.end)
            record = None if position < 0 else walk.sound(position)
            return walk.store_ms(record) if isinstance(record, Sound) else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AnalysisError(f"cannot read {segment.path}: {error.strerror}") from None


def _is_beyond(first_ms: int | None, following_ms: int | None, filters: ScanFilter) -> bool:
    """Tell whether no record of a split can be within the times, by its first and the next's."""
    low, high = filters.store_ms_from, filters.store_ms_to
    if first_ms is None:
        return False  # damage from end to end: it is to be reported
    if high is not None and first_ms - CLOCK_SLACK_MS >= high:
        return True
    return low is not None and following_ms is not None and following_ms + CLOCK_SLACK_MS < low


def _is_empty(begin: int | None, end: int | None) -> bool:
    return begin is not None and end is not None and begin >= end
