"""Outages of every broker, held against the logs of the stores that were given.

Each outage gets the last record before its end and the first since. A record later than a node's
last word proves that it still lived then. Records that a group writes for itself prove nothing: a
new leader writes one before it serves.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.analysis.engine import Engine, literals
from trioha.analysis.reports.lives import Lives, stores_of_journals
from trioha.analysis.reports.outages import Outage, outages_of
from trioha.wire.names import RAFT_TOPICS

CHECKED_MAX = 100
"""Outages of a broker that are held against the log: one scan serves them all."""


def checked_outages(engine: Engine, lives: Lives) -> dict[str, list[Outage]]:
    """Outages of each broker in the order they began, as journals and logs have them."""
    return {
        broker: _checked(engine, lives, broker, outages_of(lives, broker))
        for broker in lives.brokers
    }


def _checked(engine: Engine, lives: Lives, broker: str, outages: Sequence[Outage]) -> list[Outage]:
    """The outages with the writes around them, and begun no earlier than the last of them."""
    stores = stores_of_journals(engine, {life.journal for life in lives.of_broker(broker)})
    if not stores:
        return list(outages)
    checked = list(outages)
    # Puts of an outage that is not over are looked for at the end of the log.
    edges = [
        1 << 62 if outage.end_ms is None else outage.end_ms for outage in checked[:CHECKED_MAX]
    ]
    if not edges:
        return checked
    columns = ", ".join(
        f"MAX(CASE WHEN store_ms < {edge} THEN store_ms END) AS before_{at}, "
        f"MIN(CASE WHEN store_ms >= {edge} THEN store_ms END) AS after_{at}"
        for at, edge in enumerate(edges)
    )
    sql = f"SELECT {columns} FROM commitlog WHERE store IN {literals(stores)}"
    (row,) = engine.query(f"{sql} AND topic NOT IN {literals(sorted(RAFT_TOPICS))}")
    for at, _ in enumerate(edges):
        outage, last_ms = checked[at], row[f"before_{at}"]
        is_refusal = outage.cause.startswith("writes refused")
        begin_ms, earliest_ms, latest_ms = outage.begin_ms, outage.earliest_ms, outage.latest_ms
        if last_ms is not None and not is_refusal:
            begin_ms = max(begin_ms, last_ms)
            earliest_ms = max(earliest_ms, last_ms)
            latest_ms = max(latest_ms, last_ms)
        checked[at] = attrs.evolve(
            outage,
            begin_ms=begin_ms,
            earliest_ms=earliest_ms,
            latest_ms=latest_ms,
            last_write_ms=last_ms,
            first_write_ms=row[f"after_{at}"],
        )
    return checked
