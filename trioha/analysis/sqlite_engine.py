"""The engine without a JVM: SQLite in this process, over tables filled from the scanner.

Theory of operation. Each view that a query reads is a table in a database on disk, filled when it
is first needed and only with the columns that the text of the query mentions; a later query that
mentions more fills it again with all that were ever mentioned. So memory is bounded (a batch of
rows and SQLite's page cache) and disk holds what was asked for, bodies only when somebody names
them. The time window is applied by the scanner. One thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trioha.analysis.consume_queues import scan_queue
from trioha.analysis.database import Database
from trioha.analysis.engine import NoProgress, Progress, Window, mentioned_columns, views_read
from trioha.analysis.inputs import Inputs
from trioha.analysis.journal_rows import JournalCorruptRow, JournalRow
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.scan import Detail, ScanFilter, scan_split
from trioha.analysis.schema import (
    COMMITLOG_CORRUPT,
    TABLES,
    TableSchema,
)
from trioha.analysis.stats import STATS, Statistics, statistics_of
from trioha.analysis.store_files import StoreFiles

_CORRUPT_COLUMNS = ("store", "segment", "phy_offset", "length", "reason")


class SqliteEngine:
    """`Engine` without a JVM. A context manager: its database goes when the block is left.

    Errors: AnalysisError, one sentence: a query that SQLite refuses, no room for the database.
    """

    name = "local"

    def __init__(
        self,
        inputs: Inputs,
        *,
        scratch: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.stores: Sequence[StoreFiles] = inputs.stores
        self.journal_count = len(inputs.journals)
        self.window: Window = inputs.window
        self._inputs = inputs
        self._progress = progress or NoProgress()
        self._filled: dict[str, frozenset[str]] = {}
        self._mentioned: dict[str, frozenset[str]] = {}
        self._db = Database(scratch)

    def __enter__(self) -> SqliteEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the database. Idempotent."""
        self._db.close()

    def note(self, text: str) -> None:
        self._inputs.note(text)

    def journal(self, names: Collection[str] | None = None) -> Iterator[JournalRow]:
        return self._inputs.journal_rows(names)

    def host(self, column: str) -> str:
        return f"HOST_OF({column})"

    def item(self, column: str, key: str) -> str:
        return f"JSON_EXTRACT({column}, '$.\"{key}\"')"

    def query(self, sql: str, *, topics: Collection[str] | None = None) -> list[dict[str, Any]]:
        # A table serves many queries, so it holds every topic.
        for view in views_read(sql):
            self._need(view, sql)
        return self._db.query(sql)

    def _need(self, view: str, sql: str) -> None:
        if view in STATS:
            if view not in self._filled:
                self._fill_stats()
            return
        schema = TABLES[view]
        wanted = mentioned_columns(schema, sql) | self._mentioned.get(view, frozenset())
        self._mentioned[view] = wanted
        if view in self._filled and wanted <= self._filled[view]:
            return
        self._fillers()[view](schema, [name for name in schema.names if name in wanted])

    def _fillers(self) -> dict[str, Callable[[TableSchema, list[str]], None]]:
        return {
            "commitlog": self._fill_headers,
            "commitlog_full": self._fill_full,
            "commitlog_corrupt": self._fill_corrupt,
            "consumequeue": self._fill_queues,
            "journal": self._fill_journal,
            "journal_corrupt": self._fill_journal_corrupt,
        }

    def _fill_headers(self, schema: TableSchema, names: list[str]) -> None:
        self._insert(schema, names, _rows_of(self._scan("headers"), names))

    def _fill_full(self, schema: TableSchema, names: list[str]) -> None:
        corrupt: list[tuple[Any, ...]] = []

        def batches() -> Iterator[RowBatch]:
            for batch in self._scan("full"):
                corrupt.extend(_corrupt_rows(batch))
                yield batch

        self._insert(schema, names, _rows_of(batches(), names))
        self._insert(COMMITLOG_CORRUPT, list(_CORRUPT_COLUMNS), corrupt)

    def _fill_corrupt(self, schema: TableSchema, names: list[str]) -> None:
        # Damage within a body shows only to who reads bodies.
        corrupt = (row for batch in self._scan("full") for row in _corrupt_rows(batch))
        self._insert(schema, list(_CORRUPT_COLUMNS), corrupt)

    def _fill_stats(self) -> None:
        self._db.create_statistics()
        for store in self.stores:
            for piece in statistics_of(Statistics(store.label), self._scan("headers", [store])):
                for name, rows in piece.items():
                    self._db.add_statistics(name, rows)
        self._db.merge_statistics()
        for table in STATS.values():
            self._filled[table.name] = frozenset(table.columns)

    def _fill_queues(self, schema: TableSchema, names: list[str]) -> None:
        self._insert(schema, list(schema.names), self._queue_rows())

    def _fill_journal(self, schema: TableSchema, names: list[str]) -> None:
        rows = (
            (
                row.node,
                row.source,
                row.sequence,
                row.wall_ms,
                row.name,
                row.level,
                json.dumps(dict(row.fields)),
            )
            for row in self._inputs.journal_rows()
        )
        self._insert(schema, list(schema.names), rows)

    def _fill_journal_corrupt(self, schema: TableSchema, names: list[str]) -> None:
        rows = (
            (item.source, item.position, item.length, item.reason)
            for item in self._inputs.journal_items()
            if isinstance(item, JournalCorruptRow)
        )
        self._insert(schema, list(schema.names), rows)

    def _queue_rows(self) -> Iterator[tuple[Any, ...]]:
        for store in self.stores:
            for queue in store.consume_queues():
                for batch in scan_queue(queue):
                    for row in zip(
                        batch.queue_offset,
                        batch.phy_offset,
                        batch.size,
                        batch.tags_code,
                        strict=True,
                    ):
                        yield (store.label, queue.topic, queue.queue_id, *row)

    def _scan(
        self, columns: Detail, stores: Sequence[StoreFiles] | None = None
    ) -> Iterator[RowBatch]:
        filters = ScanFilter(store_ms_from=self.window.from_ms, store_ms_to=self.window.to_ms)
        for store in self.stores if stores is None else stores:
            splits = store.splits()
            total = sum(split.end - split.begin for split in splits)
            self._progress.begin(f"{store.label}: reading {columns}", total, "bytes")
            try:
                for split in splits:
                    for batch in scan_split(split, columns=columns, filters=filters):
                        self._progress.advance(batch.bytes_done, batch.row_count)
                        yield batch
            finally:
                self._progress.end()

    def _insert(
        self, schema: TableSchema, names: list[str], rows: Iterable[tuple[Any, ...]]
    ) -> None:
        self._filled.pop(schema.name, None)
        self._db.create(schema, names)
        self._db.add(schema.name, len(names), rows)
        self._filled[schema.name] = frozenset(names)


def _rows_of(batches: Iterable[RowBatch], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        if "properties" in names:
            place = names.index("properties")
            for row in batch.rows(names):
                yield (*row[:place], json.dumps(dict(row[place])), *row[place + 1 :])
        else:
            yield from batch.rows(names)


def _corrupt_rows(batch: RowBatch) -> Iterator[tuple[Any, ...]]:
    for row in batch.corrupt:
        yield (row.store, row.segment, row.phy_offset, row.length, row.reason)
