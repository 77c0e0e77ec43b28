"""Latencies of messages stored for the first time, as SQL.

A broker stores many messages again and keeps their birth: retries and dead letters, delayed
messages on delivery, committed transactions, half messages after each check. Their age says how
long they waited, not how long they travelled, so they are taken out of `latency_stats`: by topic
where that tells, else one by one, which needs a scan of properties and is only done in stores that
hold delayed messages or transactions. What a broker notes of pops is no producer's message.
"""

from __future__ import annotations

from trioha.analysis.engine import Engine, bucket, literal, literals
from trioha.analysis.reports.bins import bin_sql
from trioha.wire.codes import SysFlag
from trioha.wire.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from trioha.wire.properties import Property

VIEWS = ("latency_stats", "commitlog_full", "commitlog_stats")
_INLINE_MAX = 2000
"""Rows put into a query's text: at most a few hundred KiB."""
_BROKERS_OWN = (TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)


def has_prefix(column: str, prefix: str) -> str:
    """SQL: whether a text begins so. LIKE would read the % of %RETRY% as a pattern."""
    return f"substr({column}, 1, {len(prefix)}) = {literal(prefix)}"


def topics_of_first_stores() -> str:
    """SQL: whether a topic's records may be first stores."""
    return (
        f"NOT {has_prefix('topic', RETRY_PREFIX)} AND NOT {has_prefix('topic', DLQ_PREFIX)} "
        f"AND NOT {has_prefix('topic', REVIVE_TOPIC_PREFIX)} "
        f"AND topic NOT IN {literals(_BROKERS_OWN)}"
    )


def stored_again(engine: Engine) -> str:
    """SQL over `commitlog_full`: whether a record is a later copy, its topic not telling."""
    delay = engine.item("properties", Property.DELAY)
    checks = engine.item("properties", Property.TRANSACTION_CHECK_TIMES)
    schedule, half = literal(SCHEDULE_TOPIC), literal(TRANS_HALF_TOPIC)
    timer, goes_to = literal(TIMER_TOPIC), engine.item("properties", Property.REAL_TOPIC)
    is_due = f"{engine.item('properties', Property.TIMER_DEQUEUE_MS)} IS NOT NULL"
    is_rolled = f"{engine.item('properties', Property.TIMER_ROLL_TIMES)} IS NOT NULL"
    is_pop = has_prefix(goes_to, REVIVE_TOPIC_PREFIX)
    committed = f"(sys_flag & {SysFlag.TRANSACTION_MASK}) = {SysFlag.TRANSACTION_COMMIT}"
    return (
        f"((topic = {schedule} AND reconsume_times > 0) "
        f"OR (topic <> {schedule} AND COALESCE({delay}, '0') <> '0') "
        f"OR (topic <> {timer} AND {is_due}) "
        f"OR (topic = {timer} AND (reconsume_times > 0 OR {is_rolled} OR {is_pop})) "
        f"OR (topic = {half} AND {checks} IS NOT NULL) OR {committed})"
    )


def needs_properties(engine: Engine) -> bool:
    """Return whether the stores hold delayed messages or transactions."""
    rows = engine.query(
        "SELECT COUNT(*) AS found FROM commitlog_stats "
        f"WHERE topic IN {literals((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC))}",
    )
    return bool(rows[0]["found"])


def latencies(engine: Engine, width_ms: int) -> str:
    """SELECT of store, born_host, begin_ms, latency_bin, messages.

    One row per key; `width_ms` is a whole number of hours.
    """
    again = ""
    if needs_properties(engine):
        again = _again(engine, width_ms)
        if engine.name == "spark":
            again = _as_values(engine, again)
    return (
        "SELECT store, born_host, begin_ms, latency_bin, SUM(messages) AS messages FROM ("
        f"SELECT store, born_host, {bucket('hour_ms', width_ms)} AS begin_ms, latency_bin, "
        f"messages FROM latency_stats WHERE {topics_of_first_stores()}"
        f"{' UNION ALL ' + again if again else ''}) AS t "
        "GROUP BY store, born_host, begin_ms, latency_bin HAVING SUM(messages) > 0"
    )


def _as_values(engine: Engine, select: str) -> str:
    """A SELECT of values instead, empty if it has none, unless these are too many.

    So Spark reads the log once, and the rest is asked of DuckDB. DuckDB alone does that anyway.
    """
    rows = engine.query(f"{select} LIMIT {_INLINE_MAX + 1}")
    if len(rows) > _INLINE_MAX:
        return select
    values = ", ".join(
        f"({literal(row['store'])}, {literal(row['born_host'])}, {row['begin_ms']}, "
        f"{row['latency_bin']}, {row['messages']})"
        for row in rows
    )
    return f"SELECT * FROM (VALUES {values}) AS v" if values else ""


def _again(engine: Engine, width_ms: int) -> str:
    """SELECT of what `latency_stats` counts too much, as negative numbers of messages."""
    return (
        "SELECT store, born_host, begin_ms, latency_bin, -COUNT(*) AS messages FROM ("
        f"SELECT store, {engine.host('born_host')} AS born_host, "
        f"{bucket('store_ms', width_ms)} AS begin_ms, "
        f"{bin_sql('(store_ms - born_ms)')} AS latency_bin FROM commitlog_full "
        f"WHERE {topics_of_first_stores()} AND {stored_again(engine)}) AS a "
        "GROUP BY store, born_host, begin_ms, latency_bin"
    )
