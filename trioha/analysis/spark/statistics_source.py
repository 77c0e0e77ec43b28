"""The data source behind the three statistics: counted in the workers, merged by Spark.

A row of any statistic is a row of one wide table, so that one scan and one merge serve all three:
its kind, its keys (texts by name, numbers as k0, k1), its measures by how they merge: sum0, min0, …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from trioha.analysis.arrow_batches import schema_of, to_arrow, with_held_times
from trioha.analysis.database import Database
from trioha.analysis.scan import plan_splits, scan_split
from trioha.analysis.schema import COMMITLOG
from trioha.analysis.spark.read_options import ReadOptions, read_options
from trioha.analysis.stats import COUNTED, STATS, StatsTable
from trioha.analysis.store_files import LogSplit, open_store

_RECORDS = "records"
_TEXTS = ("store", "topic", "born_host")


def wide_names(table: StatsTable) -> dict[str, str]:
    """Columns of a statistic -> columns of the wide table."""
    counts: Counter[str] = Counter()
    names = {}
    for name in table.keys:
        names[name] = name if name in _TEXTS else f"k{counts['k']}"
        counts["k"] += name not in _TEXTS
    for name, (merge, _) in table.measures.items():
        names[name] = f"{merge.lower()}{counts[merge]}"
        counts[merge] += 1
    return names


_NUMBERS = sorted(
    {wide for table in STATS.values() for wide in wide_names(table).values()} - set(_TEXTS)
)
_KEYS = ("kind", *_TEXTS, *(name for name in _NUMBERS if name.startswith("k")))
_MEASURES = tuple(name for name in _NUMBERS if not name.startswith("k"))
_ARROW = pa.schema(
    [(name, pa.string() if name in ("kind", *_TEXTS) else pa.int64()) for name in _KEYS]
    + [(name, pa.int64()) for name in _MEASURES]
)


def wide_merge_sql(source: str) -> str:
    """SELECT that merges rows of equal keys, whatever their kind."""
    keys = ", ".join(_KEYS)
    measures = ", ".join(f"{name[:3]}({name}) AS {name}" for name in _MEASURES)
    return f"SELECT {keys}, {measures} FROM {source} GROUP BY {keys}"


def of_wide_sql(table: StatsTable, source: str) -> str:
    """SELECT of one statistic out of the wide table."""
    columns = ", ".join(f"{wide} AS {name}" for name, wide in wide_names(table).items())
    return f"SELECT {columns} FROM {source} WHERE kind = '{table.name}'"


def no_statistics() -> pa.Table:
    """The wide table without a row."""
    return _ARROW.empty_table()


class StatisticsSource(DataSource):
    """`trioha_statistics`: options as `rocketmq_commitlog` has them."""

    @classmethod
    def name(cls) -> str:
        return "trioha_statistics"

    def schema(self) -> str:
        return ", ".join(
            f"{field.name} {'STRING' if field.type == pa.string() else 'BIGINT'}"
            for field in _ARROW
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(read_options(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        stores = [open_store(path) for path in options.paths]
        total = sum(store.data_bytes for store in stores)
        return [
            InputPartition(split)
            for store in stores
            for split in plan_splits(store, options.filters, options.task_bytes(total))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        split: LogSplit | None = partition.value
        if split is None:  # Spark asks once when there are no partitions
            return
        schema = schema_of(COMMITLOG, COUNTED)
        batches = [
            with_held_times(to_arrow(batch, COMMITLOG, schema))
            for batch in scan_split(split, filters=self._options.filters)
            if batch.row_count
        ]
        database = Database()
        try:
            database.hold(_RECORDS, pa.Table.from_batches(batches, schema))
            for table in STATS.values():
                yield from _widened(table, database).to_batches()
        finally:
            database.close()


def _widened(table: StatsTable, database: Database) -> pa.Table:
    places = {wide: name for name, wide in wide_names(table).items()}
    columns = ", ".join(
        f"'{table.name}' AS kind"
        if field.name == "kind"
        else f"{places.get(field.name, 'NULL')} AS {field.name}"
        for field in _ARROW
    )
    counted = database.arrow(f"SELECT {columns} FROM ({table.count_sql(_RECORDS)})")
    return counted.cast(_ARROW)
