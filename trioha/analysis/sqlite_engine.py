"""The engine without a JVM: SQLite in this process, over tables filled from the scanner.

Theory of operation. A query names the views it reads. Each is a table in a database on disk,
filled when it is first needed and only with the columns that the text of the query mentions; a
later query that mentions more fills it again with all that were ever mentioned. So memory is
bounded (a batch of rows and SQLite's page cache) and disk holds what was asked for, bodies only
when somebody names them. The time window is applied by the scanner. One thread.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from trioha.analysis.consume_queues import scan_queue
from trioha.analysis.engine import ROWS_MAX, VIEWS, Window, mentioned_columns
from trioha.analysis.inputs import Inputs
from trioha.analysis.journal_rows import JournalCorruptRow, JournalRow
from trioha.analysis.progress import NoProgress, Progress
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.scan import Detail, ScanFilter, scan_split
from trioha.analysis.schema import (
    COMMITLOG,
    COMMITLOG_CORRUPT,
    COMMITLOG_FULL,
    CONSUMEQUEUE,
    JOURNAL,
    JOURNAL_CORRUPT,
    AnalysisError,
    TableSchema,
)
from trioha.analysis.stats import STATS, host_of, statistics_of
from trioha.analysis.store_files import StoreFiles

_CACHE_KIB = 65_536
_STEPS_BETWEEN_SIGNALS = 200_000
"""Steps of SQLite's machine (a few milliseconds) between two looks at a pending Ctrl-C."""
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
        self._directory = Path(tempfile.mkdtemp(prefix="trioha-analyze-", dir=scratch))
        self._filled: dict[str, frozenset[str]] = {}
        self._mentioned: dict[str, frozenset[str]] = {}
        self._db = self._open()

    def __enter__(self) -> SqliteEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the database. Idempotent."""
        self._db.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def note(self, text: str) -> None:
        self._inputs.note(text)

    def journal(self, names: Collection[str] | None = None) -> Iterator[JournalRow]:
        return self._inputs.journal_rows(names)

    def host(self, column: str) -> str:
        return f"HOST_OF({column})"

    def item(self, column: str, key: str) -> str:
        return f"JSON_EXTRACT({column}, '$.\"{key}\"')"

    def query(self, sql: str, *, views: Collection[str]) -> list[dict[str, Any]]:
        try:
            for view in views:
                self._need(view, sql)
            self._progress.begin("query", 0, "rows")
            cursor = self._db.execute(sql)
            rows = cursor.fetchmany(ROWS_MAX + 1)
        except sqlite3.Error as error:
            raise self._explained(error, sql) from error
        finally:
            self._progress.end()
        if len(rows) > ROWS_MAX:
            raise AnalysisError(f"a query has more than {ROWS_MAX} rows; aggregate in SQL: {sql}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._directory / "views.sqlite", isolation_level=None)
        # Nothing here outlives the process: no journal, no fsync.
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.create_function("HOST_OF", 1, _host_or_none, deterministic=True)
        # SQLite runs without Python: only this call lets a pending Ctrl-C be seen, and stop it.
        db.set_progress_handler(lambda: 0, _STEPS_BETWEEN_SIGNALS)
        return db

    def _explained(self, error: sqlite3.Error, sql: str) -> BaseException:
        text = str(error)
        if "interrupted" in text:
            return KeyboardInterrupt()
        if "full" in text or "disk I/O" in text:
            return AnalysisError(
                f"no room for the temporary database in {self._directory.parent};"
                " set TMPDIR to a disk with more, or use --engine spark"
            )
        return AnalysisError(f"a query of a report failed: {text}: {' '.join(sql.split())}")

    def _need(self, view: str, sql: str) -> None:
        if view not in VIEWS:
            raise AnalysisError(f"{view} is no view; there are {', '.join(VIEWS)}")
        if view in STATS:
            if view not in self._filled:
                self._fill_stats()
            return
        schema = _SCHEMAS[view]
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
        for table in STATS.values():
            self._create(_partial(table.schema), list(table.columns))
        for store in self.stores:
            for piece in statistics_of(store.label, self._scan("headers", [store])):
                for name, rows in piece.items():
                    self._add(_partial(STATS[name].schema), list(STATS[name].columns), rows)
        for table in STATS.values():
            source = _partial(table.schema).name
            self._db.execute(f"DROP TABLE IF EXISTS {table.name}")
            self._db.execute(
                f"CREATE TABLE {table.name} AS {table.merge_sql.format(source=source)}"
            )
            self._db.execute(f"DROP TABLE {source}")
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
        self._create(schema, names)
        self._add(schema, names, rows)
        self._filled[schema.name] = frozenset(names)

    def _create(self, schema: TableSchema, names: list[str]) -> None:
        columns = ", ".join(f'"{name}" {schema.type_of(name).sqlite}' for name in names)
        self._db.execute(f"DROP TABLE IF EXISTS {schema.name}")
        self._db.execute(f"CREATE TABLE {schema.name} ({columns})")

    def _add(self, schema: TableSchema, names: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * len(names))
        self._db.execute("BEGIN")
        try:
            self._db.executemany(f"INSERT INTO {schema.name} VALUES ({places})", rows)
        finally:
            # There is no journal to roll back with; a table not noted as filled is made anew.
            self._db.execute("COMMIT")


_SCHEMAS = {
    schema.name: schema
    for schema in (
        COMMITLOG,
        COMMITLOG_FULL,
        COMMITLOG_CORRUPT,
        CONSUMEQUEUE,
        JOURNAL,
        JOURNAL_CORRUPT,
    )
}


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


def _partial(schema: TableSchema) -> TableSchema:
    return TableSchema(f"{schema.name}_partial", schema.columns)


def _host_or_none(address: str | None) -> str | None:
    return None if address is None else host_of(address)
