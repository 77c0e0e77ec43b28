"""Retries, dead letters and delayed messages.

A message sent back waits in SCHEDULE_TOPIC_XXXX and is then stored in %RETRY%group; after too many
times it is stored in %DLQ%group instead. Stores of one broker repeat each other: figures are per
store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from trioha.analysis.engine import Engine, literal, literals, or_noted
from trioha.analysis.reports.consumer_lag import QueueEnds, newest_ms
from trioha.analysis.reports.first_stores import has_prefix
from trioha.analysis.reports.retry_groups import group_of_retry
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of, say_ms
from trioha.analysis.results import Chart, Finding, Series, Table
from trioha.wire.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_dlq_topic,
)
from trioha.wire.properties import Property

OVERDUE_MS = 60_000
"""Lateness of a delay level's head beyond which it is worth a sentence."""


def redelivery(
    engine: Engine, now_ms: int, top: int
) -> tuple[list[Table], list[Chart], list[Finding]]:
    """Retry and dead letter topics: by group, by origin, by number of attempts."""
    groups = engine.query(
        "SELECT store, topic, SUM(messages) AS messages, MIN(store_ms_min) AS oldest_ms, "
        "MAX(store_ms_max) AS newest_ms FROM commitlog_stats "
        f"WHERE {has_prefix('topic', RETRY_PREFIX)} OR {has_prefix('topic', DLQ_PREFIX)} "
        "GROUP BY store, topic ORDER BY messages DESC, store, topic LIMIT 1000",
    )
    topics = sorted({row["topic"] for row in groups})
    origins = _origins(engine, topics)
    attempts = _attempts(engine, topics)
    by_topic: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    offsets = {each.label: or_noted(engine, each.consumer_offsets) or {} for each in engine.stores}
    for row in (*groups, *origins, *attempts):
        row |= _kind_of(row["topic"], offsets[row["store"]])
    for row in origins:
        by_topic[row["store"], row["topic"]].append(row)
    for row in groups:
        of_group = by_topic[row["store"], row["topic"]]
        times = [each for each in attempts if each["topic"] == row["topic"]]
        row |= {
            "different": sum(each["different"] for each in of_group),
            "age_ms": now_ms - row["oldest_ms"],
            "reconsume_max": max((each["reconsume_times"] for each in times), default=0),
            "top_origin": of_group[0]["origin"] if of_group else None,
        }
    findings = [
        Finding.warning(
            f"{row['store']}: group {row['consumer_group']} gave up on "
            f"{count_of(row['messages'], 'message')}, mostly {_say_origin(row['top_origin'])}; "
            f"the oldest dead letter is {say_ms(row['age_ms'])} old."
        )
        for row in groups
        if row["kind"] == "dead letter"
    ]
    tables = [
        table(
            "redelivery",
            f"Retries and dead letters by group, the first {top}",
            "store consumer_group kind messages:integer different:integer oldest_ms:time "
            "newest_ms:time age_ms:duration reconsume_max:integer top_origin",
            groups[:top],
        ),
        table(
            "redelivery_origins",
            f"Which topics retries and dead letters come from, the first {top}",
            "store consumer_group kind origin messages:integer different:integer",
            origins[:top],
        ),
        table(
            "reconsume_times",
            "How many times messages had been delivered when they were stored again",
            "store consumer_group kind reconsume_times:integer messages:integer",
            attempts,
        ),
    ]
    return tables, [_attempts_chart(attempts)], findings


def _say_origin(topic: str | None) -> str:
    """Records without the property RETRY_TOPIC do not say which topic they come from."""
    return f"of topic {topic}" if topic else "of unknown origin"


def _kind_of(topic: str, offsets: Collection[tuple[str, str]]) -> dict[str, str]:
    if is_dlq_topic(topic):
        return {"kind": "dead letter", "consumer_group": topic.removeprefix(DLQ_PREFIX)}
    return {"kind": "retry", "consumer_group": group_of_retry(topic, offsets)}


