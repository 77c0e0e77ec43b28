"""Spark data sources over stores and journals.

Theory of operation. The driver lists files and plans partitions: splits of 64 MiB of a log, queues
or journal files. Workers open the files themselves, so every worker must see the store under the
same path. Rows travel as Arrow batches. Spark prunes no columns of a Python source, and each one
costs on its way into the JVM; the option `columns` (or a schema) leaves out what is not needed.

Filters come by options or, where ``spark.sql.python.filterPushdown.enabled`` and the option
`pushFilters` are on, from the query; `PushedFilters` takes exactly those that the scan applies to
the last row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from trioha.analysis import schema as tables
from trioha.analysis.arrow_batches import rows_to_arrow, to_arrow
from trioha.analysis.journal_rows import (
    JournalCorruptRow,
    JournalRow,
    read_file,
    sized_journal_files,
)
from trioha.analysis.scan import Detail, ScanFilter, plan_splits, scan_split
from trioha.analysis.schema import AnalysisError, TableSchema
from trioha.analysis.spark.log_stream import LogStreamReader
from trioha.analysis.spark.places import EARLIEST, ENDING, LATEST
from trioha.analysis.spark.read_options import (
    BY_OFFSET,
    BY_TIME,
    BY_TOPIC,
    FOLLOWING,
    READING,
    PushedFilters,
    ReadOptions,
    check_names,
    read_options,
    schema_of,
)
from trioha.analysis.spill import queue_batches
from trioha.analysis.store_files import (
    CorruptRow,
    LogSplit,
    QueueFiles,
    StoreFiles,
    open_stores,
    open_within,
)

_BATCH_ROWS = 8192
_Piece = TypeVar("_Piece")


class _Source(DataSource):
    format_name: ClassVar[str]
    table: ClassVar[TableSchema]

    @classmethod
    def name(cls) -> str:
        return cls.format_name

    known: ClassVar[tuple[str, ...]] = READING
    """Options of a read."""
    following: ClassVar[tuple[str, ...]] = ()
    """Options of a stream beside those."""

    def schema(self) -> str:
        check_names(self.options, (*self.known, *self.following), self.format_name)
        return schema_of(self.table, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_names(self.options, self.known, f"a read of {self.format_name}")
        return self.reader_class(read_options(self.options), self.table, arrow_schema(schema))

    reader_class: ClassVar[type[_Reader]]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of the batches for its schema."""
    return to_arrow_schema(schema, timezone="UTC")


