"""Lag of consumer groups: now, from consumerOffset.json, and over time, from journals.

The lag of a queue is its end less the group's committed offset. Its age is the time from the first
message not consumed to the newest record of the store: a stopped broker's clock does not go on.
Brokers journal `consumer_lag` every ten seconds for groups whose figures changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioha.analysis.engine import Engine, bucket, literal, or_noted
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.time_buckets import bucket_width_ms
from trioha.analysis.reports.words import count_of, say_ms
from trioha.analysis.results import Chart, Finding, Series, Table

AGES_MAX = 200
"""Queues whose first message not consumed is looked up, those with the largest lags."""
LINES_MAX = 8
_LAG_NAME = "consumer_lag"


@attrs.define
class GroupQueueLag:
    """One group in one queue. `lag` below zero: the group is ahead of the queue's end."""

    store: str
    group: str
    topic: str
    queue_id: int
    consumer_offset: int
    min_offset: int
    end_offset: int
    age_ms: int | None = None

    @property
    def lag(self) -> int:
        return self.end_offset - self.consumer_offset

    @property
    def deleted(self) -> int:
        """Messages that went before the group had them."""
        return max(0, self.min_offset - self.consumer_offset)


QueueEnds = Mapping[tuple[str, str, int], tuple[int, int]]
"""(Store, topic, queue id) -> first queue offset that the log still has, and the end."""


def queue_ends(engine: Engine) -> QueueEnds:
    """Return the ends of every consume queue."""
    begins = engine.query(
        "SELECT store, MIN(phy_offset_min) AS log_begin FROM commitlog_stats GROUP BY store",
    )
    cases = " ".join(f"WHEN {literal(row['store'])} THEN {row['log_begin']}" for row in begins)
    log_begin = f"CASE store {cases} ELSE 0 END" if cases else "0"
    rows = engine.query(
        "SELECT store, topic, queue_id, "
        f"MIN(CASE WHEN phy_offset >= {log_begin} THEN queue_offset END) AS low, "
        "MAX(queue_offset) + 1 AS end_offset FROM consumequeue GROUP BY store, topic, queue_id",
    )
    return {
        (row["store"], row["topic"], row["queue_id"]): (
            row["end_offset"] if row["low"] is None else row["low"],
            row["end_offset"],
        )
        for row in rows
    }


def lags_now(engine: Engine, ends: QueueEnds) -> list[GroupQueueLag]:
    """Return the lag of every committed offset of every store behind the end of its queue."""
    lags = []
    for store in engine.stores:
        offsets = or_noted(engine, store.consumer_offsets) or {}
        for (topic, group), queues in offsets.items():
            for queue_id, offset in queues.items():
                low, end = ends.get((store.label, topic, queue_id), (0, 0))
                lags.append(GroupQueueLag(store.label, group, topic, queue_id, offset, low, end))
    lags.sort(key=lambda lag: (-lag.lag, lag.store, lag.group, lag.topic, lag.queue_id))
    _find_ages(engine, [lag for lag in lags[:AGES_MAX] if lag.lag > 0])
    return lags


def newest_ms(engine: Engine) -> dict[str, int]:
    """Return the store time of each store's newest record."""
    rows = engine.query(
        "SELECT store, MAX(store_ms_max) AS newest_ms FROM commitlog_stats GROUP BY store"
    )
    return {row["store"]: row["newest_ms"] for row in rows}


def _find_ages(engine: Engine, lags: list[GroupQueueLag]) -> None:
    if not lags:
        return
    newest = newest_ms(engine)
    wanted = {
        f"({literal(lag.store)}, {literal(lag.topic)}, {lag.queue_id}, {_first_left(lag)})"
        for lag in lags
    }
    keys = ("store", "topic", "queue_id", "queue_offset")
    # A join, for of as many conditions with OR every row would be held against each.
    rows = engine.query(
        f"SELECT {', '.join(f'r.{key}' for key in keys)}, MAX(r.store_ms) AS store_ms "
        f"FROM (VALUES {', '.join(sorted(wanted))}) AS w({', '.join(keys)}) "
        f"JOIN commitlog AS r ON {' AND '.join(f'r.{key} = w.{key}' for key in keys)} "
        f"GROUP BY {', '.join(f'r.{key}' for key in keys)}",
    )
    times = {
        (row["store"], row["topic"], row["queue_id"], row["queue_offset"]): row["store_ms"]
        for row in rows
    }
    for lag in lags:
        first_ms = times.get((lag.store, lag.topic, lag.queue_id, _first_left(lag)))
        if first_ms is not None:
            lag.age_ms = newest[lag.store] - first_ms


def _first_left(lag: GroupQueueLag) -> int:
    return max(lag.consumer_offset, lag.min_offset)


SAMPLED = (
    "Brokers sample a group's figures every ten seconds, and note them when they have changed: a "
    "lag that came and went in between is not seen."
)


