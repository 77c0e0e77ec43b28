"""Is anything damaged, missing or out of step between log, consume queues and index?

The exit code is 1 when a bad record, a gap, a repetition, or a wrong entry was found. What a crash
or a running broker leaves at the end of a store (records that no entry tells of yet) and what
deleting a topic leaves in the log are told, but nothing is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from trioha.analysis.engine import Engine, or_noted
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.causes import Causes, causes_of
from trioha.analysis.reports.index_entries import IndexCheck, check_index
from trioha.analysis.reports.queue_entries import (
    LOST,
    Ends,
    ends_of,
    queued_topics,
    wrong_entries,
    wrong_tags,
)
from trioha.analysis.reports.queue_offsets import (
    STEPS_MAX,
    Queue,
    broken_queues,
    first_steps,
    step_counts,
)
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of
from trioha.analysis.results import Finding, Report, ReportOptions, Table

SPEC = REPORTS["integrity"]
NEEDS = frozenset({"commitlog", "commitlog_full", "commitlog_corrupt", "commitlog_stats"})

STRETCHES_MAX = 1000


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    stretches, totals = _damage(engine)
    damage = [
        dict(zip(("store", "segment", "phy_offset", "length", "reason"), row, strict=True))
        for row in stretches.rows
    ]
    queues = broken_queues(engine)
    counts = step_counts(engine, queues) if queues else []
    restarts = {
        (row["store"], row["topic"], row["queue_id"]): row["restart_offset"]
        for row in counts
        if row["restarts"]
    }
    window = engine.window
    is_whole = window.from_ms is None and window.to_ms is None
    ends = ends_of(engine) if is_whole else {}
    wrong, first, misplaced = wrong_entries(engine, ends, restarts, damage)
    causes = causes_of(damage, misplaced)
    steps, step_findings = _steps(engine, queues, counts, causes)
    tables, findings = [stretches, *steps], list(step_findings)
    if is_whole:
        tables += _entry_tables(wrong, first)
        findings += _queues(engine, ends, wrong, restarts, causes)
        findings += _lost_topics(engine, ends, causes)
        found, told = _index(engine, causes)
        tables += found
        findings += told
    else:
        findings.append(
            Finding.info(
                "Consume queues and index were not compared with the log: they know no time, so "
                "that takes a run without --from and --to."
            )
        )
    findings = [*causes.findings(totals), *_empty(engine, is_whole=is_whole), *findings]
    is_wrong = any(finding.severity == "error" for finding in findings)
    if not is_wrong:
        findings.insert(0, Finding.info(_sound(engine)))
    return Report(
        **SPEC.heading,
        tables=[_checked(engine), *tables],
        findings=findings,
        exit_code=1 if is_wrong else 0,
    )


def _empty(engine: Engine, *, is_whole: bool) -> Iterator[Finding]:
    """Stores of which nothing was checked."""
    rows = engine.query("SELECT DISTINCT store FROM commitlog_stats")
    held = {row["store"] for row in rows}
    for store in engine.stores:
        if store.label not in held and is_whole:
            yield Finding.error(
                f"{store.label} holds no record at all: nothing was checked. Is it the "
                "storePathRootDir of a broker, and is its commitlog complete?"
            )
        elif store.label not in held:
            yield Finding.warning(f"{store.label} holds no record in the window.")


def _sound(engine: Engine) -> str:
    stores = ", ".join(store.label for store in engine.stores)
    return f"Nothing is wrong with the records of {stores}."


def _checked(engine: Engine) -> Table:
    rows = engine.query(
        "SELECT store, SUM(messages) AS records, SUM(bytes) AS record_bytes, "
        "COUNT(DISTINCT topic) AS topics FROM commitlog_stats GROUP BY store ORDER BY store",
    )
    return table(
        "checked",
        "What was checked",
        "store records:integer record_bytes:bytes topics:integer",
        rows,
    )


def _damage(engine: Engine) -> tuple[Table, list[dict[str, Any]]]:
    """Damaged stretches, and their sums by store and reason."""
    rows = engine.query(
        "SELECT store, segment, phy_offset, length, reason FROM commitlog_corrupt "
        f"ORDER BY store, phy_offset LIMIT {STRETCHES_MAX}",
    )
    if len(rows) < STRETCHES_MAX:
        totals = _totals(rows)
    else:
        totals = engine.query(
            "SELECT store, reason, COUNT(*) AS stretches, SUM(length) AS bytes, "
            "MIN(phy_offset) AS first_offset FROM commitlog_corrupt "
            "GROUP BY store, reason ORDER BY store, first_offset, reason LIMIT 1000",
        )
    return (
        table(
            "damage",
            f"Stretches of the log that are no sound record, the first {STRETCHES_MAX}",
            "store segment phy_offset:integer length:bytes reason",
            rows,
        ),
        totals,
    )


def _totals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same sums, of stretches that are all at hand: their view costs a scan of all bodies."""
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["store"], row["reason"])
        empty = {"store": key[0], "reason": key[1], "stretches": 0, "bytes": 0}
        total = totals.setdefault(key, empty | {"first_offset": row["phy_offset"]})
        total["stretches"] += 1
        total["bytes"] += row["length"]
    return list(totals.values())


