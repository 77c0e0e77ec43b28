"""Explains pops of a message by a group, from the revive log.

A broker stores in topic ``rmq_sys_REVIVE_LOG_<cluster>`` which messages a group took (tag ``ck``),
for how long the others do not see them, and which of them it acknowledged (``ack``, ``bAck``).
Bodies are JSON with Java's names. Java's broker stores each of these as a timer message first, and
brings it into the revive log when the time is nearly over: the first of the two is the one that
says when. It may leave out what is acknowledged within a moment, and it can be told to keep all of
it in RocksDB, which is not read here.

A changed invisible time is a new checkpoint of the one message, and an acknowledgement of the
earlier checkpoint right behind it.
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
from trioha.analysis.explain.surroundings import blame_outages
from trioha.analysis.reports.dialect import text_of
from trioha.analysis.reports.first_stores import has_prefix
from trioha.analysis.reports.words import count_of, say_ms, say_time
from trioha.wire.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from trioha.wire.properties import Property

LATE_MS = 10_000
"""A group is late when it received a message longer than this after its storing."""
_ROWS_MAX = 20_000
_IN_ROCKSDB = (
    "{} keeps pops in RocksDB (kvStore), which is not read. A group that pops commits at its next "
    "pop what it was handed out: its offset does not say what it acknowledged."
)


@attrs.define
class Pop:
    """One time that a group took the message. Times are milliseconds since 1970."""

    wall_ms: int
    due_ms: int
    """Others receive the message from then on, unless it was acknowledged."""
    acknowledged_ms: int | None = None
    changed_ms: list[int] = attrs.field(factory=list)
    """Times at which its invisible time was changed."""


def explain_popping(
    case: Case,
    answer: Explanation,
    record: StoredRecord,
    group: str,
    about: str,
    what: str = "it",
) -> int | None:
    """Say when the group popped the message, and whether it acknowledged it.

    Returns the last moment that is known; None when nothing says that the group popped it.
    """
    pops = _pops_of(case, answer, record, group)
    if not pops:
        for store in stores_with_rocksdb(case, record):
            answer.admit(_IN_ROCKSDB.format(store))
        return None
    store = record.stores[0]
    for pop in pops:
        _tell_pop(answer, pop, store, group)
    last = pops[-1]
    outcome = "did not acknowledge it"
    if last.acknowledged_ms is not None:
        outcome = f"acknowledged it {say_time(last.acknowledged_ms)}"
    elif last.due_ms > case.bounds[store].last_ms:
        outcome = "had not acknowledged it when the log ends: nobody else receives it until then"
    changed = ""
    if last.changed_ms:
        changed = (
            f"changed its invisible time {count_of(len(last.changed_ms), 'time')}, the last time "
            f"{say_time(last.changed_ms[-1])}, "
        )
    answer.conclude(
        "popped",
        f"{about}Group {group} popped {what} {count_of(len(pops), 'time')}, the last time "
        f"{say_time(last.wall_ms)}, {changed}to acknowledge it by {say_time(last.due_ms)}, and "
        f"{outcome}.",
    )
    waited_ms = pops[0].wall_ms - record.store_ms
    if waited_ms >= LATE_MS:
        answer.conclude(
            "consumed late",
            f"{about}Group {group} popped {what} late: {say_ms(waited_ms)} after it was stored.",
        )
        blame_outages(
            *(case, answer, record, record.store_ms, pops[0].wall_ms),
            f"between its storing and its pop by {group}",
        )
    return last.acknowledged_ms or last.wall_ms


def _tell_pop(answer: Explanation, pop: Pop, store: str, group: str) -> None:
    answer.witness(pop.wall_ms, store, f"group {group} popped it")
    for changed_ms in pop.changed_ms:
        answer.witness(changed_ms, store, f"group {group} changed its invisible time")
    if pop.acknowledged_ms is not None:
        answer.witness(pop.acknowledged_ms, store, f"group {group} acknowledged it")


def groups_that_popped(case: Case, answer: Explanation, record: StoredRecord) -> set[str]:
    """Return the groups that the revive log says took the message."""
    return {
        str(fields.get("c"))
        for _, tag, fields in _revive_log(case, answer, record, record.topic)
        if tag == "ck" and _is_of(fields, record) and record.queue_offset in _taken(fields)
    }


def stores_with_rocksdb(case: Case, record: StoredRecord) -> list[str]:
    """Stores of a record whose broker keeps pops where they are not read."""
    return [
        store.label
        for store in case.stores
        if store.label in record.stores and store.root and (store.root / "kvStore").is_dir()
    ]


def _pops_of(case: Case, answer: Explanation, record: StoredRecord, group: str) -> list[Pop]:
    found: dict[tuple[Any, Any], Pop] = {}
    for wall_ms, tag, fields in _revive_log(case, answer, record, group):
        if not _is_of(fields, record) or fields.get("c") != group:
            continue
        key = fields.get("so"), fields.get("pt")
        if tag == "ck" and key not in found and record.queue_offset in _taken(fields):
            pop_ms = _number(fields.get("pt"), wall_ms)
            found[key] = Pop(pop_ms, pop_ms + _number(fields.get("it"), 0))
        elif (
            tag != "ck"
            and key in found
            and found[key].acknowledged_ms is None
            and record.queue_offset in _acknowledged(fields)
        ):
            found[key].acknowledged_ms = wall_ms
    return _joined(sorted(found.values(), key=lambda pop: pop.wall_ms))


def _joined(checkpoints: list[Pop]) -> list[Pop]:
    """Pops, those whose invisible time was changed as one.

    Nobody can pop a message that is in flight: a checkpoint of that time changes the one before.
    """
    pops: list[Pop] = []
    for each in checkpoints:
        before = pops[-1] if pops else None
        if (
            before is not None
            and before.acknowledged_ms is not None
            and each.wall_ms <= min(before.acknowledged_ms, before.due_ms)
        ):
            before.changed_ms.append(each.wall_ms)
            before.due_ms, before.acknowledged_ms = each.due_ms, each.acknowledged_ms
        else:
            pops.append(each)
    return pops


def _revive_log(
    case: Case, answer: Explanation, record: StoredRecord, name: str
) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Records of the revive log that name this group or topic, since the message was stored."""
    topics = {
        row["topic"]
        for row in case.engine.query(
            "SELECT DISTINCT topic FROM commitlog_stats "
            f"WHERE {has_prefix('topic', REVIVE_TOPIC_PREFIX)} OR topic = {literal(TIMER_TOPIC)}"
        )
    }
    if not topics:
        return
    goes_to = f"COALESCE({case.engine.item('properties', Property.REAL_TOPIC)}, topic)"
    rows = case.engine.query(
        "SELECT store_ms, tags, body FROM commitlog_full "
        f"WHERE store = {literal(record.stores[0])} AND topic IN {literals(sorted(topics))} "
        f"AND {has_prefix(goes_to, REVIVE_TOPIC_PREFIX)} "
        f"AND tags IN ('ck', 'ack', 'bAck') AND store_ms >= {record.store_ms} "
        f"AND instr({text_of(case.engine, 'body')}, {literal(name)}) > 0 "
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


def _is_of(fields: Mapping[str, Any], record: StoredRecord) -> bool:
    return (fields.get("t"), fields.get("q")) == (record.topic, record.queue_id)


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
