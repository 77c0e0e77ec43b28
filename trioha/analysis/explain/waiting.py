"""Reasons that kept a message from its topic: a delay, or a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from trioha.analysis.engine import literal, or_noted
from trioha.analysis.explain.case import Case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.records import StoredRecord
from trioha.analysis.explain.surroundings import blame_outages
from trioha.analysis.reports.dialect import text_of
from trioha.analysis.reports.words import count_of, say_ms, say_time
from trioha.config import DELAY_LEVELS
from trioha.store.store_config import parse_delay_levels
from trioha.wire.names import TRANS_OP_HALF_TOPIC
from trioha.wire.properties import Property

_LATE_MS = 1_000
"""A delayed message is late when it comes longer than this after its time."""


def explain_waiting(
    case: Case, answer: Explanation, records: Sequence[StoredRecord], about: str
) -> None:
    """Explain the delay and the transaction of one message, if it has any."""
    delayed = [record for record in records if record.kind == "waits (delayed)" or record.is_timer]
    if delayed:
        _explain_delay(case, answer, delayed[0], records, about)
    halves = [record for record in records if record.kind == "half message"]
    if halves:
        _explain_transaction(case, answer, halves, records, about)


def _explain_delay(
    case: Case,
    answer: Explanation,
    waits: StoredRecord,
    records: Sequence[StoredRecord],
    about: str,
) -> None:
    level, due_ms = waits.row["delay_level"], _due_ms(waits)
    asked = f"level {level}" if level else "a timer"
    if level and due_ms is not None:
        asked += f", {say_ms(due_ms - waits.store_ms)} by RocketMQ's default levels"
    arrived = [
        record
        for record in records
        if record.is_seen and record is not waits and record.store_ms >= waits.store_ms
    ]
    if arrived:
        took_ms = arrived[0].store_ms - waits.store_ms
        late_ms = 0 if due_ms is None else arrived[0].store_ms - due_ms
        late = f", {say_ms(late_ms)} later than it was due" if late_ms > _LATE_MS else ""
        answer.conclude(
            "delivered after delay",
            f"{about}It was sent with a delay ({asked}) and came into topic {arrived[0].topic} "
            f"{say_time(arrived[0].store_ms)}, {say_ms(took_ms)} after it was stored{late}.",
        )
        if late and due_ms is not None:
            blame_outages(case, answer, arrived[0], due_ms, arrived[0].store_ms, "when it was due")
        return
    recalls = [record for record in records if record.is_recall]
    if recalls:
        answer.conclude(
            "recalled",
            f"{about}Its producer sent it with a delay ({asked}) and took it back "
            f"{say_time(recalls[0].store_ms)}: no consumer receives it.",
        )
        return
    label = waits.stores[0] if waits.stores else waits.cuts[0]
    end_ms = case.bounds[label].last_ms
    due = "when it is due is not known" if due_ms is None else f"it is due {say_time(due_ms)}"
    overdue = ""
    if due_ms is not None and due_ms + _LATE_MS < end_ms:
        overdue = f"; that was {say_ms(end_ms - due_ms)} before the end of the log"
    answer.conclude(
        "delayed",
        f"{about}It was sent with a delay ({asked}) and has not come into topic {waits.target}: "
        f"{due}{overdue}. The log ends {say_time(end_ms)}.",
    )
    for store in case.stores:
        passed = (or_noted(case.engine, store.delay_offsets) or {}).get(level or 0, 0)
        if level and store.label in waits.stores and passed > waits.queue_offset:
            answer.admit(
                f"{store.label} has passed its place in level {level} (offset {passed}), yet no "
                "log holds what was delivered: it was skipped, or stored where no unique id "
                "leads to it."
            )


def _due_ms(waits: StoredRecord) -> int | None:
    if waits.is_timer:
        properties = waits.row["properties"]
        for name in (Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS):
            if (stated := properties.get(name, "")).isdecimal():
                return int(stated)
        return None
    levels_ms = parse_delay_levels(DELAY_LEVELS)
    level: int | None = waits.row["delay_level"]
    if level is None or not 1 <= level <= len(levels_ms):
        return None
    return waits.store_ms + levels_ms[level - 1]


def _explain_transaction(
    case: Case,
    answer: Explanation,
    halves: Sequence[StoredRecord],
    records: Sequence[StoredRecord],
    about: str,
) -> None:
    first = halves[0]
    checks = sum(Property.TRANSACTION_CHECK_TIMES in each.row["properties"] for each in halves)
    asked = f"the broker asked the producer {count_of(checks, 'time')}"
    committed = [record for record in records if record.kind == "committed"]
    ended = _tell_ends(case, answer, halves)
    if committed:
        took_ms = committed[0].store_ms - first.store_ms
        answer.conclude(
            "committed",
            f"{about}Its transaction was committed {say_time(committed[0].store_ms)}, "
            f"{say_ms(took_ms)} after the half message; {asked}.",
        )
        return
    if any(record.is_given_up for record in records):
        answer.conclude(
            "given up",
            f"{about}Its transaction was given up: {asked} and got no decision. The message is in "
            "TRANS_CHECK_MAX_TIME_TOPIC, where no consumer of its topic sees it.",
        )
    elif ended is not None:
        answer.conclude(
            "rolled back",
            f"{about}Its transaction was rolled back {say_time(ended)}: an op record ends it and "
            f"no log holds a committed message. Consumers never see it; {asked}.",
        )
    else:
        answer.conclude(
            "half message",
            f"{about}Its transaction is neither committed nor rolled back: consumers of "
            f"{first.target} do not see it; {asked}.",
        )


def _tell_ends(case: Case, answer: Explanation, halves: Sequence[StoredRecord]) -> int | None:
    """Tell the ends of the transaction; return the store time of the newest, or None."""
    body = text_of(case.engine, "body")
    ended: int | None = None
    for half in halves:
        # RocketMQ 5 writes several offsets into one op record: ``1,2,3,``.
        place = literal(f",{half.queue_offset},")
        rows = case.engine.query(
            "SELECT store, phy_offset, store_ms, properties FROM commitlog_full "
            f"WHERE topic = {literal(TRANS_OP_HALF_TOPIC)} AND queue_id = {half.queue_id} "
            f"AND instr(concat(',', {body}, ','), {place}) > 0",
            topics={TRANS_OP_HALF_TOPIC},
        )
        for row in rows:
            if row["store"] not in half.stores or Property.COPIED in row["properties"]:
                continue
            ended = max(ended or 0, row["store_ms"])
            answer.witness(
                row["store_ms"],
                row["store"],
                f"transaction ended: op record at {row['phy_offset']}",
            )
    return ended