def _steps(
    engine: Engine, queues: Sequence[Queue], counts: list[dict[str, Any]], causes: Causes
) -> tuple[list[Table], Iterator[Finding]]:
    rows = first_steps(engine, queues) if queues else []
    explained: dict[Queue, list[int]] = {}
    """Counts by queue: gaps at damage, messages missing in them, repeats at damage."""
    for row in rows:
        ends = (row["phy_before"], row["phy_offset"])
        cause = causes.between(row["store"], *ends)
        row["at_damage"] = cause is not None or any(causes.covers(row["store"], at) for at in ends)
        sums = explained.setdefault((row["store"], row["topic"], row["queue_id"]), [0, 0, 0])
        if row["at_damage"] and row["kind"] == "gap":
            missing = row["queue_offset"] - row["before"] - 1
            if cause is not None:
                cause.missing += missing
                cause.queues.add((row["topic"], row["queue_id"]))
            sums[0] += 1
            sums[1] += missing
        sums[2] += row["at_damage"] and row["kind"] == "repeats"
    for row in counts:
        key = (row["store"], row["topic"], row["queue_id"])
        names = ("gaps_at_damage", "missing_at_damage", "repeats_at_damage")
        row |= dict(zip(names, explained.get(key, (0, 0, 0)), strict=True))
    tables = [
        table(
            "queue_steps",
            "Queues whose queue offset does not rise by one from record to record",
            "store topic queue_id:integer gaps:integer missing:integer gaps_at_damage:integer "
            "missing_at_damage:integer repeats:integer repeats_at_damage:integer "
            "restarts:integer",
            counts,
        ),
        table(
            "steps",
            "The first such places; at_damage: a damaged stretch lies between the two records",
            "store topic queue_id:integer kind before:integer queue_offset:integer "
            "phy_before:integer phy_offset:integer store_ms:time at_damage:flag",
            rows[:STEPS_MAX],
        ),
    ]
    return tables, _steps_findings(counts)