def _origins(engine: Engine, topics: list[str]) -> list[dict[str, Any]]:
    if not topics:
        return []
    origin = engine.item("properties", Property.RETRY_TOPIC)
    # A client's unique id stays with every copy; without one the first offset id does.
    first_id = engine.item("properties", Property.ORIGIN_MESSAGE_ID)
    return engine.query(
        "SELECT store, topic, origin, COUNT(*) AS messages, COUNT(DISTINCT id) AS different "
        f"FROM (SELECT store, topic, COALESCE({origin}, '') AS origin, "
        f"COALESCE(unique_key, {first_id}) AS id FROM commitlog_full "
        f"WHERE topic IN {literals(topics)}) AS t GROUP BY store, topic, origin "
        "ORDER BY messages DESC, store, topic, origin LIMIT 10000",
        topics=topics,
    )


def _attempts(engine: Engine, topics: list[str]) -> list[dict[str, Any]]:
    if not topics:
        return []
    return engine.query(
        "SELECT store, topic, reconsume_times, COUNT(*) AS messages FROM commitlog "
        f"WHERE topic IN {literals(topics)} GROUP BY store, topic, reconsume_times "
        "ORDER BY store, topic, reconsume_times",
    )


def _attempts_chart(attempts: list[dict[str, Any]]) -> Chart:
    series = []
    for kind in ("retry", "dead letter"):
        counts: dict[int, int] = defaultdict(int)
        for row in attempts:
            if row["kind"] == kind:
                counts[row["reconsume_times"]] += row["messages"]
        points = [(times, times + 1, count) for times, count in sorted(counts.items())]
        series.append(Series(kind, points))
    return Chart(
        title="Retries and dead letters by how often the message had been delivered before",
        kind="histogram",
        x_label="deliveries before",
        y_label="records",
        series=series,
    )


def delays(engine: Engine, ends: QueueEnds) -> tuple[list[Table], list[Finding]]:
    """Delayed messages: delivered and waiting, per store and level."""
    rows: list[dict[str, Any]] = []
    for store in engine.stores:
        offsets = or_noted(engine, store.delay_offsets) or {}
        for (label, topic, queue_id), (_, end) in sorted(ends.items()):
            if label == store.label and topic == SCHEDULE_TOPIC:
                done = offsets.get(queue_id + 1, 0)
                rows.append(
                    {
                        "store": label,
                        "level": queue_id + 1,
                        "stored": end,
                        "delivered": done,
                        "waiting": end - done,
                        "due_ms": None,
                        "overdue_ms": None,
                    }
                )
    _find_due(engine, rows, newest_ms(engine))
    findings = [
        Finding.warning(
            f"{row['store']}: delay level {row['level']}: the next of "
            f"{count_of(row['waiting'], 'message')} was due {say_ms(row['overdue_ms'])} before "
            "the newest record: delivery lags or stands still."
        )
        for row in rows
        if (row["overdue_ms"] or 0) > OVERDUE_MS
    ]
    return [
        table(
            "delays",
            "Delayed messages by level, as consume queue and delayOffset.json say",
            "store level:integer stored:integer delivered:integer waiting:integer due_ms:time "
            "overdue_ms:duration",
            rows,
        )
    ], findings


def _find_due(engine: Engine, rows: list[dict[str, Any]], newest: dict[str, int]) -> None:
    """Add the time at which the head of each level is due: the tags code of its entry says so."""
    where = " OR ".join(
        f"(store = {literal(row['store'])} AND queue_id = {row['level'] - 1} "
        f"AND queue_offset = {row['delivered']})"
        for row in rows
        if row["waiting"] > 0
    )
    if not where:
        return
    found = engine.query(
        "SELECT store, queue_id, tags_code FROM consumequeue "
        f"WHERE topic = {literal(SCHEDULE_TOPIC)} AND ({where})",
    )
    due = {(row["store"], row["queue_id"] + 1): row["tags_code"] for row in found}
    for row in rows:
        due_ms = due.get((row["store"], row["level"]))
        if due_ms is not None:
            row["due_ms"] = due_ms
            now_ms = newest.get(row["store"])
            row["overdue_ms"] = None if now_ms is None else max(0, now_ms - due_ms)
