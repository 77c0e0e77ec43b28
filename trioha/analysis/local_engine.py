"""The engine without a JVM: DuckDB in this process, over Parquet that several processes decode.

Theory of operation. When a query first reads a view of the log, all stores are decoded once: their
ranges of 64 MiB go to as many processes as there are processors, and each leaves a Parquet file in
the scratch directory (`spill`). Views are of those files. Headers alone cost least; tags, keys,
single properties and damage need every byte. Columns that few queries name are left out until one
does: then the log is decoded again, for that query alone and of its topics only if it says which.
The time window is applied while decoding.

On Spark the same tasks are run by its workers, where these see the scratch directory: `run_tasks`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from shutil import rmtree
from typing import Any

import attrs
import pyarrow as pa

from trioha.analysis.arrow_batches import rows_to_arrow, schema_of
from trioha.analysis.database import Database
from trioha.analysis.engine import NoProgress, Progress, Window, mentioned_columns, views_read
from trioha.analysis.inputs import Inputs
from trioha.analysis.journal_rows import JournalCorruptRow, JournalRow
from trioha.analysis.reports.index_entries import has_index
from trioha.analysis.scan import NO_FILTER, Detail, ScanFilter, plan_splits
from trioha.analysis.schema import (
    COMMITLOG,
    COMMITLOG_CORRUPT,
    CONSUMEQUEUE,
    DECODED,
    JOURNAL,
    JOURNAL_CORRUPT,
    PROPERTY_COLUMNS,
    TableSchema,
)
from trioha.analysis.spill import CORRUPT, QUEUES, RECORDS, ConsumeQueueTask, LogTask, Task
from trioha.analysis.stats import STATS
from trioha.analysis.store_files import SPLIT_BYTES, LogSplit, StoreFiles

RunTasks = Callable[[str, Sequence[Task], Progress], None]
"""Function that decodes: takes the name of the work, its tasks, and the progress to report to."""
_CONTENTS = frozenset({"properties", "body"})
_RARE = _CONTENTS | {
    "segment",
    "flag",
    "store_host",
    "prepared_offset",
    "body_crc",
    "properties_size",
    "term",
    "entry_index",
    "crc_ok",
    "digest",
}
"""Columns that are left out where there is one store: comparing stores takes many of them."""
_FULL = frozenset({"commitlog_full", "commitlog_corrupt"})
_LOG = _FULL.union({"commitlog"}, STATS)


class LocalEngine:
    """`Engine` without a JVM. A context manager: its files go when the block is left.

    Errors: AnalysisError, one sentence: a query that DuckDB refuses, no room on the disk.
    """

    name = "local"

    def __init__(
        self,
        inputs: Inputs,
        *,
        scratch: Path | None = None,
        progress: Progress | None = None,
        views: Collection[str] = (),
        run_tasks: RunTasks | None = None,
    ) -> None:
        """`views`: what will be read, so that the first decoding makes all of it."""
        self.stores: Sequence[StoreFiles] = inputs.stores
        self.journal_count = len(inputs.journals)
        self.window: Window = inputs.window
        self._inputs = inputs
        self._progress = progress or NoProgress()
        self._processes = Processes()
        self._run_tasks = run_tasks or self._processes.run_tasks
        self._wants_full = bool(_FULL & frozenset(views))
        self._detail: Detail | None = None
        self._columns: frozenset[str] = frozenset()
        """Columns that were decoded of all topics."""
        self._records: list[Path] = []
        self._is_of_topics = False
        """`commitlog_full` is of one query's topics."""
        self._keys: dict[str, list[tuple[LogSplit, Path]]] = {}
        self._made: set[str] = set()
        self._db = Database(scratch)

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and remove the files. Idempotent."""
        self._processes.close()
        self._db.close()

    def note(self, text: str) -> None:
        self._inputs.note(text)

    def journal(self, names: Collection[str] | None = None) -> Iterator[JournalRow]:
        return self._inputs.journal_rows(names)

    def host(self, column: str) -> str:
        return f"host_of({column})"

    def item(self, column: str, key: str) -> str:
        if column == "properties" and key in PROPERTY_COLUMNS:
            return PROPERTY_COLUMNS[key]
        return f"map_extract_value({column}, '{key}')"

    def index_keys(self, store: StoreFiles) -> Sequence[tuple[LogSplit, Path]]:
        return self._keys.get(store.label, ())

    def query(self, sql: str, *, topics: Collection[str] | None = None) -> list[dict[str, Any]]:
        views = views_read(sql)
        if _LOG.intersection(views):
            self._need_log(views, sql, topics)
        for view in views:
            self._need(view)
        return self._db.query(sql)

    def _need(self, view: str) -> None:
        if view in self._made:
            return
        if view in STATS:
            self._db.create(view, STATS[view].count_sql("commitlog"))
        elif view == "consumequeue":
            self._fill_queues()
        elif view == "journal":
            self._fill_journal()
        elif view == "journal_corrupt":
            self._fill_journal_corrupt()
        self._made.add(view)

    def _need_log(self, views: Sequence[str], sql: str, topics: Collection[str] | None) -> None:
        wanted: frozenset[str] = frozenset()
        for table in (COMMITLOG, DECODED):
            if table.name in views:
                wanted |= mentioned_columns(table, sql)
        is_full = bool(_FULL.intersection(views))
        has_detail = self._detail == "full" or (self._detail == "headers" and not is_full)
        if not (has_detail and wanted <= self._columns):
            if has_detail and topics is not None and "commitlog" not in views:
                self._show_topics(wanted, topics)
                return
            self._decode_all(wanted, is_full=is_full)
        elif self._is_of_topics:
            self._show(DECODED, self._columns, self._records)
        self._is_of_topics = False

    def _show_topics(self, wanted: frozenset[str], topics: Collection[str]) -> None:
        """Decode these topics' records for one query."""
        self._is_of_topics = True
        filters = attrs.evolve(self._filters, topics=frozenset(topics))
        tasks = self._tasks("topics", "full", wanted, filters, finds_damage=False)
        self._run("reading bodies and properties", tasks)
        self._show(DECODED, wanted, _files(self._db.directory / "topics" / RECORDS))

    def _decode_all(self, wanted: frozenset[str], *, is_full: bool) -> None:
        """Decode all stores, with these columns and those that most reports read."""
        is_first = self._detail != "full"
        detail: Detail = "full" if is_full or self._wants_full or not is_first else "headers"
        table = DECODED if detail == "full" else COMMITLOG
        is_alone = len(self.stores) < 2
        usual = frozenset(table.names) - (_RARE if is_alone else _CONTENTS)
        columns = self._columns | usual | wanted
        what = f"reading {detail}" if is_first else "reading bodies and properties"
        # If this fails, what was decoded before is there still.
        name = detail if is_first else f"contents-{len(columns)}"
        tasks = self._tasks(name, detail, columns, self._filters, finds_damage=is_first)
        self._run(what, tasks)
        directory, before = self._db.directory / name, self._records
        self._records = _files(directory / RECORDS)
        self._columns, self._detail = columns, detail
        self._show(COMMITLOG, columns, self._records)
        if is_first:
            self._db.view(COMMITLOG_CORRUPT, COMMITLOG_CORRUPT.names, _files(directory / CORRUPT))
        if detail == "full":
            self._show(DECODED, columns, self._records)
        for path in before:
            path.unlink()
        for task in tasks:
            if task.finds_keys:
                self._keys.setdefault(task.split.store, []).append((task.split, task.keys_path))

    def _show(self, table: TableSchema, columns: frozenset[str], files: Sequence[Path]) -> None:
        self._db.view(table, [name for name in table.names if name in columns], files)

    @property
    def _filters(self) -> ScanFilter:
        return ScanFilter(store_ms_from=self.window.from_ms, store_ms_to=self.window.to_ms)

    def _tasks(
        self,
        name: str,
        detail: Detail,
        columns: frozenset[str],
        filters: ScanFilter,
        *,
        finds_damage: bool,
    ) -> list[LogTask]:
        """Decoding all stores into a directory of its own."""
        directory = self._db.directory / name
        rmtree(directory, ignore_errors=True)
        names = tuple(name for name in DECODED.names if name in columns)
        is_whole = finds_damage and detail == "full" and filters == NO_FILTER
        return [
            LogTask(
                str(directory.absolute()),
                split,
                detail,
                names,
                filters,
                finds_damage=finds_damage,
                finds_keys=is_whole and has_index(store),
            )
            for store in self.stores
            for split in plan_splits(store, filters)
        ]

    def _run(self, what: str, tasks: Sequence[Task]) -> None:
        self._run_tasks(what, tasks, self._progress)

    def _fill_queues(self) -> None:
        directory = self._db.directory
        queues = [queue for store in self.stores for queue in store.consume_queues()]
        tasks: list[ConsumeQueueTask] = []
        size, group = 0, []
        for queue in queues:
            group.append(queue)
            size += queue.bytes
            if size >= SPLIT_BYTES or queue is queues[-1]:
                tasks.append(ConsumeQueueTask(str(directory.absolute()), len(tasks), group, size))
                size, group = 0, []
        self._run("reading consume queues", tasks)
        self._db.view(CONSUMEQUEUE, CONSUMEQUEUE.names, _files(directory / QUEUES))

    def _fill_journal(self) -> None:
        columns: dict[str, list[Any]] = {name: [] for name in JOURNAL.names}
        for row in self._inputs.journal_rows():
            for name, values in columns.items():
                values.append(getattr(row, name))
        schema = schema_of(JOURNAL, JOURNAL.names)
        batch = rows_to_arrow(columns, JOURNAL, schema)
        self._db.hold(JOURNAL.name, pa.Table.from_batches([batch]))

    def _fill_journal_corrupt(self) -> None:
        found = [x for x in self._inputs.journal_items() if isinstance(x, JournalCorruptRow)]
        names = JOURNAL_CORRUPT.names
        columns = {name: [getattr(row, name) for row in found] for name in names}
        batch = rows_to_arrow(columns, JOURNAL_CORRUPT, schema_of(JOURNAL_CORRUPT, names))
        self._db.hold(JOURNAL_CORRUPT.name, pa.Table.from_batches([batch]))


class Processes:
    """Pool of one process for each processor, started when there is enough work for them."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def run_tasks(self, what: str, tasks: Sequence[Task], progress: Progress) -> None:
        """Run tasks, a few small ones in this process.

        Errors: AnalysisError of the first task that fails.
        """
        total = sum(task.bytes for task in tasks)
        progress.begin(what, total, "bytes")
        try:
            is_little = total < SPLIT_BYTES or len(tasks) < 2
            done = map(_run, tasks) if is_little or _cores() < 2 else self._at_once(tasks)
            for size, rows in done:
                progress.advance(size, rows)
        finally:
            progress.end()

    def close(self) -> None:
        """End the processes, whatever they do. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
                process.join()

    def _at_once(self, tasks: Iterable[Task]) -> Iterator[tuple[int, int]]:
        if self._pool is None:
            # Threads of Arrow's and DuckDB's would not live on in a forked process.
            spawning = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(_cores(), spawning, initializer=_leave_interrupts)
        waiting = {self._pool.submit(_run, task) for task in tasks}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BaseException:
            self.close()
            raise


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _leave_interrupts() -> None:
    """Ctrl-C reaches the whole group of processes; only the first of them acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(task: Task) -> tuple[int, int]:
    return task.bytes, task.run()


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))
