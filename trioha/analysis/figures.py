"""Figures of reports that two runs can be compared by, and by how much each may get worse.

A figure is a column of a report's table, for each value of the table's key: the availability of a
broker, the lag of a consumer group. Its bound is stated beside it, in the comparison as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from trioha.analysis.results import ColumnKind, Report, Table, Value

Better = Literal["lower", "higher", "neither"]
ROWS = "rows"
"""Stands for a column: the number of rows that a table has of a key."""


@attrs.frozen
class Bound:
    """A figure may get worse by the larger one of a share of what it was and an amount."""

    share: float = 0.0
    amount: float = 0.0
    """Amount in the figure's unit: milliseconds, bytes, or none."""

    def of(self, before: float) -> float:
        """The bound of a figure that was `before`."""
        return max(self.share * abs(before), self.amount)


@attrs.frozen
class Figure:
    """Place of a figure in the reports, and the rule by which it is judged."""

    name: str
    """Name in words, as a sentence uses it."""
    report: str
    table: str
    keys: tuple[str, ...]
    column: str
    better: Better
    bound: Bound = Bound()
    is_count: bool = False
    """No row means zero; rows of one key are added up."""


_SECOND = Bound(0.2, 1_000)
_PERCENT = Bound(0, 0.01)
_STORE, _BROKER, _LINK = ("store",), ("broker",), ("link",)
_RETRIED = ("store", "consumer_group", "kind")
_GROUP = ("store", "consumer_group", "topic")

FIGURES: tuple[Figure, ...] = (
    Figure(
        "availability", "failovers", "brokers", _BROKER, "availability", "higher", Bound(0, 0.0001)
    ),
    Figure(
        "time without a writable master",
        "failovers",
        "brokers",
        _BROKER,
        "lost_ms",
        "lower",
        _SECOND,
    ),
    Figure("unplanned outages", "failovers", "brokers", _BROKER, "unplanned", "lower"),
    Figure("mean unplanned outage", "failovers", "brokers", _BROKER, "mttr_ms", "lower", _SECOND),
    Figure(
        "mean planned outage", "failovers", "brokers", _BROKER, "planned_mean_ms", "lower", _SECOND
    ),
    Figure("longest outage", "failovers", "brokers", _BROKER, "longest_ms", "lower", _SECOND),
    Figure("refusals", "failovers", "refusals", ("node", "what"), "count", "lower", is_count=True),
    Figure("records that differ", "divergence", "pairs", ("a", "b"), "differing", "lower"),
    Figure(
        "most bytes behind",
        "replication",
        "links",
        _LINK,
        "gap_max_bytes",
        "lower",
        Bound(0.2, 1 << 20),
    ),
    Figure("longest time behind", "replication", "links", _LINK, "behind_max_ms", "lower", _SECOND),
    Figure(
        "time with a slave in sync", "replication", "in_sync", _BROKER, "share", "higher", _PERCENT
    ),
    Figure(
        "time without progress of the commit",
        "replication",
        "groups",
        _BROKER,
        "stalled_ms",
        "lower",
        Bound(0.2, 3_000),
    ),
    Figure(
        "late or missing heartbeats",
        "replication",
        "silences",
        ("node",),
        ROWS,
        "lower",
        is_count=True,
    ),
    Figure("messages not consumed", "queues", "lag", _GROUP, "lag", "lower", Bound(0.2, 100)),
    Figure(
        "age of the oldest message not consumed",
        "queues",
        "lag",
        _GROUP,
        "age_ms",
        "lower",
        _SECOND,
    ),
    Figure(
        "redelivered messages", "queues", "redelivery", _RETRIED, "messages", "lower", is_count=True
    ),
    Figure(
        "open transactions", "queues", "transactions", _STORE, "waiting", "lower", is_count=True
    ),
    Figure(
        "transactions given up",
        "queues",
        "transactions",
        _STORE,
        "given_up",
        "lower",
        is_count=True,
    ),
    Figure(
        "bytes behind",
        "divergence",
        "pairs",
        ("a", "b"),
        "behind_bytes",
        "lower",
        Bound(0.2, 1 << 20),
    ),
    Figure(
        "damaged stretches of the log", "integrity", "damage", _STORE, ROWS, "lower", is_count=True
    ),
    Figure(
        "messages missing in queues",
        "integrity",
        "queue_steps",
        _STORE,
        "missing",
        "lower",
        is_count=True,
    ),
    Figure(
        "wrong places of consume queues",
        "integrity",
        "queue_entries",
        _STORE,
        "places",
        "lower",
        is_count=True,
    ),
    Figure(
        "latency, half of the messages",
        "latency",
        "stores",
        _STORE,
        "p50_ms",
        "lower",
        Bound(0.2, 5),
    ),
    Figure(
        "latency, 95 % of the messages",
        "latency",
        "stores",
        _STORE,
        "p95_ms",
        "lower",
        Bound(0.2, 10),
    ),
    Figure(
        "latency, 99 % of the messages",
        "latency",
        "stores",
        _STORE,
        "p99_ms",
        "lower",
        Bound(0.2, 20),
    ),
    Figure("messages stored", "throughput", "stores", _STORE, "messages", "neither"),
    Figure("bytes stored", "throughput", "stores", _STORE, "record_bytes", "neither"),
    Figure(
        "messages a second", "throughput", "stores", _STORE, "mean_per_s", "higher", Bound(0.2, 1)
    ),
    Figure(
        "messages a second at the peak", "throughput", "stores", _STORE, "peak_per_s", "neither"
    ),
    Figure("size of the log", "retention", "stores", _STORE, "log_bytes", "neither"),
    Figure("disk in use", "retention", "stores", _STORE, "disk_used", "lower", Bound(0, 0.05)),
    Figure(
        "days until the disk is full",
        "retention",
        "forecast",
        _STORE,
        "days",
        "higher",
        Bound(0.2, 1),
    ),
)

Key = tuple[Value, ...]


@attrs.frozen
class Values:
    """A figure's values by key, in the table's order."""

    kind: ColumnKind
    by_key: Mapping[Key, float | None]


def values_of(figure: Figure, report: Report) -> Values | None:
    """Return the figure's values in a report; None if the report does not have its table."""
    found: list[Table] = [each for each in report.tables if each.name == figure.table]
    if not found:
        return None
    (table,) = found
    places = {column.name: place for place, column in enumerate(table.columns)}
    wanted = figure.keys if figure.column == ROWS else (*figure.keys, figure.column)
    if not places.keys() >= set(wanted):
        return None
    place = None if figure.column == ROWS else places[figure.column]
    by_key: dict[Key, float | None] = {}
    for row in table.rows:
        key = tuple(row[places[name]] for name in figure.keys)
        value = 1.0 if place is None else _number(row[place])
        if figure.is_count:
            by_key[key] = (by_key.get(key) or 0) + (value or 0)
        else:
            # A key that comes again has its largest figure in the first row.
            by_key.setdefault(key, value)
    return Values("integer" if place is None else table.columns[place].kind, by_key)


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def figures_made(reports: Sequence[Report]) -> frozenset[str]:
    """Names of the reports that have figures to compare."""
    known = {figure.report for figure in FIGURES}
    return frozenset(report.name for report in reports if report.name in known)
