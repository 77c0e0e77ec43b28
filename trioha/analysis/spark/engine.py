"""The engine on Spark: the same views over our data sources, on any cluster.

Theory of operation. A view is a temporary view over a data source that is told which columns the
query mentions, since Spark prunes none of a Python source. Nothing is read until a query runs, and
only results come to the driver. While a query runs, a thread looks at Spark's status tracker, the
one place where Spark tells how far its tasks are.

Statistics are small: they are counted in the workers once, and live in SQLite on the driver. There
a query over a day's minutes takes milliseconds; as a job of Spark's it takes a second, and reports
ask dozens of them. A query that reads a statistic beside another view gets it as a view of Spark's.

Where the workers see the driver's scratch directory and reports will read the log itself, the pass
that counts leaves the log's tables there as Parquet, and the views are of those files
(`trioha.analysis.spark.spill`). Elsewhere every query scans what it reads.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from trioha.analysis.database import Database
from trioha.analysis.engine import (
    ROWS_MAX,
    NoProgress,
    Progress,
    Window,
    mentioned_columns,
    views_read,
)
from trioha.analysis.inputs import Inputs
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.schema import TABLES, AnalysisError
from trioha.analysis.spark import register
from trioha.analysis.spark.session import first_line
from trioha.analysis.spark.spill import CORRUPT, QUEUES, RECORDS, spilled_columns
from trioha.analysis.spark.statistics_source import StatisticsSource, rows_of_wide, wide_merge_sql
from trioha.analysis.stats import STATS, StatsTable
from trioha.analysis.store_files import StoreFiles

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {
    "commitlog": "rocketmq_commitlog",
    "commitlog_full": "rocketmq_commitlog_full",
    "commitlog_corrupt": "rocketmq_commitlog_corrupt",
    "consumequeue": "rocketmq_consumequeue",
    "journal": "trioha_journal",
    "journal_corrupt": "trioha_journal_corrupt",
}
_TIMED = frozenset({"commitlog", "commitlog_full", "commitlog_corrupt", "journal"})
_BY_TOPIC = frozenset({"commitlog", "commitlog_full", "consumequeue"})
_SPILLED = {
    "commitlog": RECORDS,
    "commitlog_full": RECORDS,
    "commitlog_corrupt": CORRUPT,
    "consumequeue": QUEUES,
}
_WIDE = "trioha_statistics"
_LOOK_INTERVAL_S = 0.25
_IDLE_LIMIT_S = 20.0
"""Without one running task for so long, the user is told that nobody works."""
_OUR_SENTENCE = re.compile(r"AnalysisError: (.+)")


class SparkEngine:
    """`Engine` on a session that somebody else opened and closes.

    Errors: AnalysisError, one sentence: a query that Spark refuses, a task that fails.
    """

    name = "spark"

    def __init__(
        self,
        session: SparkSession,
        inputs: Inputs,
        *,
        scratch: Path | None = None,
        progress: Progress | None = None,
        spills: Collection[str] = (),
    ) -> None:
        """`spills`: views to be kept in `scratch`, which all workers must then see."""
        self.stores: Sequence[StoreFiles] = inputs.stores
        self.journal_count = len(inputs.journals)
        self.window: Window = inputs.window
        self._session = session
        self._spills = frozenset(spills) & _SPILLED.keys() if scratch is not None else frozenset()
        self._inputs = inputs
        self._progress = progress or NoProgress()
        self._views: dict[str, frozenset[str]] = {}
        self._statistics: Database | None = None
        self._scratch = scratch
        register(session)
        session.dataSource.register(StatisticsSource)

    def note(self, text: str) -> None:
        self._inputs.note(text)

    def journal(self, names: Collection[str] | None = None) -> Iterator[JournalRow]:
        return self._inputs.journal_rows(names)

    def host(self, column: str) -> str:
        # IPv6 hosts hold colons too: the port is what stands behind the last.
        port = f"SUBSTRING_INDEX({column}, ':', -1)"
        cut = f"LEFT({column}, LENGTH({column}) - LENGTH({port}) - 1)"
        return f"(CASE WHEN {column} RLIKE ':[0-9]+$' THEN {cut} ELSE {column} END)"

    def item(self, column: str, key: str) -> str:
        return f"ELEMENT_AT({column}, '{key}')"

    def query(self, sql: str, *, topics: Collection[str] | None = None) -> list[dict[str, Any]]:
        views = views_read(sql)
        statistics = self._counted() if any(view in STATS for view in views) else None
        if statistics is not None and all(view in STATS for view in views):
            return statistics.query(sql)
        with _explained(sql), self._watched(f"spark: {', '.join(views)}"):
            for view in views:
                if view in STATS and statistics is not None:
                    self._copy(statistics, STATS[view])
                else:
                    self._need(view, sql, topics)
            rows = self._session.sql(sql).limit(ROWS_MAX + 1).collect()
        if len(rows) > ROWS_MAX:
            raise AnalysisError(f"a query has more than {ROWS_MAX} rows; aggregate in SQL: {sql}")
        return [{name: _plain(value) for name, value in row.asDict().items()} for row in rows]

    def close(self) -> None:
        """Let go of what is kept for this engine; the session stays."""
        if self._statistics is not None:
            self._statistics.close()
            self._statistics = None
        for view in self._views:
            self._session.catalog.dropTempView(view)
        self._views.clear()

    def __enter__(self) -> SparkEngine:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if error is None:  # else the session may be past answering
            self.close()
        elif self._statistics is not None:
            self._statistics.close()

    def _need(self, view: str, sql: str, topics: Collection[str] | None) -> None:
        schema = TABLES[view]
        wanted = mentioned_columns(schema, sql)
        if view in self._spills and (
            view not in ("commitlog", "commitlog_full") or wanted <= spilled_columns()
        ):
            self._need_spilled(view)
            return
        few = ",".join(sorted(topics)) if topics and view in _BY_TOPIC else ""
        if self._views.get(view) == wanted and not few:
            return
        names = [name for name in schema.names if name in wanted]
        paths = (
            [str(path) for path in self._inputs.journals]
            if view.startswith("journal")
            else [store.label for store in self.stores]
        )
        if paths:
            options = {"topic": few} if few else {}
            timed = view in _TIMED
            frame = self._read(_FORMATS[view], paths, timed=timed, columns=names, options=options)
        else:
            frame = self._session.createDataFrame([], schema.spark_ddl(tuple(names)))
        frame.createOrReplaceTempView(view)
        self._views[view] = frozenset() if few else wanted

    def _need_spilled(self, view: str) -> None:
        schema = TABLES[view]
        held = frozenset(schema.names) & (
            spilled_columns() if _SPILLED[view] == RECORDS else frozenset(schema.names)
        )
        if self._views.get(view) == held:
            return
        assert self._scratch is not None, f"{view} is to be kept, but there is no place for it"
        directory = self._scratch.absolute() / _SPILLED[view]
        if view != "consumequeue":
            self._counted()
        elif self.stores and not directory.exists():
            paths = [store.label for store in self.stores]
            self._read(_FORMATS[view], paths, timed=False).write.parquet(directory.as_uri())
        ddl = schema.spark_ddl(tuple(name for name in schema.names if name in held))
        if any(directory.glob("*.parquet")):
            frame = self._session.read.schema(ddl).parquet(directory.as_uri())
        else:
            frame = self._session.createDataFrame([], ddl)
        frame.createOrReplaceTempView(view)
        self._views[view] = held

    def _read(
        self,
        source: str,
        paths: list[str],
        *,
        timed: bool,
        columns: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        reader = self._session.read.format(source).options(**(options or {}))
        if columns:
            reader = reader.option("columns", ",".join(columns))
        # A small store too is read by all cores.
        reader = reader.option("minPartitions", self._session.sparkContext.defaultParallelism)
        if timed and self.window.from_ms is not None:
            reader = reader.option("from", str(self.window.from_ms))
        if timed and self.window.to_ms is not None:
            reader = reader.option("to", str(self.window.to_ms))
        return reader.load(paths)

    def _counted(self) -> Database:
        """The statistics, counted on first use."""
        if self._statistics is not None:
            return self._statistics
        database = Database(self._scratch)
        database.create_statistics()
        paths = [store.label for store in self.stores]
        if paths:
            spills = any(_SPILLED[view] != QUEUES for view in self._spills)
            what = "spark: reading records" if spills else "spark: reading headers"
            options = {"spill": str(self._scratch.absolute())} if spills and self._scratch else {}
            with _explained(what), self._watched(what):
                wide = self._read(StatisticsSource.name(), paths, timed=True, options=options)
                wide.createOrReplaceTempView(_WIDE)
                merged = self._session.sql(wide_merge_sql(_WIDE)).toArrow()
            for name, rows in rows_of_wide(merged):
                database.add_statistics(name, rows)
        database.merge_statistics()
        self._statistics = database
        return database

    def _copy(self, statistics: Database, table: StatsTable) -> None:
        if table.name in self._views:
            return
        rows = statistics.query(f"SELECT * FROM {table.name}")
        columns = table.columns
        frame = self._session.createDataFrame(
            [tuple(row[name] for name in columns) for row in rows], table.schema.spark_ddl()
        )
        frame.createOrReplaceTempView(table.name)
        self._views[table.name] = frozenset(columns)

    @contextlib.contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        """Show the progress of this thread's jobs until the block is left."""
        context = self._session.sparkContext
        group = f"trioha-{threading.get_ident()}-{id(what)}"
        context.setJobGroup(group, what, interruptOnCancel=True)
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(group, what, over), daemon=True)
        self._progress.begin(what, 0, "tasks")
        watcher.start()
        try:
            yield
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                context.cancelJobGroup(group)
            raise
        finally:
            over.set()
            watcher.join()
            self._progress.end()

    def _watch(self, group: str, what: str, over: threading.Event) -> None:
        tracker = self._session.sparkContext.statusTracker()
        shown = idle_s = 0
        # Not ideal: Spark tells nobody when a task ends, so it has to be asked.
        while not over.wait(_LOOK_INTERVAL_S):
            try:
                done, active, total = _tasks(tracker, group)
            except Exception:  # the session is going: whoever waits for the query hears of it
                return
            self._progress.resize(total)
            self._progress.advance(done - shown)
            shown = done
            idle_s = 0 if active or done == total else idle_s + 1
            if idle_s * _LOOK_INTERVAL_S == _IDLE_LIMIT_S:
                self._inputs.note(
                    f"no worker took a task for {_IDLE_LIMIT_S:.0f} s: are workers registered with"
                    " the master, with free cores and memory?"
                )
                self._progress.begin(f"{what}: waiting for workers", total, "tasks")


def _tasks(tracker: Any, group: str) -> tuple[int, int, int]:
    """Tasks done, running, and known of, in all jobs of a group."""
    done = active = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            tasks = tracker.getStageInfo(stage)
            if tasks is not None:
                done += tasks.numCompletedTasks
                active += tasks.numActiveTasks
                total += tasks.numTasks
    return done, active, total


@contextlib.contextmanager
def _explained(sql: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise _sentence(error, sql) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise _sentence(error, sql) from error
        raise


def _sentence(error: Exception, sql: str) -> AnalysisError:
    ours = _OUR_SENTENCE.search(str(error))
    if ours is not None:
        return AnalysisError(ours[1].strip())
    return AnalysisError(f"Spark: {first_line(error)} ({' '.join(sql.split())[:200]})")


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return bytes(value) if isinstance(value, bytearray) else value
