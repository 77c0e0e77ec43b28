"""Effect of an outage on clients: latency and lag, in steps down to a second.

Latency is from a message's birth at its producer to its storing, in the log of the node that served
afterwards, by the hour of storing: what was sent during the outage shows where it was stored. Lag
is what nodes sampled: consumers' every ten seconds, a slave's every second. Between samples the
last one stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioha.analysis.engine import Engine, bucket, literal
from trioha.analysis.reports.bins import BOUND_MS, Bins, bin_sql
from trioha.analysis.reports.lives import Lives, number, stores_of_journals
from trioha.analysis.reports.outages import Outage
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.time_buckets import bucket_width_ms, buckets
from trioha.analysis.reports.words import MINUTE_MS, SECOND_MS, say_ms, say_time
from trioha.analysis.results import Chart, Series, Table

OUTAGES_MAX = 3
"""Outages that are looked at closely: unplanned ones first, then the longest."""
_PAD_MIN_MS, _PAD_MAX_MS = 30 * SECOND_MS, 10 * MINUTE_MS
_COLUMNS = (
    "broker begin_ms:time messages:integer p50_ms:duration p99_ms:duration max_ms:duration "
    "consumer_lag:integer:msg slave_lag_bytes:bytes"
)

_BOUNDS = (
    f"{BOUND_MS} Consumer lag is sampled every ten seconds, bytes behind every second; between "
    "samples the last one stands."
)


@attrs.frozen
class CloseUpStep:
    """One step of time around an outage; None is what nothing tells."""

    broker: str
    begin_ms: int
    messages: int | None
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None
    consumer_lag: int | None
    """Messages not consumed, of all groups together."""
    slave_lag_bytes: int | None
    """Lag of the slave that is furthest behind."""


def close_ups(
    engine: Engine, lives: Lives, outages: Sequence[Outage], until_ms: int
) -> tuple[list[Table], list[Chart]]:
    """A table of the steps around the outages that cost most, and charts of each."""
    # A stop that nobody followed up ends the records: there is nothing to look at behind it.
    over = [one for one in outages if not one.is_planned or one.end_ms is not None]
    chosen = sorted(over, key=lambda one: (one.is_planned, one.begin_ms - _end_ms(one, until_ms)))
    rows: list[dict[str, Any]] = []
    charts: list[Chart] = []
    for outage in sorted(chosen[:OUTAGES_MAX], key=lambda one: one.begin_ms):
        end_ms = _end_ms(outage, until_ms)
        pad_ms = max(_PAD_MIN_MS, min(end_ms - outage.begin_ms, _PAD_MAX_MS))
        first_ms, last_ms = outage.begin_ms - pad_ms, min(end_ms + pad_ms, until_ms)
        width_ms = bucket_width_ms(first_ms, last_ms)
        steps = list(_steps(engine, lives, outage, first_ms, last_ms, width_ms))
        rows += [attrs.asdict(step) for step in steps]
        charts += _charts(outage, steps, width_ms)
    if not rows:
        return [], []
    title = (
        "Around the outages that cost most: messages stored in each step, by their time from birth "
        "to the store, and what was left to consume and to replicate at its end"
    )
    return [table("close_up", title, _COLUMNS, rows, _BOUNDS)], charts


def _end_ms(outage: Outage, until_ms: int) -> int:
    return until_ms if outage.end_ms is None else outage.end_ms


def _steps(
    engine: Engine, lives: Lives, outage: Outage, first_ms: int, last_ms: int, width_ms: int
) -> Iterator[CloseUpStep]:
    stored = _latencies(engine, outage, first_ms, last_ms, width_ms)
    lags = _last_by_step(_consumer_lags(engine, outage), first_ms, last_ms, width_ms)
    behind = _last_by_step(_slave_lags(engine, lives, outage), first_ms, last_ms, width_ms)
    for begin_ms in buckets(first_ms, last_ms, width_ms):
        bins = stored.get(begin_ms, Bins()) if stored is not None else None
        left, lacking = lags.get(begin_ms), behind.get(begin_ms)
        yield CloseUpStep(
            outage.broker,
            begin_ms,
            None if bins is None else bins.total(),
            None if bins is None else bins.percentile(50),
            None if bins is None else bins.percentile(99),
            max(bins) if bins else None,
            None if left is None else sum(left.values()),
            None if lacking is None else max(lacking.values()),
        )


def _latencies(
    engine: Engine, outage: Outage, first_ms: int, last_ms: int, width_ms: int
) -> Mapping[int, Bins] | None:
    """Latencies by step, of the newest log of the broker that was given; None without a log."""
    stores = stores_of_journals(engine, {outage.after_journal}) or stores_of_journals(
        engine, {outage.before_journal}
    )
    if not stores:
        return None
    step = bucket("store_ms", width_ms)
    latency = bin_sql("(store_ms - born_ms)")
    rows = engine.query(
        f"SELECT {step} AS begin_ms, {latency} AS latency_bin, COUNT(*) AS messages "
        f"FROM commitlog WHERE store = {literal(sorted(stores)[0])} "
        f"AND store_ms >= {first_ms} AND store_ms <= {last_ms} GROUP BY {step}, {latency}"
    )
    found: defaultdict[int, Bins] = defaultdict(Bins)
    for row in rows:
        found[row["begin_ms"]][row["latency_bin"]] += row["messages"]
    return found


def _consumer_lags(engine: Engine, outage: Outage) -> Iterator[tuple[int, object, int]]:
    """Yield time, group and topic, and the messages that the group lacked."""
    for row in engine.journal({"consumer_lag"}):
        if row.node.rpartition(":")[0] == outage.broker:
            key = row.fields.get("group"), row.fields.get("topic")
            yield row.wall_ms, key, number(row, "lag")


def _slave_lags(engine: Engine, lives: Lives, outage: Outage) -> Iterator[tuple[int, object, int]]:
    """Yield time, master and peer, and the bytes that the peer lacked."""
    for row in engine.journal({"ha_progress"}):
        if row.node.rpartition(":")[0] == outage.broker:
            host = row.fields.get("peer", "").rpartition(":")[0]
            yield row.wall_ms, (row.node, host), number(row, "gap_bytes")


def _last_by_step(
    samples: Iterator[tuple[int, object, int]], first_ms: int, last_ms: int, width_ms: int
) -> dict[int, dict[object, int]]:
    """The newest sample of each at the end of each step, from the first sample on."""
    waiting = sorted(samples, key=lambda sample: sample[0])
    known: dict[object, int] = {}
    found: dict[int, dict[object, int]] = {}
    place = 0
    for begin_ms in buckets(first_ms, last_ms, width_ms):
        while place < len(waiting) and waiting[place][0] < begin_ms + width_ms:
            _, key, value = waiting[place]
            known[key] = value
            place += 1
        if known:
            found[begin_ms] = dict(known)
    return found


def _charts(outage: Outage, steps: Sequence[CloseUpStep], width_ms: int) -> Iterator[Chart]:
    where = f"{outage.broker} around {say_time(outage.begin_ms)}"
    if any(step.messages for step in steps):
        lines = {
            "99 of 100 within": [(step.begin_ms, step.p99_ms) for step in steps],
            "half within": [(step.begin_ms, step.p50_ms) for step in steps],
        }
        yield Chart(
            title=f"{where}: time from birth to the store, in steps of {say_ms(width_ms)}",
            kind="line",
            x_label="time of storing (UTC)",
            y_label="time",
            x_kind="time",
            y_kind="duration",
            series=[Series(label, points) for label, points in lines.items()],
            note="Gaps: nothing was stored in that step.",
        )
    if any(step.consumer_lag is not None for step in steps):
        yield Chart(
            title=f"{where}: messages not consumed, in steps of {say_ms(width_ms)}",
            kind="line",
            x_label="time (UTC)",
            y_label="messages",
            x_kind="time",
            series=[Series("all groups", [(step.begin_ms, step.consumer_lag) for step in steps])],
            note="Brokers sample it every ten seconds; between samples the last one stands.",
        )
