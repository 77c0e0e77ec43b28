"""Latency of messages from their birth at the producer to the log.

Two clocks measure it, so a figure may be negative: that is shown, never hidden. All percentiles,
minima and maxima are names of bins (`reports.bins`), at most 1/64 nearer to zero than the value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from trioha.analysis.engine import Engine
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.bins import BOUND_MS, powers_by_store
from trioha.analysis.reports.first_stores import VIEWS, latencies
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.time_buckets import bucket_width_ms
from trioha.analysis.reports.words import HOUR_MS, count_of, say_ms, say_share
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Table

SPEC = REPORTS["latency"]
NEEDS = frozenset(VIEWS)

SLOW_FLOOR_MS = 1000
"""A host whose fastest hundredth takes longer has a slow clock, or a very slow path."""
_FIGURES = (
    "messages:integer negative:integer min_ms:duration p50_ms:duration p95_ms:duration "
    "p99_ms:duration max_ms:duration"
)


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    width_ms = _width_ms(engine)
    rows = engine.query(_percentiles(latencies(engine, width_ms), options.top))
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_kind[row["kind"]].append(row)
    if not rows:
        return Report(
            **SPEC.heading, findings=[Finding.warning("No message lies in stores and window.")]
        )
    totals = by_kind["store"]
    hosts = _hosts(by_kind["host"], options.top)
    return Report(
        **SPEC.heading,
        tables=[
            table("stores", "Latency by store", f"store {_FIGURES}", totals, BOUND_MS),
            hosts,
            table(
                "hours",
                f"Latency in steps of {say_ms(width_ms)}",
                f"store begin_ms:time {_FIGURES}",
                by_kind["hour"],
                BOUND_MS,
            ),
            table(
                "host_hours",
                f"Latency by host in steps of {say_ms(width_ms)}, the {options.top} busiest hosts",
                f"store born_host begin_ms:time {_FIGURES}",
                by_kind["host_hour"],
                BOUND_MS,
            ),
        ],
        charts=[
            _hour_chart(by_kind["hour"], width_ms),
            _histogram(by_kind["bin"]),
            _host_chart(by_kind["host_hour"], width_ms),
        ],
        findings=[*_store_findings(totals), *_host_findings(by_kind["host"])],
    )


def _width_ms(engine: Engine) -> int:
    rows = engine.query(
        "SELECT MIN(hour_ms) AS first_ms, MAX(hour_ms) AS last_ms FROM latency_stats",
    )
    first_ms, last_ms = rows[0]["first_ms"], rows[0]["last_ms"]
    return HOUR_MS if first_ms is None else max(HOUR_MS, bucket_width_ms(first_ms, last_ms))


def _percentiles(counted: str, top: int) -> str:
    """One query for all tables, so that what is counted is counted once.

    A bin holds the p-th percentile if it is the first with which p of 100 messages are seen.
    """
    parts = []
    for kind, keys in (
        ("store", "store"),
        ("host", "store, born_host"),
        ("hour", "store, begin_ms"),
        ("host_hour", "store, born_host, begin_ms"),
    ):
        host = "born_host" if "born_host" in keys else "''"
        begin = "begin_ms" if "begin_ms" in keys else "0"
        only = "WHERE place <= " + str(top) if kind.startswith("host") else ""
        parts.append(
            f"SELECT '{kind}' AS kind, store, {host} AS born_host, {begin} AS begin_ms, "
            "SUM(messages) AS messages, "
            "SUM(CASE WHEN latency_bin < 0 THEN messages ELSE 0 END) AS negative, "
            "MIN(latency_bin) AS min_ms, MAX(latency_bin) AS max_ms, "
            + ", ".join(
                f"MIN(CASE WHEN seen * 100 >= total * {percent} THEN latency_bin END) "
                f"AS p{percent}_ms"
                for percent in (1, 50, 95, 99)
            )
            + f" FROM (SELECT {keys}, latency_bin, messages, "
            f"SUM(messages) OVER (PARTITION BY {keys} ORDER BY latency_bin) AS seen, "
            f"SUM(messages) OVER (PARTITION BY {keys}) AS total FROM ("
            f"SELECT {keys}, latency_bin, SUM(messages) AS messages FROM ranked {only} "
            f"GROUP BY {keys}, latency_bin) AS a) AS b GROUP BY {keys}"
        )
    parts.append(
        "SELECT 'bin' AS kind, store, '' AS born_host, 0 AS begin_ms, "
        "SUM(messages) AS messages, 0 AS negative, latency_bin AS min_ms, latency_bin AS max_ms, "
        "latency_bin AS p1_ms, latency_bin AS p50_ms, latency_bin AS p95_ms, "
        "latency_bin AS p99_ms FROM ranked GROUP BY store, latency_bin"
    )
    return (
        f"WITH counted AS ({counted}), "
        "places AS (SELECT store, born_host, ROW_NUMBER() OVER "
        "(PARTITION BY store ORDER BY messages DESC, born_host) AS place FROM "
        "(SELECT store, born_host, SUM(messages) AS messages FROM counted "
        "GROUP BY store, born_host) AS p), "
        "ranked AS (SELECT counted.store AS store, counted.born_host AS born_host, begin_ms, "
        "latency_bin, messages, place FROM counted JOIN places "
        "ON places.store = counted.store AND places.born_host = counted.born_host) "
        f"{' UNION ALL '.join(parts)} ORDER BY kind, store, born_host, begin_ms"
    )


def _hosts(rows: list[dict[str, Any]], top: int) -> Table:
    for row in rows:
        row["negative_share"] = row["negative"] / row["messages"]
        row["clock_ahead_ms"] = -row["p1_ms"]
    return table(
        "hosts",
        f"Latency by producer host, the {top} busiest of each store. clock_ahead: how far the "
        "host's clock would be ahead of the broker's if its fastest hundredth took no time",
        f"store born_host {_FIGURES} negative_share:share clock_ahead_ms:duration",
        sorted(rows, key=lambda row: (row["store"], -row["messages"], row["born_host"])),
        BOUND_MS,
    )


def _hour_chart(rows: list[dict[str, Any]], width_ms: int) -> Chart:
    stores = sorted({row["store"] for row in rows})
    series = [
        Series(
            f"p{percent}" if len(stores) == 1 else f"p{percent} @ {store}",
            [(row["begin_ms"], row[f"p{percent}_ms"]) for row in rows if row["store"] == store],
        )
        for store in stores
        for percent in (50, 95, 99)
    ]
    return Chart(
        title=f"Latency from birth to store, in steps of {say_ms(width_ms)}",
        kind="line",
        x_label="time (UTC)",
        y_label="latency",
        x_kind="time",
        y_kind="duration",
        series=series,
        note="Below zero: the producer's clock is ahead of the broker's.",
    )


def _histogram(rows: list[dict[str, Any]]) -> Chart:
    return Chart(
        title="Messages by latency from birth to store, in powers of two",
        kind="histogram",
        x_label="latency",
        y_label="messages",
        x_kind="duration",
        series=powers_by_store(rows, "min_ms"),
        note="Below zero: the producer's clock is ahead of the broker's.",
    )


def _host_chart(rows: list[dict[str, Any]], width_ms: int) -> Chart:
    return Chart(
        title=f"99th percentile of latency by producer host, in steps of {say_ms(width_ms)}",
        kind="heat",
        x_label="time (UTC)",
        y_label="producer host",
        x_kind="time",
        y_kind="category",
        series=[
            Series(
                store,
                [
                    (row["begin_ms"], row["born_host"], row["p99_ms"])
                    for row in rows
                    if row["store"] == store
                ],
            )
            for store in sorted({row["store"] for row in rows})
        ],
    )


def _store_findings(rows: list[dict[str, Any]]) -> list[Finding]:
    return [
        Finding.info(
            f"{row['store']}: half of {count_of(row['messages'], 'message')} took at most "
            f"{say_ms(row['p50_ms'])}, 99 % at most {say_ms(row['p99_ms'])}, "
            f"the slowest {say_ms(row['max_ms'])}."
        )
        for row in rows
    ]


def _host_findings(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    for row in rows:
        where = f"{row['store']}: producer host {row['born_host']}"
        if row["negative"]:
            yield Finding.warning(
                f"{where}: {count_of(row['negative'], 'message')} "
                f"({say_share(row['negative'], row['messages'])}) were stored before they were "
                f"born: its clock is ahead of the broker's by at least "
                f"{say_ms(-row['min_ms'])}."
            )
        elif row["p1_ms"] >= SLOW_FLOOR_MS:
            yield Finding.warning(
                f"{where}: even its fastest hundredth took {say_ms(row['p1_ms'])}: its clock "
                "is behind the broker's, or its messages wait before they are sent."
            )
