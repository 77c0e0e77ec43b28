"""A streaming query that follows stores being written.

Theory of operation. The offset of a batch is, for every store, where its last complete record
ends: ``{"/data/store-a": 1234}``. Records between two offsets are those that begin there, whatever
segments they lie in, so none is in two batches or in none. The end is found by walking from the
last known one; only whole records count, so a record being written waits for the next batch. A
store whose directory is not there yet stands at -1 and begins with its first record.

Errors: when the log no longer holds an offset (retention was faster, or the log was cut), the query
fails with a sentence, or with `failOnDataLoss` false goes on at the first record there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from trioha.analysis.arrow_batches import to_arrow
from trioha.analysis.log_end import LogEnd
from trioha.analysis.open_source import is_remote
from trioha.analysis.scan import Detail, plan_splits, scan_split
from trioha.analysis.schema import COMMITLOG_FULL, AnalysisError, TableSchema
from trioha.analysis.spark.read_options import read_options, size_option
from trioha.analysis.store_files import SPLIT_BYTES, StoreFiles, open_store, open_within

Offsets = dict[str, int]
NOTHING_YET = -1
"""Offset of a store that has no record yet."""
_BEFORE_THE_LOG = frozenset({"lock", "abort", "checkpoint", "config", "journal"})
"""Entries of a store's directory that a broker may make before the log."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one worker of the driver as long as the query; `read` runs in the others."""

    def __init__(self, options: Mapping[str, str], table: TableSchema, schema: pa.Schema) -> None:
        self._options = read_options(options)
        self._paths = [place for path in self._options.paths for place in _places(path)]
        self._bytes_max = size_option(options, "maxBytesPerTrigger", 0)
        self._fails_on_loss = options.get("failOnDataLoss", "true").strip().lower() != "false"
        self._table = table
        self._schema = schema
        self._ends: dict[str, LogEnd] = {}
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:
        return {path: self._first(path) for path in self._paths}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._bytes_max) if self._bytes_max else ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = {path: self._end(path, start.get(path, NOTHING_YET)) for path in self._paths}
        if self._target is not None:
            ends = {path: min(end, self._target.get(path, end)) for path, end in ends.items()}
        if not isinstance(limit, ReadMaxBytes):
            return ends
        # Each store gets its share, so that a busy one does not starve the others.
        share = max(1, limit.max_bytes // max(1, len(ends)))
        return {
            path: self._cut(path, start.get(path, NOTHING_YET), end, share)
            for path, end in ends.items()
        }

    def reportLatestOffset(self) -> Offsets:
        return {path: self._end(path, NOTHING_YET) for path in self._paths}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        partitions = []
        for path, stop in end.items():
            begin = start.get(path, NOTHING_YET)
            if stop <= begin:
                continue
            store = open_store(path)
            filters = attrs.evolve(
                self._options.filters,
                phy_offset_from=self._checked(store, begin),
                phy_offset_to=stop,
            )
            splits = plan_splits(store, filters, self._options.split_bytes or SPLIT_BYTES)
            partitions += [InputPartition((split, filters)) for split in splits]
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        split, filters = partition.value
        detail: Detail = "full" if self._table == COMMITLOG_FULL else "headers"
        for batch in scan_split(split, columns=detail, filters=filters, checks_bodies=False):
            if batch.row_count:
                yield to_arrow(batch, self._table, self._schema)

    def _first(self, path: str) -> int:
        starting = self._options.starting
        if starting.offsets is not None:
            return starting.of(starting.offsets, path)
        store = _opened(path)
        offset = None if store is None else starting.offset_in(store)
        return NOTHING_YET if offset is None else offset

    def _end(self, path: str, start: int) -> int:
        """End of the last complete record; `start` when nothing is behind it."""
        store = _opened(path)
        if store is None:
            return start
        log_end = self._ends.setdefault(path, LogEnd())
        return max(start, log_end.find(store))

    def _cut(self, path: str, start: int, end: int, bytes_max: int) -> int:
        """`end`, or the place `bytes_max` behind `start` if that is less.

        The place may lie within a record, which belongs to the batch in which it begins: a record
        longer than `bytes_max` makes a batch longer than that, and the next one may be empty.
        """
        store = _opened(path)
        if store is None or not store.segments:
            return end
        begin = max(start, store.segments[0].from_offset)
        return min(end, begin + bytes_max)

    def _checked(self, store: StoreFiles, begin: int) -> int:
        first = store.segments[0].from_offset if store.segments else 0
        if begin == NOTHING_YET or begin >= first:
            return max(begin, first)
        if self._fails_on_loss:
            raise AnalysisError(
                f"{store.label}: offset {begin} is gone, the log now begins at {first}; start the "
                "query anew, or set failOnDataLoss to false to go on there"
            )
        return first


def _places(path: str) -> list[str]:
    """The store at `path` though it may not be there yet, or the stores in that directory."""

    def place(path: str) -> str:
        _opened(path)
        return path

    return open_within(path, place)


def _opened(path: str) -> StoreFiles | None:
    """The store, or None while a broker has not made it."""
    directory = Path(path)
    if is_remote(path):
        return open_store(path)
    if not directory.exists():
        return None
    if directory.is_dir() and all(entry.name in _BEFORE_THE_LOG for entry in directory.iterdir()):
        return None
    return open_store(path)
