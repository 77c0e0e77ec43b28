"""Transactions: committed, rolled back, given up, waiting.

A half message is stored in a topic of the broker's own, and stored there again whenever the
producer is asked for its decision (TransactionalMessageServiceImpl.putBackHalfMsgQueue): its copies
have the same UNIQ_KEY and the same born time, and are one transaction. A record of the op topic
ends it: its body is the queue offset of one copy (TransactionalMessageBridge). A commit stores the
message in its own topic, and after too many checks it goes to TRANS_CHECK_MAX_TIME_TOPIC, both with
key and born time. Figures are per store, of transactions with a half message in the log.
"""

from __future__ import annotations

from typing import Any

from trioha.analysis.engine import Engine, literal, literals, or_noted
from trioha.analysis.reports.dialect import each_word, op_places, text_of
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of, say_ms
from trioha.analysis.results import Finding, Table
from trioha.wire.codes import SysFlag
from trioha.wire.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from trioha.wire.properties import Property


def transactions(engine: Engine, now_ms: int) -> tuple[list[Table], list[Finding]]:
    """Count every transaction once, however often its half message was stored."""
    found = engine.query(
        "SELECT COUNT(*) AS found FROM commitlog_stats "
        f"WHERE topic IN {literals((TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC))}",
    )
    if not found[0]["found"]:
        return [], []
    rows = _counted(engine)
    for row in rows:
        row["rolled_back"] = row["done"] - row["done_by_commit"]
        row["age_ms"] = None if row["oldest_ms"] is None else now_ms - row["oldest_ms"]
    findings = [
        Finding.warning(
            f"{row['store']}: {count_of(row['waiting'], 'transaction')} neither committed nor "
            f"rolled back, the oldest {say_ms(row['age_ms'])} old."
        )
        for row in rows
        if row["waiting"]
    ]
    return [
        table(
            "transactions",
            "Transactions by UNIQ_KEY and born time; checks: half messages stored again to ask the "
            "producer; done: ended by an op record; oldest: born time of the oldest that waits",
            "store transactions:integer checks:integer done:integer committed:integer "
            "rolled_back:integer given_up:integer waiting:integer oldest_ms:time age_ms:duration",
            rows,
        )
    ], findings


def _counted(engine: Engine) -> list[dict[str, Any]]:
    checks = engine.item("properties", Property.TRANSACTION_CHECK_TIMES)
    place = text_of(engine, "queue_offset")
    # A message without a key is a transaction of its own, and each of its copies another.
    copies = (
        f"SELECT store, queue_id, {place} AS place, COALESCE(unique_key, {place}) AS name, "
        f"born_ms, CASE WHEN {checks} IS NULL THEN 0 ELSE 1 END AS is_check, "
        f"CASE WHEN queue_offset >= {_checked_up_to(engine)} THEN 1 ELSE 0 END AS is_ahead "
        f"FROM commitlog_full WHERE topic = {literal(TRANS_HALF_TOPIC)}"
    )
    # RocketMQ 5 writes several offsets into one op record: ``1,2,3,``. An op record of a copy ends
    # no transaction.
    ops = (
        "SELECT DISTINCT store, queue_id, word.value AS place "
        f"FROM commitlog_full{each_word(engine, op_places(engine), ',')} "
        f"WHERE topic = {literal(TRANS_OP_HALF_TOPIC)} "
        f"AND {engine.item('properties', Property.COPIED)} IS NULL"
    )
    halves = (
        "SELECT copies.store, copies.name, copies.born_ms, SUM(copies.is_check) AS checks, "
        "MAX(copies.is_ahead) AS is_ahead, "
        "MAX(CASE WHEN ops.place IS NULL THEN 0 ELSE 1 END) AS is_done "
        "FROM copies LEFT JOIN ops ON ops.store = copies.store "
        "AND ops.queue_id = copies.queue_id AND ops.place = copies.place "
        "GROUP BY copies.store, copies.name, copies.born_ms"
    )
    is_commit = f"(sys_flag & {SysFlag.TRANSACTION_MASK}) = {SysFlag.TRANSACTION_COMMIT}"
    is_given_up = f"topic = {literal(TRANS_CHECK_MAX_TIME_TOPIC)}"
    ends = (
        "SELECT store, unique_key AS name, born_ms, "
        f"MAX(CASE WHEN {is_commit} THEN 1 ELSE 0 END) AS is_committed, "
        f"MAX(CASE WHEN {is_given_up} THEN 1 ELSE 0 END) AS is_given_up FROM commitlog_full "
        f"WHERE {is_commit} OR {is_given_up} GROUP BY store, unique_key, born_ms"
    )
    states = (
        "SELECT halves.store, halves.born_ms, halves.checks, halves.is_done, halves.is_ahead, "
        "COALESCE(ends.is_committed, 0) AS is_committed, "
        "COALESCE(ends.is_given_up, 0) AS is_given_up FROM halves LEFT JOIN ends "
        "ON ends.store = halves.store AND ends.name = halves.name "
        "AND ends.born_ms = halves.born_ms"
    )
    waits = "is_done = 0 AND is_committed = 0 AND is_given_up = 0 AND is_ahead = 1"
    return engine.query(
        f"WITH copies AS ({copies}), ops AS ({ops}), halves AS ({halves}), ends AS ({ends}), "
        f"states AS ({states}) SELECT store, COUNT(*) AS transactions, SUM(checks) AS checks, "
        "SUM(is_done) AS done, SUM(is_done * is_committed) AS done_by_commit, "
        "SUM(is_committed) AS committed, SUM(is_given_up) AS given_up, "
        f"SUM(CASE WHEN {waits} THEN 1 ELSE 0 END) AS waiting, "
        f"MIN(CASE WHEN {waits} THEN born_ms END) AS oldest_ms "
        "FROM states GROUP BY store ORDER BY store",
    )


def _checked_up_to(engine: Engine) -> str:
    """SQL: the offset in its queue below which the checker has passed half messages on.

    A slave's copy of it is old, which does no harm: what was passed on has an op record or a copy.
    """
    passed = []
    for store in engine.stores:
        offsets = or_noted(engine, store.consumer_offsets) or {}
        passed += [
            f"WHEN store = {literal(store.label)} AND queue_id = {queue_id} THEN {offset}"
            for queue_id, offset in offsets.get((TRANS_HALF_TOPIC, TRANS_GROUP), {}).items()
        ]
    return f"CASE {' '.join(passed)} ELSE 0 END" if passed else "0"