def _steps_findings(counts: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    for row in counts:
        where = f"{row['store']}: topic {row['topic']} queue {row['queue_id']}"
        gaps = row["gaps"] - row["gaps_at_damage"]
        if gaps:
            missing = row["missing"] - row["missing_at_damage"]
            yield Finding.error(
                f"{where}: {count_of(missing, 'message')} missing from the log in "
                f"{count_of(gaps, 'gap')} of the queue offset."
            )
        repeats = row["repeats"] - row["repeats_at_damage"]
        if repeats:
            times = count_of(repeats, "time")
            yield Finding.error(f"{where}: the queue offset goes back {times}.")
        if row["restarts"]:
            yield Finding.info(
                f"{where}: began anew at 0 {count_of(row['restarts'], 'time')}, the last at "
                f"{row['restart_offset']}: the topic was deleted and made again."
            )


def _queues(
    engine: Engine,
    ends: dict[str, Ends],
    counts: list[dict[str, Any]],
    restarts: dict[Queue, int],
    causes: Causes,
) -> Iterator[Finding]:
    """Findings on wrong entries. Entries that damage explains are counted with their cause."""
    for row in counts:
        places = row["places"]
        if row["kind"] == LOST:
            causes.entries[row["store"]] = causes.entries.get(row["store"], 0) + places
            continue
        yield Finding.error(
            f"{row['store']}: topic {row['topic']} queue {row['queue_id']}: "
            f"{row['kind']} at {count_of(places, 'queue offset')}, the first "
            f"{row['first_queue_offset']}."
        )
    wrong = {(row["store"], row["topic"], row["queue_id"]) for row in counts}
    wrong |= causes.misplaced_queues
    for row in wrong_tags(engine, ends):
        key = (row["store"], row["topic"], row["queue_id"])
        # If places are wrong or the log holds an older queue too, counts differ anyway.
        if key not in wrong and key not in restarts:
            yield Finding.error(
                f"{key[0]}: topic {key[1]} queue {key[2]}: the tags code of "
                f"{count_of(row['entries'], 'entry')} is not that of the record's tags."
            )
    yield from _ends_findings(engine, ends)


def _entry_tables(counts: list[dict[str, Any]], first: list[dict[str, Any]]) -> list[Table]:
    return [
        table(
            "queue_entries",
            "Consume queues against the log: wrong places by queue",
            "store topic queue_id:integer kind places:integer first_queue_offset:integer",
            counts,
        ),
        table(
            "entries",
            "The first wrong places",
            "store topic queue_id:integer queue_offset:integer kind record_offset:integer "
            "entry_offset:integer",
            first,
        ),
    ]


def _ends_findings(engine: Engine, ends: dict[str, Ends]) -> Iterator[Finding]:
    for store in engine.stores:
        end = ends.get(store.label)
        if end is None:
            yield Finding.info(f"{store.label} has no consume queues to compare.")
            continue
        why = "" if store.is_closed else "; it is in use or crashed, recovery puts that right"
        if end.entries_beyond:
            yield Finding(
                "error" if store.is_closed else "info",
                f"{store.label}: {count_of(end.entries_beyond, 'entry')} beyond the end of the "
                f"log{why}.",
            )
        if end.records_beyond:
            yield Finding(
                "error" if store.is_closed else "info",
                f"{store.label}: {count_of(end.records_beyond, 'record')} without entry at the end "
                f"of the log{why}.",
            )


def _lost_topics(engine: Engine, ends: dict[str, Ends], causes: Causes) -> Iterator[Finding]:
    """Topics with records and no entry at all, but for those that only a damaged header names."""
    rows = engine.query(
        "SELECT store, topic, SUM(messages) AS messages, MIN(phy_offset_min) AS first_offset "
        "FROM commitlog_stats GROUP BY store, topic ORDER BY store, topic",
    )
    kept = {(store.label, topic) for store in engine.stores for topic in queued_topics(store)}
    known = {store.label: or_noted(engine, store.topics) or {} for store in engine.stores}
    for row in rows:
        store, topic = row["store"], row["topic"]
        end = ends.get(store)
        if end is None or (store, topic) in kept or row["first_offset"] > end.newest_entry:
            continue
        messages = row["messages"] - causes.headers_naming(store, topic)
        if not messages:
            continue
        text = f"{store}: topic {topic} has {count_of(messages, 'record')} but no queue"
        if topic in known[store]:
            yield Finding.error(f"{text}, though it exists.")
        else:
            yield Finding.info(f"{text}: it was deleted.")


def _index(engine: Engine, causes: Causes) -> tuple[list[Table], list[Finding]]:
    checks = [
        check_index(
            store, engine.index_keys(store), is_explained=partial(causes.covers, store.label)
        )
        for store in engine.stores
    ]
    causes.index_entries.update((check.store, check.explained) for check in checks)
    findings: list[Finding] = []
    for store, check in zip(engine.stores, checks, strict=True):
        findings += _index_findings(check, is_closed=store.is_closed)
    return [
        table(
            "index",
            "Index files against the log; explained: wrong entries of damaged records",
            "store files:integer entries:integer keys_checked:integer missing:integer "
            "dangling:integer explained:integer not_yet:integer splits:integer "
            "splits_checked:integer",
            [attrs.asdict(check, recurse=False) for check in checks],
        ),
        table(
            "index_entries",
            "The first wrong places of the index",
            "store kind phy_offset:integer topic key key_hash:integer",
            [attrs.asdict(wrong) for check in checks for wrong in check.wrong],
        ),
    ], findings


def _index_findings(check: IndexCheck, *, is_closed: bool) -> Iterator[Finding]:
    for text in check.unreadable:
        yield Finding.error(f"{text}.")
    if check.missing:
        yield Finding.error(f"{check.store}: {count_of(check.missing, 'key')} not in the index.")
    if check.dangling:
        yield Finding.error(
            f"{check.store}: {count_of(check.dangling, 'index entry')} whose record has no "
            "such key."
        )
    if check.files and check.not_yet:
        yield Finding(
            "warning" if is_closed else "info",
            f"{check.store}: {count_of(check.not_yet, 'key')} of the newest records not yet "
            "in the index.",
        )
    if check.splits_checked < check.splits:
        yield Finding.info(
            f"{check.store}: of the index, {check.splits_checked} of {check.splits} evenly "
            "spread ranges of the log were compared."
        )
    if not check.files and not check.unreadable:
        yield Finding.info(f"{check.store} has no index to compare.")
