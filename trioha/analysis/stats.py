"""The three statistics that most reports live on, made from headers in one pass.

Theory of operation. Python counts while it scans: what leaves a scan is a few thousand rows, so
that on Spark no row of the log travels to the JVM. A scan in pieces gives several rows for one key;
they merge by what each column is: a sum, a minimum or a maximum. Memory is bounded: a scan hands
out what it has whenever its tables have grown to `KEYS_MAX` keys.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

from trioha.analysis.reports.bins import bin_of
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.schema import ColumnType, TableColumn, TableSchema
from trioha.wire.codes import SysFlag

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
KEYS_MAX = 200_000
COMPRESSED = int(SysFlag.COMPRESSED)

Merge = Literal["SUM", "MIN", "MAX"]


@attrs.frozen
class StatsTable:
    """One statistic: its key columns, then its measures and how they merge."""

    name: str
    keys: tuple[str, ...]
    measures: tuple[tuple[str, Merge], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(name for name, _ in self.measures))

    @property
    def schema(self) -> TableSchema:
        return TableSchema(
            self.name,
            tuple(
                TableColumn(name, ColumnType.STRING if name in _TEXTS else ColumnType.BIGINT)
                for name in self.columns
            ),
        )

    @property
    def merge_sql(self) -> str:
        """SELECT list and GROUP BY that merge rows of equal keys."""
        keys = ", ".join(self.keys)
        measures = ", ".join(f"{merge}({name}) AS {name}" for name, merge in self.measures)
        return f"SELECT {keys}, {measures} FROM {{source}} GROUP BY {keys}"


_TEXTS = frozenset({"store", "topic", "born_host"})

COMMITLOG_STATS = StatsTable(
    "commitlog_stats",
    ("store", "topic", "queue_id", "minute_ms"),
    (
        ("messages", "SUM"),
        ("bytes", "SUM"),
        ("body_bytes", "SUM"),
        ("reconsumed", "SUM"),
        ("compressed", "SUM"),
        ("queue_offset_min", "MIN"),
        ("queue_offset_max", "MAX"),
        ("phy_offset_min", "MIN"),
        ("phy_offset_max", "MAX"),
        ("store_ms_min", "MIN"),
        ("store_ms_max", "MAX"),
    ),
)
LATENCY_STATS = StatsTable(
    "latency_stats",
    ("store", "topic", "born_host", "hour_ms", "latency_bin"),
    (
        ("messages", "SUM"),
        ("latency_sum_ms", "SUM"),
        ("latency_min_ms", "MIN"),
        ("latency_max_ms", "MAX"),
    ),
)
SIZE_STATS = StatsTable(
    "size_stats",
    ("store", "topic", "size_bin"),
    (("messages", "SUM"), ("bytes", "SUM"), ("size_max", "MAX")),
)
STATS: Mapping[str, StatsTable] = {
    table.name: table for table in (COMMITLOG_STATS, LATENCY_STATS, SIZE_STATS)
}
_BY_NAME: Mapping[Merge, Callable[[int, int], int]] = {"SUM": operator.add, "MIN": min, "MAX": max}
_MERGES = [_BY_NAME[merge] for _, merge in COMMITLOG_STATS.measures]
SCANNED = (
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
"""Columns of the headers that `Statistics.add` reads."""


class Statistics:
    """Counts batches of one store."""

    def __init__(self, store: str) -> None:
        self._store = store
        # Values are lists, changed in place: a tuple made anew per record costs twice as much.
        self._minutes: dict[tuple[str, int, int], list[int]] = {}
        self._latencies: dict[tuple[str, str, int, int], int] = {}
        self._sizes: dict[tuple[str, int], int] = {}

    @property
    def is_full(self) -> bool:
        """Whether `take` should be called before more is added."""
        return len(self._minutes) + len(self._latencies) + len(self._sizes) >= KEYS_MAX

    def add(self, batch: RowBatch) -> None:
        minutes, latencies, sizes = self._minutes, self._latencies, self._sizes
        for (
            topic,
            queue_id,
            queue_offset,
            phy_offset,
            size,
            body_size,
            born_ms,
            born_host,
            store_ms,
            reconsume_times,
            sys_flag,
        ) in batch.rows(SCANNED):
            minute = (topic, queue_id, store_ms - store_ms % MINUTE_MS)
            sums = minutes.get(minute)
            if sums is None:
                minutes[minute] = [
                    1,
                    size,
                    body_size,
                    1 if reconsume_times > 0 else 0,
                    sys_flag & COMPRESSED,
                    queue_offset,
                    queue_offset,
                    phy_offset,
                    phy_offset,
                    store_ms,
                    store_ms,
                ]
            else:
                sums[0] += 1
                sums[1] += size
                sums[2] += body_size
                if reconsume_times > 0:
                    sums[3] += 1
                sums[4] += sys_flag & COMPRESSED
                # A log grows: the maxima move with every record, the minima hardly ever.
                if queue_offset < sums[5]:
                    sums[5] = queue_offset
                elif queue_offset > sums[6]:
                    sums[6] = queue_offset
                if phy_offset > sums[8]:
                    sums[8] = phy_offset
                elif phy_offset < sums[7]:
                    sums[7] = phy_offset
                if store_ms > sums[10]:
                    sums[10] = store_ms
                elif store_ms < sums[9]:
                    sums[9] = store_ms
            latency = (topic, born_host, store_ms - store_ms % HOUR_MS, store_ms - born_ms)
            latencies[latency] = latencies.get(latency, 0) + 1
            shape = (topic, size)
            sizes[shape] = sizes.get(shape, 0) + 1

    def add_minute(self, key: tuple[str, int, int], sums: list[int]) -> None:
        """Measures of `COMMITLOG_STATS` of many records of one key."""
        before = self._minutes.setdefault(key, sums)
        if before is not sums:
            for place, merge in enumerate(_MERGES):
                before[place] = merge(before[place], sums[place])

    def add_latency(self, key: tuple[str, str, int, int], count: int) -> None:
        """Records of one topic, born host with port, hour and latency."""
        self._latencies[key] = self._latencies.get(key, 0) + count

    def add_size(self, key: tuple[str, int], count: int) -> None:
        """Records of one topic and size."""
        self._sizes[key] = self._sizes.get(key, 0) + count

    def take(self) -> dict[str, list[tuple[Any, ...]]]:
        """What was counted, as rows per statistic; counting begins anew."""
        store = self._store
        taken: dict[str, list[tuple[Any, ...]]] = {
            COMMITLOG_STATS.name: [(store, *key, *sums) for key, sums in self._minutes.items()],
            LATENCY_STATS.name: list(_latency_rows(store, self._latencies)),
            SIZE_STATS.name: list(_size_rows(store, self._sizes)),
        }
        self._minutes, self._latencies, self._sizes = {}, {}, {}
        return taken


def statistics_of(
    statistics: Statistics, batches: Iterable[RowBatch]
) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    """Rows per statistic, of all batches of one store, in pieces of bounded size."""
    for batch in batches:
        statistics.add(batch)
        if statistics.is_full:
            yield statistics.take()
    yield statistics.take()


def host_of(address: str) -> str:
    """``10.0.0.1`` of ``10.0.0.1:10911``; an address without a port is a host."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() else address


def _latency_rows(
    store: str, counts: Mapping[tuple[str, str, int, int], int]
) -> Iterator[tuple[Any, ...]]:
    rows: dict[tuple[str, str, int, int], list[int]] = {}
    hosts: dict[str, str] = {}
    for (topic, address, hour_ms, latency), count in counts.items():
        host = hosts.get(address)
        if host is None:
            host = hosts[address] = host_of(address)
        key = (topic, host, hour_ms, bin_of(latency))
        sums = rows.get(key)
        if sums is None:
            rows[key] = [count, count * latency, latency, latency]
            continue
        sums[0] += count
        sums[1] += count * latency
        sums[2] = min(sums[2], latency)
        sums[3] = max(sums[3], latency)
    for key, sums in rows.items():
        yield (store, *key, *sums)


def _size_rows(store: str, counts: Mapping[tuple[str, int], int]) -> Iterator[tuple[Any, ...]]:
    rows: dict[tuple[str, int], list[int]] = {}
    for (topic, size), count in counts.items():
        sums = rows.setdefault((topic, bin_of(size)), [0, 0, 0])
        sums[0] += count
        sums[1] += count * size
        sums[2] = max(sums[2], size)
    for key, sums in rows.items():
        yield (store, *key, *sums)
