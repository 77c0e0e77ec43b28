"""The data source behind the three statistics: counted in the workers, merged by Spark.

With the option `spill` the same pass leaves the records as Parquet in that directory
(`trioha.analysis.spark.spill`).

A row of any statistic is a row of one wide table, so that one scan and one merge serve all three:
its kind, its keys (texts by name, numbers as k0, k1), its measures by how they merge: sum0, min0, …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from trioha.analysis.scan import plan_splits, scan_split
from trioha.analysis.spark.arrow_statistics import ArrowStatistics
from trioha.analysis.spark.read_options import ReadOptions, read_options
from trioha.analysis.spark.spill import spilling
from trioha.analysis.stats import STATS, StatsTable, statistics_of
from trioha.analysis.store_files import LogSplit, open_store

_ROWS = 65_536
_TEXTS = ("store", "topic", "born_host")


def wide_names(table: StatsTable) -> dict[str, str]:
    """Columns of a statistic -> columns of the wide table."""
    counts: Counter[str] = Counter()
    names = {}
    for name in table.keys:
        names[name] = name if name in _TEXTS else f"k{counts['k']}"
        counts["k"] += name not in _TEXTS
    for name, merge in table.measures:
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


def rows_of_wide(merged: pa.Table) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Rows of each statistic out of the wide table, in pieces."""
    for batch in merged.to_batches(max_chunksize=_ROWS):
        for table in STATS.values():
            of_kind = batch.filter(pc.equal(batch["kind"], table.name))
            if of_kind.num_rows:
                names = wide_names(table)
                columns = [of_kind[names[name]].to_pylist() for name in table.columns]
                yield table.name, list(zip(*columns, strict=True))


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
        return _Reader(read_options(self.options), self.options.get("spill"))


class _Reader(DataSourceReader):
    def __init__(self, options: ReadOptions, spill: str | None) -> None:
        self._options = options
        self._spill = spill

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        stores = [open_store(path) for path in options.paths]
        total = sum(store.data_bytes for store in stores)
        split_bytes = max(1, min(options.split_bytes, -(-total // options.partitions_min)))
        return [
            InputPartition(split)
            for store in stores
            for split in plan_splits(store, options.filters, split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        split: LogSplit | None = partition.value
        if split is None:  # Spark asks once when there are no partitions
            return
        filters = self._options.filters
        if self._spill is None:
            batches = scan_split(split, filters=filters)
        else:
            batches = spilling(
                self._spill, split, scan_split(split, columns="full", filters=filters)
            )
        for piece in statistics_of(ArrowStatistics(split.store), batches):
            for name, rows in piece.items():
                if rows:
                    yield _to_arrow(STATS[name], rows)


def _to_arrow(table: StatsTable, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    places: Mapping[str, str] = wide_names(table)
    columns = dict(
        zip([places[name] for name in table.columns], zip(*rows, strict=True), strict=True)
    )
    arrays = []
    for field in _ARROW:
        if field.name == "kind":
            arrays.append(pa.repeat(pa.scalar(table.name), len(rows)))
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        else:
            arrays.append(pa.nulls(len(rows), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
