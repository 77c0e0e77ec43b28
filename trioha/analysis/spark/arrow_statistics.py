"""The same statistics counted by Arrow: a batch is grouped there, its groups are added here.

A batch has thousands of rows and a few hundred groups, so Python sees one record in fifty. What
Arrow counts otherwise than Python (a division below zero, in a damaged record's times) is left to
`Statistics`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trioha.analysis.row_batch import RowBatch
from trioha.analysis.spark.arrow_batches import host_dictionary, numbers, topic_codes
from trioha.analysis.stats import COMPRESSED, HOUR_MS, MINUTE_MS, Statistics

_TIME_MAX = 1 << 60
"""Beyond, a difference of two times might overflow."""


class ArrowStatistics(Statistics):
    """Counts batches of one store."""

    def add(self, batch: RowBatch) -> None:
        if not batch.row_count:
            return
        store_ms, born_ms = numbers(batch, "store_ms"), numbers(batch, "born_ms")
        if not (_is_usual(store_ms) and _is_usual(born_ms)):
            super().add(batch)
            return
        topics, names = topic_codes(batch), batch.topic_names
        size = numbers(batch, "size")
        minutes = _grouped(
            {
                "topic": topics,
                "queue_id": numbers(batch, "queue_id"),
                "minute": _floor(store_ms, MINUTE_MS),
            },
            {
                "bytes": (size, "sum"),
                "body": (numbers(batch, "body_size"), "sum"),
                "again": (pc.greater(numbers(batch, "reconsume_times"), 0), "sum"),
                "packed": (pc.bit_wise_and(numbers(batch, "sys_flag"), COMPRESSED), "sum"),
                "queue_offset": (numbers(batch, "queue_offset"), "min_max"),
                "phy_offset": (numbers(batch, "phy_offset"), "min_max"),
                "store_ms": (store_ms, "min_max"),
            },
        )
        for topic, queue_id, minute, *sums, queued, placed, stored in minutes:
            extremes = [value for ends in (queued, placed, stored) for value in ends.values()]
            self.add_minute((names[topic], queue_id, minute), [*sums, *extremes])
        codes, hosts = host_dictionary(batch, "born_host")
        for topic, host, hour, latency, count in _grouped(
            {
                "topic": topics,
                "host": codes,
                "hour": _floor(store_ms, HOUR_MS),
                "latency": pc.subtract(store_ms, born_ms),
            }
        ):
            self.add_latency((names[topic], hosts[host], hour, latency), count)
        for topic, bytes_each, count in _grouped({"topic": topics, "size": size}):
            self.add_size((names[topic], bytes_each), count)


def _is_usual(times: pa.Array) -> bool:
    ends = pc.min_max(times).as_py()
    return bool(ends["min"] >= 0 and ends["max"] < _TIME_MAX)


def _floor(times: pa.Array, width: int) -> pa.Array:
    return pc.multiply(pc.divide(times, width), width)


def _grouped(
    keys: dict[str, pa.Array], measures: dict[str, tuple[pa.Array, str]] | None = None
) -> list[tuple[Any, ...]]:
    """Rows of keys, number of rows, measures in their order."""
    measures = measures or {}
    table = pa.table({**keys, **{name: column for name, (column, _) in measures.items()}})
    wanted = [([], "count_all"), *((name, how) for name, (_, how) in measures.items())]
    groups = table.group_by(list(keys), use_threads=False).aggregate(wanted)
    names = [*keys, "count_all", *(f"{name}_{how}" for name, (_, how) in measures.items())]
    return list(zip(*[groups[name].to_pylist() for name in names], strict=True))
