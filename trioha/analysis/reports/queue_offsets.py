"""Queue offsets in the log: every queue counts its messages without a gap or a repetition.

Theory of operation. Per queue the log yields number, least and greatest queue offset, and the sums
of first, second and third powers modulo a prime. An unbroken run has closed forms for all of them,
so a queue whose figures agree needs no sorting. The others are put in the log's order, and each
step that is not +1 is looked at: a gap, a repetition, or a new beginning at 0 (the topic was
deleted and made anew). Prepared and rolled back messages of transactions take no queue offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trioha.analysis.engine import Engine, literal, literals
from trioha.wire.codes import SysFlag
from trioha.wire.names import RAFT_TOPICS

STEPS_MAX = 200
"""Steps listed; all are counted."""
_STEPS_READ_MAX = 20_000
"""Steps that are held against damage: a missing segment makes one for every queue."""
QUEUED = f"(sys_flag & {int(SysFlag.TRANSACTION_PREPARED)}) = 0"
"""SQL: whether a record has a place in its queue."""
NUMBERED = f"topic NOT IN {literals(sorted(RAFT_TOPICS))}"
"""SQL: whether a record's queue offset says where its entry is. Members of a DLEDGER group list its
own records in the order of their logs, whatever number the leader of the day gave them."""
_PRIME = (1 << 31) - 1
_QUEUES_MAX = 200
"""Broken queues named in SQL; beyond, all are put in order."""

Queue = tuple[str, str, int]
"""Store, topic, queue id."""


def broken_queues(engine: Engine) -> list[Queue]:
    """Queues that are no unbroken run."""
    value = f"(queue_offset % {_PRIME})"
    square = f"({value} * {value} % {_PRIME})"
    rows = engine.query(
        "SELECT store, topic, queue_id, COUNT(*) AS messages, MIN(queue_offset) AS low, "
        f"MAX(queue_offset) AS high, SUM({value}) AS first_powers, "
        f"SUM({square}) AS second_powers, SUM({square} * {value} % {_PRIME}) AS third_powers "
        f"FROM commitlog WHERE {QUEUED} AND {NUMBERED} GROUP BY store, topic, queue_id "
        "ORDER BY store, topic, queue_id",
    )
    return [(row["store"], row["topic"], row["queue_id"]) for row in rows if not _is_run(row)]


def _is_run(row: dict[str, Any]) -> bool:
    low, high = row["low"], row["high"]
    if row["messages"] != high - low + 1 or low < 0:
        return False
    sums = [above - below for above, below in zip(_powers(high), _powers(low - 1), strict=True)]
    found = (row["first_powers"], row["second_powers"], row["third_powers"])
    return all((a - b) % _PRIME == 0 for a, b in zip(sums, found, strict=True))


def _powers(n: int) -> tuple[int, int, int]:
    """1 + 2 + … + n, and the same of squares and cubes."""
    first = n * (n + 1) // 2
    return first, n * (n + 1) * (2 * n + 1) // 6, first * first


def step_counts(engine: Engine, queues: Sequence[Queue]) -> list[dict[str, Any]]:
    """Per broken queue: gaps, missing messages, repeats, new beginnings and where the last was."""
    return engine.query(
        "SELECT store, topic, queue_id, "
        "SUM(CASE WHEN queue_offset > before + 1 THEN 1 ELSE 0 END) AS gaps, "
        "SUM(CASE WHEN queue_offset > before + 1 THEN queue_offset - before - 1 ELSE 0 END) "
        "AS missing, "
        "SUM(CASE WHEN queue_offset <= before AND queue_offset <> 0 THEN 1 ELSE 0 END) AS repeats, "
        "SUM(CASE WHEN queue_offset = 0 AND before >= 0 THEN 1 ELSE 0 END) AS restarts, "
        "MAX(CASE WHEN queue_offset = 0 AND before >= 0 THEN phy_offset END) AS restart_offset "
        f"FROM ({_steps(queues)}) AS t GROUP BY store, topic, queue_id "
        "ORDER BY store, topic, queue_id",
    )


def first_steps(engine: Engine, queues: Sequence[Queue]) -> list[dict[str, Any]]:
    """The first steps that are not +1."""
    return engine.query(
        "SELECT store, topic, queue_id, before, queue_offset, phy_before, phy_offset, store_ms, "
        "CASE WHEN queue_offset > before + 1 THEN 'gap' WHEN queue_offset = 0 "
        "THEN 'begins anew' ELSE 'repeats' END AS kind "
        f"FROM ({_steps(queues)}) AS t WHERE queue_offset <> before + 1 "
        f"ORDER BY store, phy_offset LIMIT {_STEPS_READ_MAX}",
    )


def _steps(queues: Sequence[Queue]) -> str:
    window = "OVER (PARTITION BY store, topic, queue_id ORDER BY phy_offset)"
    return (
        "SELECT store, topic, queue_id, queue_offset, phy_offset, store_ms, "
        f"LAG(queue_offset) {window} AS before, LAG(phy_offset) {window} AS phy_before "
        f"FROM commitlog WHERE {QUEUED} AND {NUMBERED} AND {among(queues)}"
    )


def among(queues: Sequence[Queue]) -> str:
    """SQL: whether a row is of one of the queues; of any, when they are too many to name."""
    if len(queues) > _QUEUES_MAX:
        return "1 = 1"
    named = " OR ".join(
        f"(store = {literal(store)} AND topic = {literal(topic)} AND queue_id = {queue_id})"
        for store, topic, queue_id in queues
    )
    return f"({named})" if named else "1 = 0"
