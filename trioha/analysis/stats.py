"""The three statistics that most reports live on, as SQL over headers.

Theory of operation. DuckDB counts them from rows of `commitlog`: here for the local engine, and in
Spark's workers task by task, so that no row of the log travels to the JVM. Pieces have several rows
for one key; they merge by what each column is: a sum, a minimum or a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from trioha.analysis.engine import bucket
from trioha.analysis.reports.bins import bin_sql
from trioha.analysis.schema import ColumnType, TableColumn, TableSchema
from trioha.wire.codes import SysFlag

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
_SUM_MAX = (1 << 63) - 1

Merge = Literal["SUM", "MIN", "MAX"]
_TEXTS = frozenset({"store", "topic", "born_host"})


def clamped(sql: str, most: int) -> str:
    """SQL: a number that is at most `most`, and at least its negative."""
    return f"GREATEST(LEAST({sql}, {most}), -{most})"


@attrs.frozen
class StatsTable:
    """One statistic: its key columns and its measures, each with its SQL over `commitlog`."""

    name: str
    keys: Mapping[str, str]
    measures: Mapping[str, tuple[Merge, str]]
    last: Mapping[str, str] = attrs.field(factory=dict)
    """Keys that are made of few values of the records: their SQL over what was counted by these."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.measures)

    @property
    def schema(self) -> TableSchema:
        return TableSchema(
            self.name,
            tuple(
                TableColumn(name, ColumnType.STRING if name in _TEXTS else ColumnType.BIGINT)
                for name in self.columns
            ),
        )

    def count_sql(self, source: str) -> str:
        """SELECT that counts records of `source`, which has the columns of `commitlog`.

        Times are held (`arrow_batches.with_held_times`).
        """
        keys = [f"{sql} AS {name}" for name, sql in self.keys.items()]
        measures = [
            f"CAST({clamped(f'{merge}({sql})', _SUM_MAX)} AS BIGINT) AS {name}"
            for name, (merge, sql) in self.measures.items()
        ]
        places = ", ".join(str(place + 1) for place in range(len(keys)))
        # Once, for a bin names its value many times.
        rows = f"(SELECT *, store_ms - born_ms AS latency FROM {source})"
        counted = f"SELECT {', '.join((*keys, *measures))} FROM {rows} AS r GROUP BY {places}"
        if not self.last:
            return counted
        keys = [f"{self.last.get(name, name)} AS {name}" for name in self.keys]
        measures = [
            f"CAST({clamped(f'{merge}({name})', _SUM_MAX)} AS BIGINT) AS {name}"
            for name, (merge, _) in self.measures.items()
        ]
        return f"SELECT {', '.join((*keys, *measures))} FROM ({counted}) AS c GROUP BY {places}"


COMMITLOG_STATS = StatsTable(
    "commitlog_stats",
    {
        "store": "store",
        "topic": "topic",
        "queue_id": "queue_id",
        "minute_ms": bucket("store_ms", MINUTE_MS),
    },
    {
        "messages": ("SUM", "1"),
        "bytes": ("SUM", "size"),
        "body_bytes": ("SUM", "body_size"),
        "reconsumed": ("SUM", "CASE WHEN reconsume_times > 0 THEN 1 ELSE 0 END"),
        "compressed": ("SUM", f"sys_flag & {int(SysFlag.COMPRESSED)}"),
        "queue_offset_min": ("MIN", "queue_offset"),
        "queue_offset_max": ("MAX", "queue_offset"),
        "phy_offset_min": ("MIN", "phy_offset"),
        "phy_offset_max": ("MAX", "phy_offset"),
        "store_ms_min": ("MIN", "store_ms"),
        "store_ms_max": ("MAX", "store_ms"),
    },
)
LATENCY_STATS = StatsTable(
    "latency_stats",
    {
        "store": "store",
        "topic": "topic",
        "born_host": "born_host",
        "hour_ms": bucket("store_ms", HOUR_MS),
        "latency_bin": bin_sql("latency"),
    },
    {
        "messages": ("SUM", "1"),
        "latency_sum_ms": ("SUM", "latency"),
        "latency_min_ms": ("MIN", "latency"),
        "latency_max_ms": ("MAX", "latency"),
    },
    {"born_host": "host_of(born_host)"},
)
SIZE_STATS = StatsTable(
    "size_stats",
    {"store": "store", "topic": "topic", "size_bin": bin_sql("size")},
    {"messages": ("SUM", "1"), "bytes": ("SUM", "size"), "size_max": ("MAX", "size")},
)
STATS: Mapping[str, StatsTable] = {
    table.name: table for table in (COMMITLOG_STATS, LATENCY_STATS, SIZE_STATS)
}
COUNTED = (
    "store",
    "topic",
    "queue_id",
    "queue_offset",
    "phy_offset",
    "size",
    "body_size",
    "born_ms",
    "born_host",
    "store_ms",
    "reconsume_times",
    "sys_flag",
)
"""Columns of `commitlog` that the statistics are made of."""
