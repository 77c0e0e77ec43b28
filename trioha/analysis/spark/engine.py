"""The engine on Spark: the same views over our data sources, on any cluster.

Theory of operation. A view is a temporary view over a data source that is told which columns the
query mentions, since Spark prunes none of a Python source. Nothing is read until a query runs, and
only results come to the driver. So it needs nothing but the stores, and every query scans what it
reads: where the workers see the driver's scratch directory, `LocalEngine` over files that they
decode is many times cheaper.

Statistics are small: they are counted in the workers once, and live in DuckDB on the driver. There
a query over a day's minutes takes milliseconds; as a job of Spark's it takes a second, and reports
ask dozens of them. A query that reads a statistic beside another view gets it as a view of Spark's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
from trioha.analysis.spark.jobs import Jobs
from trioha.analysis.spark.statistics_source import (
    StatisticsSource,
    no_statistics,
    of_wide_sql,
    wide_merge_sql,
)
from trioha.analysis.stats import STATS, StatsTable
from trioha.analysis.store_files import LogSplit, StoreFiles

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
_WIDE = "trioha_statistics"


class SparkEngine:
    """`Engine` on a session that its caller opens and closes.

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
    ) -> None:
        self.stores: Sequence[StoreFiles] = inputs.stores
        self.journal_count = len(inputs.journals)
        self.window: Window = inputs.window
        self._session = session
        self._inputs = inputs
        self._progress = progress or NoProgress()
        self._views: dict[str, frozenset[str]] = {}
        self._statistics: Database | None = None
        self._scratch = scratch
        self._jobs = Jobs(session, inputs.note)
        register(session)
        session.dataSource.register(StatisticsSource)

    def index_keys(self, store: StoreFiles) -> Sequence[tuple[LogSplit, Path]]:
        return ()

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
        with self._jobs.watched(f"spark: {', '.join(views)}", self._progress, sql):
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
            # One task a core: each costs Spark as much as decoding some tens of MiB.
            options = {"splitBytes": "1g", **({"topic": few} if few else {})}
            timed = view in _TIMED
            frame = self._read(_FORMATS[view], paths, timed=timed, columns=names, options=options)
        else:
            frame = self._session.createDataFrame([], schema.spark_ddl(tuple(names)))
        frame.createOrReplaceTempView(view)
        self._views[view] = frozenset() if few else wanted

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
        paths = [store.label for store in self.stores]
        wide = no_statistics()
        if paths:
            with self._jobs.watched("spark: reading headers", self._progress):
                read = self._read(StatisticsSource.name(), paths, timed=True)
                read.createOrReplaceTempView(_WIDE)
                wide = self._session.sql(wide_merge_sql(_WIDE)).toArrow()
        database.hold(_WIDE, wide)
        for table in STATS.values():
            database.create(table.name, of_wide_sql(table, _WIDE))
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


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return bytes(value) if isinstance(value, bytearray) else value
