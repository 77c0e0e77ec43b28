"""Messages written: by store, topic, queue and time, day over day, hot keys and tags, sizes.

Stores of one broker (a master and its slaves) hold the same messages, so nothing is ever added up
across stores. Figures are of records as the log has them: a delayed or retried message counts each
time it was stored, under the topic it was stored in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioha.analysis.engine import Engine, bucket, literals
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.bins import BOUND_BYTES, Bins, powers_by_store
from trioha.analysis.reports.days import day_findings, day_table, day_topic_table
from trioha.analysis.reports.hot_words import hot_findings, hot_table
from trioha.analysis.reports.tables import ratio, table
from trioha.analysis.reports.time_buckets import STATS_BUCKET_MS, bucket_width_ms, per_second
from trioha.analysis.reports.words import say_bytes, say_ms
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Table

SPEC = REPORTS["throughput"]
NEEDS = frozenset({"commitlog", "commitlog_full", "commitlog_stats", "size_stats"})

LINES_MAX = 8
"""Topics that get a line of their own."""


@attrs.frozen
class _Extent:
    """One store within the window."""

    store: str
    messages: int
    record_bytes: int
    body_bytes: int
    first_ms: int
    last_ms: int


_Counts = Mapping[int, Mapping[str, int]]
"""Bucket -> messages and record_bytes."""


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    extents = _extents(engine)
    if not extents:
        return Report(
            **SPEC.heading,
            findings=[Finding.warning("No record lies in the stores and the window.")],
        )
    first_ms = min(extent.first_ms for extent in extents)
    last_ms = max(extent.last_ms for extent in extents)
    width_ms = bucket_width_ms(first_ms, last_ms)
    by_store = _by_time(engine, width_ms, "")
    topics = _topics(engine, extents, options.top)
    days = day_table(engine, {each.store: (each.first_ms, each.last_ms) for each in extents})
    hot = [hot_table(engine, column, options.top) for column in ("keys", "tags")]
    volumes = [
        Finding.info(
            f"{extent.store}: {extent.messages:,} messages in {say_bytes(extent.record_bytes)} "
            f"within {say_ms(extent.last_ms - extent.first_ms)}."
        )
        for extent in extents
    ]
    return Report(
        **SPEC.heading,
        tables=[
            _stores(extents, by_store, width_ms),
            topics,
            _queues(engine, options.top),
            _times(by_store, width_ms),
            days,
            day_topic_table(engine, options.top),
            *hot,
        ],
        charts=[
            _store_chart(extents, by_store, width_ms),
            _topic_chart(engine, topics, extents, width_ms),
            _size_chart(engine),
        ],
        findings=[*volumes, *day_findings(days), *hot_findings(hot)],
    )


def _extents(engine: Engine) -> list[_Extent]:
    rows = engine.query(
        "SELECT store, SUM(messages) AS messages, SUM(bytes) AS record_bytes, "
        "SUM(body_bytes) AS body_bytes, MIN(store_ms_min) AS first_ms, "
        "MAX(store_ms_max) AS last_ms FROM commitlog_stats GROUP BY store ORDER BY store",
    )
    return [_Extent(**row) for row in rows]


def _by_time(
    engine: Engine, width_ms: int, topic: str, where: str = ""
) -> dict[tuple[str, ...], dict[int, dict[str, int]]]:
    """(Store,) or (store, topic) -> bucket -> messages and bytes."""
    if width_ms >= STATS_BUCKET_MS:
        source, column, messages, size = "commitlog_stats", "minute_ms", "messages", "bytes"
    else:
        source, column, messages, size = "commitlog", "store_ms", "1", "size"
    rows = engine.query(
        f"SELECT store{topic}, begin_ms, SUM(messages) AS messages, SUM(bytes) AS record_bytes "
        f"FROM (SELECT store{topic}, {bucket(column, width_ms)} AS begin_ms, "
        f"{messages} AS messages, {size} AS bytes FROM {source} {where}) AS t "
        f"GROUP BY store{topic}, begin_ms ORDER BY store{topic}, begin_ms",
    )
    found: dict[tuple[str, ...], dict[int, dict[str, int]]] = defaultdict(dict)
    for row in rows:
        key = (row["store"], row["topic"]) if topic else (row["store"],)
        found[key][row["begin_ms"]] = row
    return found


def _line(counts: _Counts, value: str, extent: _Extent, width_ms: int) -> list[tuple[int, float]]:
    figures = {begin_ms: row[value] for begin_ms, row in counts.items()}
    return per_second(figures, extent.first_ms, extent.last_ms, width_ms)


def _stores(
    extents: list[_Extent], by_store: Mapping[tuple[str, ...], _Counts], width_ms: int
) -> Table:
    rows = []
    for extent in extents:
        line = _line(by_store[extent.store,], "messages", extent, width_ms)
        rows.append(
            attrs.asdict(extent)
            | {
                "mean_per_s": ratio(extent.messages * 1000, extent.last_ms - extent.first_ms),
                "peak_per_s": max(rate for _, rate in line),
            }
        )
    return table(
        "stores",
        f"Stores; the peak is of {say_ms(width_ms)}",
        "store messages:integer record_bytes:bytes body_bytes:bytes first_ms:time last_ms:time "
        "mean_per_s:number:msg/s peak_per_s:number:msg/s",
        rows,
    )


def _topics(engine: Engine, extents: list[_Extent], top: int) -> Table:
    totals = {extent.store: extent for extent in extents}
    rows = engine.query(
        "SELECT * FROM (SELECT store, topic, messages, record_bytes, queues, "
        "ROW_NUMBER() OVER (PARTITION BY store ORDER BY record_bytes DESC, topic) AS place FROM ("
        "SELECT store, topic, SUM(messages) AS messages, SUM(bytes) AS record_bytes, "
        "COUNT(DISTINCT queue_id) AS queues FROM commitlog_stats GROUP BY store, topic) AS t) AS u "
        f"WHERE place <= {top} ORDER BY store, place",
    )
    compressed = _compressed(engine)
    sizes = _sizes(engine, {row["topic"] for row in rows})
    for row in rows:
        key = (row["store"], row["topic"])
        bins, size_max = sizes[key]
        p50, p95, p99 = bins.percentiles()
        total = totals[row["store"]]
        row |= {
            "messages_share": row["messages"] / total.messages,
            "bytes_share": row["record_bytes"] / total.record_bytes,
            "size_mean_bytes": row["record_bytes"] / row["messages"],
            "size_p50_bytes": p50,
            "size_p95_bytes": p95,
            "size_p99_bytes": p99,
            "size_max_bytes": size_max,
            "compressed_share": compressed.get(key, 0) / row["messages"],
        }
    return table(
        "topics",
        f"The {top} topics with most bytes of each store; sizes are of records",
        "store topic queues:integer messages:integer messages_share:share record_bytes:bytes "
        "bytes_share:share size_mean_bytes:number:B size_p50_bytes:bytes size_p95_bytes:bytes "
        "size_p99_bytes:bytes size_max_bytes:bytes compressed_share:share",
        rows,
        BOUND_BYTES,
    )


def _compressed(engine: Engine) -> dict[tuple[str, str], int]:
    rows = engine.query(
        "SELECT store, topic, SUM(compressed) AS messages FROM commitlog_stats "
        "GROUP BY store, topic",
    )
    return {(row["store"], row["topic"]): row["messages"] for row in rows}


def _sizes(engine: Engine, topics: set[str]) -> dict[tuple[str, str], tuple[Bins, int]]:
    """(Store, topic) -> sizes in bins, and the largest."""
    rows = engine.query(
        "SELECT store, topic, size_bin, messages, size_max FROM size_stats "
        f"WHERE topic IN {literals(sorted(topics))}",
    )
    found: dict[tuple[str, str], tuple[Bins, int]] = {}
    for row in rows:
        bins, size_max = found.get((row["store"], row["topic"]), (Bins(), 0))
        bins[row["size_bin"]] += row["messages"]
        found[row["store"], row["topic"]] = (bins, max(size_max, row["size_max"]))
    return found


def _queues(engine: Engine, top: int) -> Table:
    rows = engine.query(
        "SELECT * FROM (SELECT store, topic, queue_id, messages, record_bytes, "
        "SUM(messages) OVER (PARTITION BY store, topic) AS of_topic, "
        "ROW_NUMBER() OVER (PARTITION BY store ORDER BY messages DESC, topic, queue_id) AS place "
        "FROM (SELECT store, topic, queue_id, SUM(messages) AS messages, "
        "SUM(bytes) AS record_bytes FROM commitlog_stats GROUP BY store, topic, queue_id) AS t) "
        f"AS u WHERE place <= {top} ORDER BY store, place",
    )
    return table(
        "queues",
        f"The {top} queues with most messages of each store",
        "store topic queue_id:integer messages:integer record_bytes:bytes share_of_topic:share",
        [row | {"share_of_topic": row["messages"] / row["of_topic"]} for row in rows],
    )


def _times(by_store: Mapping[tuple[str, ...], _Counts], width_ms: int) -> Table:
    return table(
        "time",
        f"Messages and bytes in steps of {say_ms(width_ms)}; steps without messages are left out",
        "store begin_ms:time messages:integer record_bytes:bytes",
        [row for counts in by_store.values() for row in counts.values()],
    )


def _store_chart(
    extents: list[_Extent], by_store: Mapping[tuple[str, ...], _Counts], width_ms: int
) -> Chart:
    return Chart(
        title=f"Messages stored per second, by store, in steps of {say_ms(width_ms)}",
        kind="line",
        x_label="time (UTC)",
        y_label="messages per second",
        x_kind="time",
        series=[
            Series(each.store, _line(by_store[each.store,], "messages", each, width_ms))
            for each in extents
        ],
    )


def _topic_chart(engine: Engine, topics: Table, extents: list[_Extent], width_ms: int) -> Chart:
    bounds = {extent.store: extent for extent in extents}
    names = [each.name for each in topics.columns]
    rows: Sequence[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in topics.rows]
    largest = sorted(rows, key=lambda row: (-row["record_bytes"], row["topic"]))[:LINES_MAX]
    wanted = sorted({row["topic"] for row in largest})
    counts = _by_time(engine, width_ms, ", topic", f"WHERE topic IN {literals(wanted)}")
    series = []
    for row in largest:
        store, topic = row["store"], row["topic"]
        label = topic if len(extents) == 1 else f"{topic} @ {store}"
        line = _line(counts[store, topic], "record_bytes", bounds[store], width_ms)
        series.append(Series(label, line))
    return Chart(
        title=f"Bytes stored per second by topic, the {len(series)} largest",
        kind="line",
        x_label="time (UTC)",
        y_label="bytes per second",
        x_kind="time",
        y_kind="bytes",
        series=series,
    )


def _size_chart(engine: Engine) -> Chart:
    rows = engine.query(
        "SELECT store, size_bin, SUM(messages) AS messages FROM size_stats "
        "GROUP BY store, size_bin ORDER BY store, size_bin",
    )
    return Chart(
        title="Records by size, in powers of two",
        kind="histogram",
        x_label="record size",
        y_label="records",
        x_kind="bytes",
        series=powers_by_store(rows, "size_bin"),
        note="A record is the body, the properties, the topic and 91 bytes of header.",
    )
