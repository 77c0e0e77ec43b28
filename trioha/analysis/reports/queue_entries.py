"""Consume queues against the log, both ways.

Theory of operation. A record and its entry say the same: queue, queue offset, phy_offset, size.
Both sides are summed up per queue and block of 4096 queue offsets: the number of rows, and their
offsets and sizes, each times the row's place in the block; only blocks whose sums differ are
compared row by row. Left out are entries of records whose segments were deleted, queues that no
longer exist (their topic was deleted), and both ends of a store that was not closed in order:
entries ahead of the log that was read, and records ahead of the dispatcher, which recovery puts
right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioha.analysis.engine import Engine, bucket, literal, literals
from trioha.analysis.reports.queue_offsets import NUMBERED, QUEUED, Queue
from trioha.analysis.store_files import StoreFiles
from trioha.wire.java_hash import string_hash
from trioha.wire.names import SCHEDULE_TOPIC

BLOCK_ENTRIES = 4096
WRONG_MAX = 200
"""Wrong entries listed; all are counted."""
_BLOCKS_MAX = 500
"""Blocks named in SQL; beyond, all are compared row by row."""
_PRIME = (1 << 31) - 1
_TAGS_MAX = 50_000
"""Tags per store and queue that are compared; more are no tags but ids."""

MISSING, DANGLING, WRONG = "record without entry", "entry without record", "entry of another record"
LOST = "entry of a record lost to damage"
_STRETCHES_MAX = 200
"""Damaged stretches named in SQL, the longest first."""
_JUDGED_MAX = 20_000
"""Wrong places that are looked at one by one; more are counted."""
_MISPLACED_MAX = 1000
"""Entries without record for which a record of another queue is looked for."""


@attrs.frozen
class Ends:
    """Bounds of one store within which its log and its queues are to agree."""

    store: str
    log_begin: int
    log_last: int
    """Offset at which the last record begins."""
    newest_entry: int
    """phy_offset of the newest entry of all queues, within the log; -1 when there is none."""
    entries_beyond: int
    """Entries behind `log_last`."""
    records_beyond: int
    """Records behind the newest entry."""


def ends_of(engine: Engine) -> dict[str, Ends]:
    """Return the ends by store; stores without records or queues are missing."""
    log = {
        row["store"]: row
        for row in engine.query(
            "SELECT store, MIN(phy_offset_min) AS log_begin, MAX(phy_offset_max) AS log_last "
            "FROM commitlog_stats GROUP BY store",
        )
    }
    last = _by_store({store: row["log_last"] for store, row in log.items()}, -1)
    entries = engine.query(
        f"SELECT store, MAX(CASE WHEN phy_offset <= {last} THEN phy_offset ELSE -1 END) "
        f"AS newest_entry, SUM(CASE WHEN phy_offset > {last} THEN 1 ELSE 0 END) "
        "AS entries_beyond FROM consumequeue GROUP BY store",
    )
    newest = {row["store"]: row["newest_entry"] for row in entries if row["store"] in log}
    beyond = {}
    if any(newest[store] < log[store]["log_last"] for store in newest):
        beyond = {
            row["store"]: row["records"]
            for row in engine.query(
                f"SELECT store, COUNT(*) AS records FROM commitlog WHERE {QUEUED} "
                f"AND phy_offset > {min(newest.values())} "
                f"AND phy_offset > {_by_store(newest, 1 << 62)} GROUP BY store",
            )
        }
    return {
        row["store"]: Ends(
            **log[row["store"]] | {"store": row["store"]} | row,
            records_beyond=beyond.get(row["store"], 0),
        )
        for row in entries
        if row["store"] in log
    }


def _by_store(values: Mapping[str, int], otherwise: int) -> str:
    """SQL: a number by the row's store."""
    cases = " ".join(f"WHEN {literal(store)} THEN {value}" for store, value in values.items())
    return f"(CASE store {cases} ELSE {otherwise} END)" if cases else str(otherwise)


