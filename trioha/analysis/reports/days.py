"""Day over day: what a day (UTC) stored, and the change from the day before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trioha.analysis.engine import Engine, bucket
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import DAY_MS, say_share, say_time
from trioha.analysis.results import Finding, Table

CHANGE_MIN = 0.5
"""A change from one whole day to the next that is worth a sentence."""


def day_table(engine: Engine, extents: Mapping[str, tuple[int, int]]) -> Table:
    """Messages and bytes per store and day. `extents` are first and last time of each store."""
    rows = engine.query(
        "SELECT store, day_ms, SUM(messages) AS messages, SUM(bytes) AS record_bytes FROM ("
        f"SELECT store, {bucket('minute_ms', DAY_MS)} AS day_ms, messages, bytes "
        "FROM commitlog_stats) AS t GROUP BY store, day_ms ORDER BY store, day_ms",
    )
    by_day = {(row["store"], row["day_ms"]): row for row in rows}
    for row in rows:
        first_ms, last_ms = extents[row["store"]]
        before = by_day.get((row["store"], row["day_ms"] - DAY_MS))
        row["whole_day"] = first_ms <= row["day_ms"] and row["day_ms"] + DAY_MS <= last_ms + 1
        for name in ("messages", "record_bytes"):
            row[f"{name}_change"] = row[name] / before[name] - 1 if before else None
    return table(
        "days",
        "Days (UTC) and the change from the day before; the first and the last may be partial",
        "store day_ms:time messages:integer messages_change:share record_bytes:bytes "
        "record_bytes_change:share whole_day:flag",
        rows,
    )


def day_findings(days: Table) -> Iterator[Finding]:
    """Sentences on large changes between two whole days."""
    whole_before = False
    for store, day_ms, _, change, _, _, whole in days.rows:
        if whole and whole_before and isinstance(change, float) and abs(change) >= CHANGE_MIN:
            assert isinstance(day_ms, int)
            more = "more" if change > 0 else "fewer"
            yield Finding.info(
                f"{store}: {say_share(abs(change), 1)} {more} messages on "
                f"{say_time(day_ms)[:10]} than the day before."
            )
        whole_before = bool(whole)


def day_topic_table(engine: Engine, top: int) -> Table:
    """The topics that changed most between the last two days of their store."""
    rows = engine.query(
        f"WITH days AS (SELECT store, topic, {bucket('minute_ms', DAY_MS)} AS day_ms, messages "
        "FROM commitlog_stats), "
        "ends AS (SELECT store, MAX(day_ms) AS day_ms FROM days GROUP BY store), "
        "pairs AS (SELECT days.store, days.topic, ends.day_ms, "
        "SUM(CASE WHEN days.day_ms = ends.day_ms THEN messages ELSE 0 END) AS messages, "
        "SUM(CASE WHEN days.day_ms < ends.day_ms THEN messages ELSE 0 END) AS messages_before "
        "FROM days JOIN ends ON ends.store = days.store "
        f"WHERE days.day_ms >= ends.day_ms - {DAY_MS} GROUP BY days.store, days.topic, ends.day_ms)"
        " SELECT store, topic, day_ms, messages, messages_before, "
        "messages - messages_before AS messages_change FROM pairs "
        "WHERE messages <> messages_before "
        f"ORDER BY ABS(messages - messages_before) DESC, store, topic LIMIT {top}",
    )
    return table(
        "day_topics",
        f"The {top} largest changes of a topic from the last day but one to the last (UTC)",
        "store topic day_ms:time messages:integer messages_before:integer messages_change:integer",
        rows,
    )
