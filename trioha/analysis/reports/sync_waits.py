"""Waits of a SYNC_MASTER's puts for slaves, and the number that waited in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trioha.analysis.reports.links import SyncWaits
from trioha.analysis.reports.tables import ratio, table
from trioha.analysis.reports.time_buckets import bucket_width_ms
from trioha.analysis.reports.words import say_ms
from trioha.analysis.results import Chart, Series, Table

_SAMPLE_MS = 10_000


def wait_charts(waits: Sequence[SyncWaits]) -> Iterator[Chart]:
    by_node: dict[str, list[SyncWaits]] = {}
    for each in waits:
        by_node.setdefault(each.node, []).append(each)
    series = []
    for node, of_node in by_node.items():
        bins = _bins(of_node)
        last = max((at for at, count in enumerate(bins) if count), default=-1)
        points = [((1 << at) >> 1, 1 << at, count) for at, count in enumerate(bins[: last + 1])]
        if points:
            series.append(Series(node, points))
    if series:
        yield Chart(
            title="What puts waited for a slave",
            kind="histogram",
            x_label="wait",
            y_label="puts",
            series=series,
            note="Puts that one acknowledgement released count with the wait of their oldest.",
            x_kind="duration",
        )
    if any(each.timeouts or each.unavailable for each in waits):
        moments = [each.at_ms for each in waits]
        width_ms = max(_SAMPLE_MS, bucket_width_ms(min(moments), max(moments)))
        counts: dict[str, dict[int, int]] = {"timed out": {}, "no slave": {}}
        for each in waits:
            at = each.at_ms - each.at_ms % width_ms
            for label, count in (("timed out", each.timeouts), ("no slave", each.unavailable)):
                counts[label][at] = counts[label].get(at, 0) + count
        yield Chart(
            title="Puts that no slave acknowledged in time",
            kind="bar",
            x_label="time",
            y_label=f"puts in {say_ms(width_ms)}",
            series=[Series(label, sorted(points.items())) for label, points in counts.items()],
            note="They are stored on the master: what the client was told is that one copy exists.",
            x_kind="time",
        )


def waits_table(waits: Sequence[SyncWaits]) -> Table:
    by_node: dict[tuple[str, str], list[SyncWaits]] = {}
    for each in waits:
        by_node.setdefault((each.journal, each.node), []).append(each)
    rows = []
    for (_, node), of_node in by_node.items():
        puts = sum(each.puts for each in of_node)
        bins = _bins(of_node)
        rows.append(
            {
                "node": node,
                "puts": puts,
                "average_ms": ratio(sum(each.waited_ms for each in of_node), puts),
                "p50_below_ms": _below(bins, 0.50),
                "p99_below_ms": _below(bins, 0.99),
                "longest_ms": max(each.longest_ms for each in of_node),
                "timeouts": sum(each.timeouts for each in of_node),
                "unavailable": sum(each.unavailable for each in of_node),
            }
        )
    return table(
        "sync_waits",
        "Puts of a SYNC_MASTER",
        "node puts:integer average_ms:duration p50_below_ms:duration p99_below_ms:duration "
        "longest_ms:duration timeouts:integer unavailable:integer",
        rows,
    )


def _bins(waits: Sequence[SyncWaits]) -> list[int]:
    bins = [0] * max((len(each.bins) for each in waits), default=0)
    for each in waits:
        for at, count in enumerate(each.bins):
            bins[at] += count
    return bins


def _below(bins: Sequence[int], share: float) -> int | None:
    """The bound below which a share of all lies."""
    total, seen = sum(bins), 0
    for at, count in enumerate(bins):
        seen += count
        if count and seen >= share * total:
            return 1 << at
    return None