def wrong_entries(
    engine: Engine,
    ends: Mapping[str, Ends],
    restarts: Mapping[Queue, int],
    damage: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Counts by store, queue and kind, the first wrong places, and records of other queues.

    The last are records whose header says another queue, or another place in it, than the entry
    that leads to them. `restarts` has the phy_offset at which a queue last began anew: older
    records need no entry. `damage` are the log's damaged stretches.
    """
    sides = _sides(engine, ends)
    if sides is None:
        return [], [], []
    blocks = _bad_blocks(engine, sides)
    if not blocks:
        return [], [], []
    columns = "store, topic, queue_id, queue_offset, phy_offset, size, side"
    rows = f"SELECT {columns} FROM ({sides}) AS t WHERE {_within(blocks)}"
    judged = _judged(rows, restarts, damage)
    # One query, for each judges all sides anew; what is lost to damage comes last.
    found = engine.query(
        f"{judged} SELECT store, topic, queue_id, queue_offset, kind, record_offset, "
        f"entry_offset FROM judged ORDER BY CASE kind WHEN {literal(LOST)} THEN 1 ELSE 0 END, "
        f"store, topic, queue_id, queue_offset LIMIT {_JUDGED_MAX + 1}",
    )
    dangling = [row for row in found if row["kind"] == DANGLING][:_MISPLACED_MAX]
    misplaced = _misplaced(engine, dangling) if dangling else []
    places = {(row["store"], row["phy_offset"]) for row in misplaced}
    explained = [row for row in found if _place(row) in places]
    if len(found) <= _JUDGED_MAX:
        counts = _counted([row for row in found if _place(row) not in places])
    else:
        counts = engine.query(
            f"{judged} SELECT store, topic, queue_id, kind, COUNT(*) AS places, "
            "MIN(queue_offset) AS first_queue_offset FROM judged "
            "GROUP BY store, topic, queue_id, kind ORDER BY store, topic, queue_id, kind",
        )
        taken = {_key(row): row["places"] for row in _counted(explained)}
        for row in counts:
            row["places"] -= taken.get(_key(row), 0)
        counts = [row for row in counts if row["places"]]
    first = sorted(found, key=lambda row: (*_key(row)[:3], row["queue_offset"]))[:WRONG_MAX]
    return counts, first, misplaced


def _place(row: Mapping[str, Any]) -> tuple[str, int]:
    """The record that a wrong place is about."""
    return row["store"], row["entry_offset" if row["kind"] == DANGLING else "record_offset"]


def _key(row: Mapping[str, Any]) -> tuple[str, str, int, str]:
    return row["store"], row["topic"], row["queue_id"], row["kind"]


def _counted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Places by store, queue and kind."""
    offsets: dict[tuple[str, str, int, str], list[int]] = {}
    for row in rows:
        offsets.setdefault(_key(row), []).append(row["queue_offset"])
    return [
        dict(
            zip(
                ("store", "topic", "queue_id", "kind", "places", "first_queue_offset"),
                (*key, len(of_key), min(of_key)),
                strict=True,
            )
        )
        for key, of_key in sorted(offsets.items())
    ]


def _misplaced(engine: Engine, dangling: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Entries whose record is there, with a header that says another queue or place."""
    places = literals(sorted({row["entry_offset"] for row in dangling}))
    records = {
        (row["store"], row["phy_offset"]): row
        for row in engine.query(
            "SELECT store, phy_offset, topic, queue_id, queue_offset FROM commitlog "
            f"WHERE phy_offset IN {places}",
        )
    }
    return [
        {
            "store": row["store"],
            "phy_offset": row["entry_offset"],
            "topic": row["topic"],
            "queue_id": row["queue_id"],
            "queue_offset": row["queue_offset"],
            "record_topic": record["topic"],
            "record_queue_id": record["queue_id"],
            "record_queue_offset": record["queue_offset"],
        }
        for row in dangling
        if (record := records.get((row["store"], row["entry_offset"]))) is not None
    ]


def _bad_blocks(engine: Engine, sides: str) -> list[dict[str, Any]]:
    """Blocks whose two sides differ; at most `_BLOCKS_MAX` + 1 of them."""
    keys = "store, topic, queue_id, block"
    place = f"((queue_offset & {BLOCK_ENTRIES - 1}) + 1)"  # cheaper than a remainder
    sums = f"SUM(phy_offset % {_PRIME} * {place}) AS sum_0, SUM(size * {place}) AS sum_1"
    return engine.query(
        f"SELECT DISTINCT {keys} FROM (SELECT {keys}, found, sum_0, sum_1 FROM ("
        f"SELECT {keys}, side, COUNT(*) AS found, {sums} FROM ({sides}) AS s "
        f"GROUP BY {keys}, side) AS d GROUP BY {keys}, found, sum_0, sum_1 "
        f"HAVING COUNT(*) = 1) AS b ORDER BY {keys} LIMIT {_BLOCKS_MAX + 1}",
    )


def _within(blocks: list[dict[str, Any]]) -> str:
    """SQL: whether a row lies in one of the blocks; in any, when they are too many to name."""
    if len(blocks) > _BLOCKS_MAX:
        return "1 = 1"
    named: dict[Queue, list[int]] = {}
    for row in blocks:
        named.setdefault((row["store"], row["topic"], row["queue_id"]), []).append(row["block"])
    return (
        "("
        + " OR ".join(
            f"(store = {literal(store)} AND topic = {literal(topic)} AND queue_id = {queue_id} "
            f"AND block IN {literals(found)})"
            for (store, topic, queue_id), found in named.items()
        )
        + ")"
    )


def _judged(sides: str, restarts: Mapping[Queue, int], damage: Sequence[Mapping[str, Any]]) -> str:
    """CTEs that end in `judged`: queue offsets whose record and entry are no pair, and why.

    A place is right when its entry is that of the youngest record which has this queue offset.
    """
    return (
        "WITH pairs AS (SELECT store, topic, queue_id, queue_offset, phy_offset, size, "
        "MAX(CASE WHEN side = 0 THEN 1 ELSE 0 END) AS in_log, "
        "MAX(CASE WHEN side = 1 THEN 1 ELSE 0 END) AS in_queue "
        f"FROM ({sides}) AS s "
        "GROUP BY store, topic, queue_id, queue_offset, phy_offset, size), "
        "places AS (SELECT store, topic, queue_id, queue_offset, "
        "MAX(CASE WHEN in_log = 1 THEN phy_offset END) AS record_offset, "
        "MAX(CASE WHEN in_queue = 1 THEN phy_offset END) AS entry_offset, "
        "MAX(in_log * in_queue) AS agree FROM pairs "
        "GROUP BY store, topic, queue_id, queue_offset), "
        "judged AS (SELECT store, topic, queue_id, queue_offset, record_offset, entry_offset, "
        f"CASE WHEN entry_offset IS NULL THEN {literal(MISSING)} "
        f"WHEN record_offset IS NULL AND {_is_lost(damage)} THEN {literal(LOST)} "
        f"WHEN record_offset IS NULL THEN {literal(DANGLING)} ELSE {literal(WRONG)} END AS kind "
        "FROM places WHERE (agree = 0 OR record_offset > entry_offset) "
        f"AND NOT (entry_offset IS NULL AND {_is_older(restarts)})) "
    )


def _is_lost(damage: Sequence[Mapping[str, Any]]) -> str:
    """SQL: whether an entry leads into a damaged stretch of the log."""
    longest = sorted(damage, key=lambda row: -int(row["length"]))[:_STRETCHES_MAX]
    named = " OR ".join(
        f"(store = {literal(row['store'])} AND entry_offset >= {row['phy_offset']} "
        f"AND entry_offset < {row['phy_offset'] + row['length']})"
        for row in longest
    )
    return f"({named})" if named else "1 = 0"


def _is_older(restarts: Mapping[Queue, int]) -> str:
    """SQL: whether a place belongs to what a queue held before it began anew."""
    named = " OR ".join(
        f"(store = {literal(store)} AND topic = {literal(topic)} AND queue_id = {queue_id} "
        f"AND record_offset < {phy_offset})"
        for (store, topic, queue_id), phy_offset in restarts.items()
    )
    return f"({named})" if named else "1 = 0"


def _sides(engine: Engine, ends: Mapping[str, Ends]) -> str | None:
    """Return the SELECT of rows that are to agree: side 0 is the log, side 1 the queues."""
    log, queues = [], []
    for store in engine.stores:
        end = ends.get(store.label)
        # A deleted topic has no queues any more, but the log still holds its records.
        topics = literals(sorted(queued_topics(store)))
        if end is not None:
            label = literal(store.label)
            log.append(
                f"(store = {label} AND phy_offset <= {end.newest_entry} AND topic IN {topics})"
            )
            queues.append(
                f"(store = {label} AND phy_offset >= {end.log_begin} "
                f"AND phy_offset <= {end.log_last})"
            )
    if not log:
        return None
    block = bucket("queue_offset", BLOCK_ENTRIES)
    columns = f"store, topic, queue_id, queue_offset, phy_offset, size, {block} AS block"
    return (
        f"SELECT {columns}, 0 AS side FROM commitlog WHERE {QUEUED} AND {NUMBERED} "
        f"AND ({' OR '.join(log)}) UNION ALL "
        f"SELECT {columns}, 1 AS side FROM consumequeue "
        f"WHERE {NUMBERED} AND ({' OR '.join(queues)})"
    )


def queued_topics(store: StoreFiles) -> frozenset[str]:
    """Topics that have a consume queue."""
    return frozenset(queue.topic for queue in store.consume_queues() if queue.files)


def wrong_tags(engine: Engine, ends: Mapping[str, Ends]) -> list[dict[str, Any]]:
    """Queues whose entries carry other tags codes than their records' tags make."""
    if not ends:
        return []
    low = _by_store({store: end.log_begin for store, end in ends.items()}, 0)
    high = _by_store({store: end.newest_entry for store, end in ends.items()}, -1)
    of_log = engine.query(
        "SELECT store, topic, queue_id, tags, COUNT(*) AS messages "
        f"FROM commitlog_full WHERE {QUEUED} AND topic <> {literal(SCHEDULE_TOPIC)} "
        f"AND phy_offset <= {high} "
        f"GROUP BY store, topic, queue_id, tags LIMIT {_TAGS_MAX + 1}",
    )
    of_queues = engine.query(
        "SELECT store, topic, queue_id, tags_code, COUNT(*) AS messages FROM consumequeue "
        f"WHERE topic <> {literal(SCHEDULE_TOPIC)} AND phy_offset >= {low} "
        f"AND phy_offset <= {high} "
        f"GROUP BY store, topic, queue_id, tags_code LIMIT {_TAGS_MAX + 1}",
    )
    if max(len(of_log), len(of_queues)) > _TAGS_MAX:
        engine.note("There are too many different tags to compare them with the queues' codes.")
        return []
    codes: dict[Queue, dict[int, int]] = {}
    for row in of_log:
        queue = codes.setdefault((row["store"], row["topic"], row["queue_id"]), {})
        code = string_hash(row["tags"] or "")
        queue[code] = queue.get(code, 0) + row["messages"]
    entries: dict[Queue, dict[int, int]] = {}
    for row in of_queues:
        key = (row["store"], row["topic"], row["queue_id"])
        entries.setdefault(key, {})[row["tags_code"]] = row["messages"]
    return [
        {"store": key[0], "topic": key[1], "queue_id": key[2], "entries": _surplus(found, expected)}
        for key, found in sorted(entries.items())
        if (expected := codes.get(key, {})) != found
    ]


def _surplus(found: Mapping[int, int], expected: Mapping[int, int]) -> int:
    """Entries whose code no record of the queue accounts for."""
    return sum(max(0, count - expected.get(code, 0)) for code, count in found.items())
