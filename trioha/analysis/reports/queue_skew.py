"""Skew of a topic's messages over its queues: largest over mean, and Gini's coefficient.

Gini's coefficient is 0 when all queues hold the same and nears 1 when one holds everything. With
queues in order of their messages x it is 2·Σ(i·x_i)/(n·Σx) - (n+1)/n; queues without a message come
first in that order, so SQL needs to rank only the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trioha.analysis.engine import Engine, or_noted
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import say_share
from trioha.analysis.results import Chart, Finding, Series, Table
from trioha.analysis.store_files import StoreFiles
from trioha.wire.names import is_dlq_topic, is_retry_topic, is_system_topic

MESSAGES_MIN = 100
"""Below, chance alone makes queues uneven."""
MAX_OVER_MEAN = 2.0


def skew_table(engine: Engine, top: int) -> Table:
    """The most uneven topics of each store."""
    rows = engine.query(
        "SELECT store, topic, COUNT(*) AS used, MAX(queue_id) AS last_queue, "
        "SUM(messages) AS messages, MAX(messages) AS largest, SUM(place * messages) AS weighted, "
        "MIN(CASE WHEN place_down = 1 THEN queue_id END) AS queue_id FROM ("
        "SELECT store, topic, queue_id, messages, "
        "ROW_NUMBER() OVER (PARTITION BY store, topic ORDER BY messages, queue_id) AS place, "
        "ROW_NUMBER() OVER (PARTITION BY store, topic ORDER BY messages DESC, queue_id) "
        "AS place_down FROM (SELECT store, topic, queue_id, SUM(messages) AS messages "
        "FROM commitlog_stats GROUP BY store, topic, queue_id) AS t) AS u GROUP BY store, topic",
    )
    queues = {store.label: _queue_numbers(engine, store) for store in engine.stores}
    found = []
    for row in rows:
        count = max(queues[row["store"]].get(row["topic"], 0), row["last_queue"] + 1)
        if count > 1 and _is_users(row["topic"]):
            found.append(row | _figures(row, count))
    found.sort(key=lambda row: (-row["gini"], -row["messages"], row["store"], row["topic"]))
    return table(
        "skew",
        f"Topics by unevenness of their queues, the first {top}",
        "store topic queues:integer used:integer messages:integer largest:integer queue_id:integer "
        "largest_share:share max_over_mean:number gini:number",
        found[:top],
    )


def _figures(row: Mapping[str, Any], count: int) -> dict[str, Any]:
    total, empty = row["messages"], count - row["used"]
    weighted = row["weighted"] + empty * total
    return {
        "queues": count,
        "largest_share": row["largest"] / total,
        "max_over_mean": row["largest"] * count / total,
        "gini": 2 * weighted / (count * total) - (count + 1) / count,
    }


def _is_users(topic: str) -> bool:
    return not (is_retry_topic(topic) or is_dlq_topic(topic) or is_system_topic(topic))


def _queue_numbers(engine: Engine, store: StoreFiles) -> dict[str, int]:
    """Return the number of write queues of each topic, as its configuration says."""
    return {
        name: number
        for name, topic in (or_noted(engine, store.topics) or {}).items()
        if isinstance(number := topic.get("writeQueueNums"), int)
    }


def skew_findings(found: Table) -> Iterator[Finding]:
    """Sentences on topics of which one queue takes much more than its part."""
    for store, topic, queues, _, messages, _, queue_id, share, over_mean, _ in found.rows:
        assert isinstance(messages, int)
        assert isinstance(over_mean, float)
        assert isinstance(share, float)
        if messages >= MESSAGES_MIN and over_mean >= MAX_OVER_MEAN:
            yield Finding.warning(
                f"{store}: topic {topic}: one of {queues} queues (number {queue_id}) takes "
                f"{say_share(share, 1)} of {messages:,} messages."
            )


def skew_chart(found: Table) -> Chart:
    """Gini's coefficient of the most uneven topics."""
    stores = sorted({str(row[0]) for row in found.rows})
    return Chart(
        title="Unevenness of topics over their queues",
        kind="bar",
        x_label="topic",
        y_label="Gini coefficient (0 even, 1 all in one queue)",
        x_kind="category",
        series=[
            Series(store, [(row[1], row[9]) for row in found.rows if row[0] == store])
            for store in stores
        ],
    )