class _Reader(DataSourceReader):
    """Partitions are tuples of pieces; each worker reads the pieces of one after another."""

    def __init__(self, options: ReadOptions, table: TableSchema, schema: pa.Schema) -> None:
        unknown = [name for name in schema.names if name not in table.spark_names]
        if unknown:
            raise AnalysisError(
                f"the schema asks for {', '.join(unknown)}; {table.name} has "
                f"{', '.join(table.spark_names)}"
            )
        self.options = options
        self.table = table
        self.schema = schema

    @abstractmethod
    def plan(self) -> Sequence[tuple[Any, int]]:
        """Pieces and their sizes in bytes."""

    @abstractmethod
    def read_piece(self, piece: Any) -> Iterator[pa.RecordBatch]:
        """Rows of one piece."""

    def partitions(self) -> Sequence[InputPartition]:
        pieces = self.plan()
        bytes_max = self.options.task_bytes(sum(size for _, size in pieces))
        return [InputPartition(group) for group in _grouped(pieces, bytes_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for piece in partition.value or ():  # None when there are no partitions
            yield from self.read_piece(piece)


class _Pushing:
    """`pushFilters` of a reader for sessions with the switch on and off alike.

    With ``spark.sql.python.filterPushdown.enabled`` off, which is Spark's default, planning fails
    for a reader that has a `pushFilters` of its own; Spark compares `__func__` with its base's. We
    cannot see the switch from here, so this names the base's function, and is called only when
    filters are there to be pushed.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: _FilteringReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class _FilteringReader(_Reader):
    attributes: ClassVar[frozenset[str]]

    @property
    def pushFilters(self) -> _Pushing:
        return _Pushing(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Take what can be applied exactly; what is returned Spark applies itself.

        Not ideal: Spark (4.1 to 4.3, `PythonScanBuilder.pushFilters`) keeps the narrowed reader in
        the DataFrame and uses it for its other scans too, those without filters and those of the
        same query. So nothing is taken unless the option says that there is one scan.
        """
        if not self.options.pushes_filters:
            return filters
        pushed = PushedFilters(self.options.filters, self.table, self.attributes)
        handed_back = [condition for condition in filters if not pushed.take(condition)]
        self.options = attrs.evolve(self.options, filters=pushed.filters)
        return handed_back


class _LogReader(_FilteringReader):
    attributes = frozenset({"topic", "queue_id", "store_ms", "store_time", "phy_offset"})

    def plan(self) -> list[tuple[LogSplit, int]]:
        return _log_pieces(self.options)

    def read_piece(self, piece: LogSplit) -> Iterator[pa.RecordBatch]:
        detail: Detail = "full" if self.table == tables.COMMITLOG_FULL else "headers"
        for batch in scan_split(
            piece, columns=detail, filters=self.options.filters, checks_bodies=False
        ):
            if batch.row_count:
                yield to_arrow(batch, self.table, self.schema)


class _LogCorruptReader(_Reader):
    def plan(self) -> list[tuple[LogSplit, int]]:
        return _log_pieces(self.options)

    def read_piece(self, piece: LogSplit) -> Iterator[pa.RecordBatch]:
        for batch in scan_split(piece, columns="full", filters=self.options.filters):
            if batch.corrupt:
                yield _of_rows(batch.corrupt, CorruptRow, self.table, self.schema)


class _QueueReader(_FilteringReader):
    attributes = frozenset({"topic", "queue_id"})

    def plan(self) -> list[tuple[QueueFiles, int]]:
        filters = self.options.filters
        return [
            (queue, queue.bytes)
            for store in _stores(self.options)
            for queue in store.consume_queues()
            if (filters.topics is None or queue.topic in filters.topics)
            and (filters.queue_ids is None or queue.queue_id in filters.queue_ids)
        ]

    def read_piece(self, piece: QueueFiles) -> Iterator[pa.RecordBatch]:
        yield from queue_batches(piece, self.table, self.schema)


class _JournalReader(_Reader):
    row_class: ClassVar[type[JournalRow] | type[JournalCorruptRow]] = JournalRow

    def plan(self) -> list[tuple[str, int]]:
        return [
            file
            for path in self.options.paths
            for files in open_within(path, sized_journal_files)
            for file in files
        ]

    def read_piece(self, piece: str) -> Iterator[pa.RecordBatch]:
        rows = [row for row in read_file(piece) if self._is_wanted(row)]
        for begin in range(0, len(rows), _BATCH_ROWS):
            some = rows[begin : begin + _BATCH_ROWS]
            yield _of_rows(some, self.row_class, self.table, self.schema)

    def _is_wanted(self, row: JournalRow | JournalCorruptRow) -> bool:
        if not isinstance(row, self.row_class):
            return False
        if isinstance(row, JournalCorruptRow):
            return True
        low, high = self.options.filters.store_ms_from, self.options.filters.store_ms_to
        return (low is None or row.wall_ms >= low) and (high is None or row.wall_ms < high)


class _JournalCorruptReader(_JournalReader):
    row_class = JournalCorruptRow


class CommitLogSource(_Source):
    """Headers of records."""

    format_name = "rocketmq_commitlog"
    table = tables.COMMITLOG
    reader_class = _LogReader
    known = (*READING, *BY_TOPIC, *BY_TIME, *BY_OFFSET)
    following = FOLLOWING

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        known = (*(name for name in self.known if name not in ENDING), *self.following)
        check_names(self.options, known, f"a stream of {self.format_name}")
        return LogStreamReader(self.options, self.table, arrow_schema(schema))


class CommitLogFullSource(CommitLogSource):
    """Records with body and properties."""

    format_name = "rocketmq_commitlog_full"
    table = tables.COMMITLOG_FULL


class CommitLogCorruptSource(_Source):
    """Damaged stretches of the log. Reads bodies, for their checksums."""

    format_name = "rocketmq_commitlog_corrupt"
    table = tables.COMMITLOG_CORRUPT
    reader_class = _LogCorruptReader
    known = (*READING, "topic", *BY_TIME, *BY_OFFSET)


class ConsumeQueueSource(_Source):
    """Entries of consume queues."""

    format_name = "rocketmq_consumequeue"
    table = tables.CONSUMEQUEUE
    reader_class = _QueueReader
    known = (*READING, *BY_TOPIC)


class JournalSource(_Source):
    """Events of trioha's nodes."""

    format_name = "trioha_journal"
    table = tables.JOURNAL
    reader_class = _JournalReader
    known = (*READING, *BY_TIME)


class JournalCorruptSource(_Source):
    """Damaged stretches of journals."""

    format_name = "trioha_journal_corrupt"
    table = tables.JOURNAL_CORRUPT
    reader_class = _JournalCorruptReader


SOURCES: tuple[type[_Source], ...] = (
    CommitLogSource,
    CommitLogFullSource,
    CommitLogCorruptSource,
    ConsumeQueueSource,
    JournalSource,
    JournalCorruptSource,
)


def _log_pieces(options: ReadOptions) -> list[tuple[LogSplit, int]]:
    stores = _stores(options)
    total = sum(store.data_bytes for store in stores)
    return [
        (split, split.end - split.begin)
        for store in stores
        for split in plan_splits(store, _within(store, options), options.task_bytes(total))
    ]


def _within(store: StoreFiles, options: ReadOptions) -> ScanFilter:
    """The filters and, for planning, the offsets between which this store is read."""
    starting, ending, filters = options.starting, options.ending, options.filters
    if starting.word == LATEST or ending.word == EARLIEST:
        raise AnalysisError("a read cannot start at latest or end at earliest: nothing is between")
    if not starting.word and (begin := starting.offset_in(store)) is not None:
        filters = attrs.evolve(filters, phy_offset_from=max(begin, filters.phy_offset_from or 0))
    if not ending.word and (end := ending.offset_in(store)) is not None:
        limit = end if filters.phy_offset_to is None else min(end, filters.phy_offset_to)
        filters = attrs.evolve(filters, phy_offset_to=limit)
    return filters


def _stores(options: ReadOptions) -> list[StoreFiles]:
    return [store for path in options.paths for store in open_stores(path)]


def _grouped(pieces: Iterable[tuple[_Piece, int]], bytes_max: int) -> Iterator[tuple[_Piece, ...]]:
    """Pieces together up to a size, so that small files do not make a task each."""
    group: list[_Piece] = []
    total = 0
    for piece, size in pieces:
        if group and total + size > bytes_max:
            yield tuple(group)
            group, total = [], 0
        group.append(piece)
        total += size
    if group:
        yield tuple(group)


def _of_rows(
    rows: Sequence[Any], row_class: type[Any], table: TableSchema, schema: pa.Schema
) -> pa.RecordBatch:
    names = [field.name for field in attrs.fields(row_class)]
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    return rows_to_arrow(columns, table, schema)