def lag_tables(lags: list[GroupQueueLag], top: int) -> list[Table]:
    """Return the tables of lags by group and topic, and of the queues that are furthest behind."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for lag in lags:
        row = groups.setdefault(
            (lag.store, lag.group, lag.topic),
            {
                "store": lag.store,
                "consumer_group": lag.group,
                "topic": lag.topic,
                "queues": 0,
                "lag": 0,
                "age_ms": None,
                "deleted": 0,
            },
        )
        row["queues"] += 1
        row["lag"] += lag.lag
        row["deleted"] += lag.deleted
        if lag.age_ms is not None:
            row["age_ms"] = max(lag.age_ms, row["age_ms"] or 0)
    rows = sorted(groups.values(), key=lambda row: -row["lag"])
    return [
        table(
            "lag",
            f"Consumer groups by messages not consumed, the first {top}; deleted: gone from the "
            "log before the group had them",
            "store consumer_group topic queues:integer lag:integer:msg age_ms:duration "
            "deleted:integer:msg",
            rows[:top],
        ),
        table(
            "lag_queues",
            f"The {top} queues that are furthest behind",
            "store consumer_group topic queue_id:integer consumer_offset:integer "
            "end_offset:integer lag:integer:msg age_ms:duration",
            [
                attrs.asdict(lag) | {"consumer_group": lag.group, "lag": lag.lag}
                for lag in lags[:top]
            ],
        ),
    ]


def lag_findings(tables: list[Table], lags: list[GroupQueueLag]) -> Iterator[Finding]:
    """Sentences on the largest lags, on lost messages and on offsets beyond the end."""
    for store, group, topic, _, lag, age_ms, deleted in tables[0].rows[:5]:
        assert isinstance(lag, int)
        assert isinstance(deleted, int)
        if lag > 0:
            age = f", the oldest {say_ms(age_ms)} old" if isinstance(age_ms, int) else ""
            yield Finding.info(
                f"{store}: group {group} has not consumed {count_of(lag, 'message')} of topic "
                f"{topic}{age}."
            )
        if deleted:
            yield Finding.warning(
                f"{store}: {count_of(deleted, 'message')} of topic {topic} went from the log "
                f"before group {group} had them."
            )
    ahead = [lag for lag in lags if lag.lag < 0]
    for each in ahead[-5:]:
        yield Finding.warning(
            f"{each.store}: group {each.group} stands {count_of(-each.lag, 'message')} beyond the "
            f"end of topic {each.topic} queue {each.queue_id}: it will miss as many, unless the "
            "topic is no longer there."
        )


def lag_over_time(engine: Engine) -> tuple[list[Table], list[Chart]]:
    """Return the lag that the journals sampled; nothing if they have no samples."""
    if not engine.journal_count:
        return [], []
    samples = (
        f"SELECT node, wall_ms, {engine.item('fields', 'group')} AS consumer_group, "
        f"{engine.item('fields', 'topic')} AS topic, "
        f"CAST({engine.item('fields', 'lag')} AS BIGINT) AS lag "
        f"FROM journal WHERE name = {literal(_LAG_NAME)}"
    )
    ends = engine.query(
        f"SELECT MIN(wall_ms) AS first_ms, MAX(wall_ms) AS last_ms FROM ({samples}) AS t",
    )[0]
    if ends["first_ms"] is None:
        return [], []
    width_ms = bucket_width_ms(ends["first_ms"], ends["last_ms"])
    rows = engine.query(
        f"WITH samples AS ({samples}), largest AS (SELECT node, consumer_group, topic, "
        "MAX(lag) AS lag_max FROM samples GROUP BY node, consumer_group, topic "
        f"ORDER BY MAX(lag) DESC, node, consumer_group, topic LIMIT {LINES_MAX}) "
        "SELECT samples.node AS node, samples.consumer_group AS consumer_group, "
        f"samples.topic AS topic, {bucket('wall_ms', width_ms)} AS begin_ms, "
        "MAX(lag) AS lag_max FROM samples JOIN largest ON largest.node = samples.node "
        "AND largest.consumer_group = samples.consumer_group AND largest.topic = samples.topic "
        "GROUP BY samples.node, samples.consumer_group, samples.topic, "
        f"{bucket('wall_ms', width_ms)} ORDER BY node, consumer_group, topic, begin_ms",
    )
    lines: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        label = f"{row['consumer_group']} of {row['topic']} @ {row['node']}"
        lines.setdefault(label, []).append((row["begin_ms"], row["lag_max"]))
    found = table(
        "lag_time",
        f"The largest lags in steps of {say_ms(width_ms)}, as brokers sampled them",
        "node consumer_group topic begin_ms:time lag_max:integer:msg",
        rows,
        SAMPLED,
    )
    chart = Chart(
        title="Messages not consumed over time, the groups furthest behind",
        kind="line",
        x_label="time (UTC)",
        y_label="messages",
        x_kind="time",
        series=[Series(label, points) for label, points in lines.items()],
        note=SAMPLED,
    )
    return [found], [chart]
