"""Explains pops of a message by a group, from the revive log.

A broker stores in topic ``rmq_sys_REVIVE_LOG_<cluster>`` which messages a group took (tag ``ck``),
for how long the others do not see them, and which of them it acknowledged (``ack``, ``bAck``).
Java's broker leaves out what is acknowledged within a moment. Bodies are JSON with Java's names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioha.analysis.engine import literal, literals
from trioha.analysis.explain.case import Case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.records import StoredRecord
from trioha.analysis.reports.dialect import text_of
from trioha.analysis.reports.words import count_of, say_time
from trioha.wire.names import REVIVE_TOPIC_PREFIX

_ROWS_MAX = 20_000


@attrs.define
class Pop:
    """One time that a group took the message. Times are milliseconds since 1970."""

    wall_ms: int
    due_ms: int
    """Others receive the message from then on, unless it was acknowledged."""
    acknowledged_ms: int | None = None


def explain_popping(
    case: Case, answer: Explanation, record: StoredRecord, group: str, about: str
) -> None:
    """Say when the group popped the message, and whether it acknowledged it."""
    pops = list(_pops_of(case, answer, record, group))
    if not pops:
        return
    store = record.stores[0]
    for pop in pops:
        answer.witness(
            pop.wall_ms, store, f"group {group} popped it, to acknowledge it by {_clock(pop)}"
        )
        if pop.acknowledged_ms is not None:
            answer.witness(pop.acknowledged_ms, store, f"group {group} acknowledged it")
    last = pops[-1]
    outcome = "did not acknowledge it"
    if last.acknowledged_ms is not None:
        outcome = f"acknowledged it {say_time(last.acknowledged_ms)}"
    elif last.due_ms > case.bounds[store].last_ms:
        outcome = "had not acknowledged it when the log ends: nobody else receives it until then"
    answer.conclude(
        "popped",
        f"{about}Group {group} popped it {count_of(len(pops), 'time')}, the last time "
        f"{say_time(last.wall_ms)}, to acknowledge it by {_clock(last)}, and {outcome}.",
    )


def _clock(pop: Pop) -> str:
    return say_time(pop.due_ms)


def _pops_of(case: Case, answer: Explanation, record: StoredRecord, group: str) -> Iterator[Pop]:
    found: dict[tuple[Any, Any], Pop] = {}
    for wall_ms, tag, fields in _revive_log(case, answer, record, group):
        if (fields.get("t"), fields.get("q")) != (record.topic, record.queue_id):
            continue
        if fields.get("c") != group:
            continue
        key = fields.get("so"), fields.get("pt")
        if tag == "ck" and record.queue_offset in _taken(fields):
            pop_ms = _number(fields.get("pt"), wall_ms)
            found[key] = Pop(pop_ms, pop_ms + _number(fields.get("it"), 0))
        elif tag != "ck" and key in found and record.queue_offset in _acknowledged(fields):
            found[key].acknowledged_ms = wall_ms
    yield from sorted(found.values(), key=lambda pop: pop.wall_ms)


def _revive_log(
    case: Case, answer: Explanation, record: StoredRecord, group: str
) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Records of the revive log that name the group, since the message was stored."""
    prefix = literal(REVIVE_TOPIC_PREFIX)
    topics = {
        row["topic"]
        for row in case.engine.query(
            "SELECT DISTINCT topic FROM commitlog_stats "
            f"WHERE substr(topic, 1, {len(REVIVE_TOPIC_PREFIX)}) = {prefix}"
        )
    }
    if not topics:
        return
    rows = case.engine.query(
        "SELECT store_ms, tags, body FROM commitlog_full "
        f"WHERE store = {literal(record.stores[0])} AND topic IN {literals(sorted(topics))} "
        f"AND tags IN ('ck', 'ack', 'bAck') AND store_ms >= {record.store_ms} "
        f"AND instr({text_of(case.engine, 'body')}, {literal(group)}) > 0 "
        f"ORDER BY phy_offset LIMIT {_ROWS_MAX}",
        topics=topics,
    )
    if len(rows) >= _ROWS_MAX:
        answer.admit(f"Only {_ROWS_MAX:,} records of the revive log were looked at.")
    for row in rows:
        try:
            fields = json.loads(bytes(row["body"]))
        except ValueError:
            continue
        if isinstance(fields, dict):
            yield row["store_ms"], row["tags"], fields


def _taken(fields: Mapping[str, Any]) -> set[int]:
    """Queue offsets that a checkpoint took."""
    start, count = _number(fields.get("so"), -1), _number(fields.get("n"), 0)
    steps = fields.get("d")
    if not isinstance(steps, list) or not steps:
        steps = list(range(count))
    return {start + step for step in steps if isinstance(step, int)}


def _acknowledged(fields: Mapping[str, Any]) -> set[Any]:
    several = fields.get("aol")
    return set(several) if isinstance(several, list) else {fields.get("ao")}


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
