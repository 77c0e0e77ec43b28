"""Do these stores agree? Every two of them, within the range of the log that both hold.

A slave that is behind holds a prefix of its master's log, and a store whose old segments were
deleted a suffix: neither is divergence. A record that only one of them has in the common range, or
that differs in any byte, is. Records are compared by digests of all their bytes
(`store_digests`); where both stores' files can be read here, the bytes that differ are told too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import attrs

from trioha.analysis.engine import Engine, literal, literals
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.record_bytes import difference, field_of
from trioha.analysis.reports.store_digests import (
    Differences,
    Extent,
    compare,
    differing_blocks,
    extents,
    first_unequal,
    ranges_to_compare,
)
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.terms import (
    Histories,
    cuts,
    histories_of,
    say_parting,
    term_at,
    terms_table,
)
from trioha.analysis.reports.words import MINUTE_MS, count_of, say_bytes, say_ms, say_time
from trioha.analysis.results import Finding, Report, ReportOptions, Table
from trioha.analysis.store_files import StoreFiles

SPEC = REPORTS["divergence"]
NEEDS = frozenset(
    {"commitlog", "commitlog_full", "commitlog_corrupt", "commitlog_stats", "two stores"}
)

RECORDS_MAX = 40
"""Differing records shown per pair."""
STRETCHES_MAX = 100
JOURNAL_MARGIN_MS = 10 * MINUTE_MS
_JOURNAL_NAMES = (
    "role",
    "epoch_began",
    "fenced",
    "failover",
    "log_cut",
    "log_truncated",
    "recovery_finished",
    "ha_connected",
    "ha_disconnected",
    "ha_refused",
    "node_started",
    "node_stopped",
)
_RECORD_COLUMNS = (
    "store phy_offset:integer size:bytes topic queue_id:integer queue_offset:integer "
    "store_ms:time store_host body_crc:integer term:integer first_byte:integer last_byte:integer "
    "field"
)


@attrs.define(eq=False)
class _Pair:
    """Two stores, and what became known of them."""

    a: Extent
    b: Extent
    differences: Differences | None = None
    records: list[dict[str, Any]] = attrs.field(factory=list)
    """The first that differ, one row for each store that has one."""

    @property
    def begin(self) -> int:
        return max(self.a.begin, self.b.begin)

    @property
    def end(self) -> int:
        return min(self.a.end, self.b.end)

    @property
    def verdict(self) -> str:
        if self.begin >= self.end:
            return "nothing in common"
        if self.differences is not None:
            return "diverged"
        if self.a.end == self.b.end:
            return "equal"
        return "b is behind" if self.b.end < self.a.end else "a is behind"


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report. Its exit code is 1 when any two stores have diverged."""
    held = extents(engine)
    findings = [
        Finding.warning(f"{store.label} holds no record in the window; it was not compared.")
        for store in engine.stores
        if store.label not in held
    ]
    found = [held[store.label] for store in engine.stores if store.label in held]
    masks = differing_blocks(engine, found) if len(found) > 1 else []
    pairs = []
    for (i, a), (j, b) in combinations(enumerate(found), 2):
        pair = _Pair(a, b)
        if pair.begin < pair.end:
            _compare(engine, pair, ranges_to_compare(a, b, masks, 1 << i, 1 << j))
        pairs.append(pair)
    behind = _behind(engine, pairs)
    histories = histories_of(engine)
    damage = _damage(engine) if any(pair.begin < pair.end for pair in pairs) else []
    for pair in pairs:
        findings += _findings(pair, behind, histories)
    findings += _damage_findings(pairs, damage)
    diverged = [pair for pair in pairs if pair.verdict == "diverged"]
    cut_tables, cut_findings = cuts(engine)
    findings += cut_findings
    tables = [_stores(found), _pairs(pairs, behind, histories), *cut_tables]
    if any(histories.values()):
        tables.append(terms_table(histories))
    if diverged:
        tables += [
            table(
                "records",
                f"The first records that differ, at most {RECORDS_MAX} per pair",
                f"a b {_RECORD_COLUMNS}",
                [
                    row | {"a": pair.a.store, "b": pair.b.store}
                    for pair in diverged
                    for row in pair.records
                ],
            ),
            _journal(engine, diverged),
        ]
    if damage:
        tables.append(
            table(
                "damage",
                "Damaged stretches: they hold no record that could be compared",
                "store phy_offset:integer length:bytes reason",
                damage,
            )
        )
    return Report(
        **SPEC.heading,
        tables=tables,
        findings=findings,
        exit_code=1 if diverged else 0,
    )


def _compare(engine: Engine, pair: _Pair, ranges: list[tuple[int, int]]) -> None:
    a, b = pair.a.store, pair.b.store
    pair.differences = compare(engine, a, b, ranges) if ranges else None
    if pair.differences is None:
        return
    offsets = first_unequal(engine, a, b, ranges, RECORDS_MAX)
    pair.records = engine.query(
        "SELECT store, phy_offset, size, topic, queue_id, queue_offset, store_ms, store_host, "
        "body_crc, term, body_size, properties_size FROM commitlog "
        f"WHERE store IN {literals((a, b))} AND phy_offset IN {literals(offsets)} "
        "ORDER BY phy_offset, store",
    )
    for row in pair.records:
        row |= {"first_byte": None, "last_byte": None, "field": ""}
    by_label = {store.label: store for store in engine.stores}
    try:
        for offset in offsets:
            _compare_bytes(list(_at(pair.records, offset)), by_label[a], by_label[b])
    except OSError as error:
        engine.note(
            f"The files of {a} and {b} cannot be read here ({error.strerror or error}): which "
            "bytes of their records differ is not told."
        )


def _compare_bytes(rows: list[dict[str, Any]], a: StoreFiles, b: StoreFiles) -> None:
    """Note the bytes that differ of a record that both stores have."""
    size = max(row["size"] for row in rows)
    found = difference(a, b, rows[0]["phy_offset"], size) if len(rows) == 2 else None
    if found is not None:
        for row in rows:
            row["first_byte"], row["last_byte"] = found
            row["field"] = _field(row, found[0])


def _at(rows: Sequence[dict[str, Any]], phy_offset: int) -> Iterator[dict[str, Any]]:
    return (row for row in rows if row["phy_offset"] == phy_offset)


def _field(row: dict[str, Any], offset: int) -> str:
    place = offset - row["phy_offset"]
    return field_of(place, row["size"], row["body_size"], row["properties_size"])


def _behind(engine: Engine, pairs: list[_Pair]) -> dict[tuple[str, int], int]:
    """(Store, offset) -> records from there on, for every store ahead of its pair."""
    wanted = {
        (store.store, pair.end)
        for pair in pairs
        for store in (pair.a, pair.b)
        if pair.begin < pair.end < store.end
    }
    if not wanted:
        return {}
    parts = [
        f"SELECT store, {end} AS end_offset, COUNT(*) AS messages FROM commitlog "
        f"WHERE store = {literal(store)} AND phy_offset >= {end} GROUP BY store"
        for store, end in sorted(wanted)
    ]
    rows = engine.query(" UNION ALL ".join(parts))
    return {(row["store"], row["end_offset"]): row["messages"] for row in rows}


def _stores(found: list[Extent]) -> Table:
    return table(
        "stores",
        "What each store holds",
        "store begin_offset:integer end_offset:integer messages:integer first_ms:time last_ms:time",
        [
            attrs.asdict(each) | {"begin_offset": each.begin, "end_offset": each.end}
            for each in found
        ],
    )


def _pairs(pairs: list[_Pair], behind: dict[tuple[str, int], int], histories: Histories) -> Table:
    rows = []
    for pair in pairs:
        ahead = pair.a if pair.a.end > pair.b.end else pair.b
        differences = pair.differences
        rows.append(
            {
                "a": pair.a.store,
                "b": pair.b.store,
                "verdict": pair.verdict,
                "common_begin": pair.begin if pair.begin < pair.end else None,
                "common_end": pair.end if pair.begin < pair.end else None,
                "first_offset": differences.first_offset if differences else None,
                "first_byte": pair.records[0]["first_byte"] if pair.records else None,
                "epoch_a": _epoch(pair, pair.a.store, histories),
                "epoch_b": _epoch(pair, pair.b.store, histories),
                "field": pair.records[0]["field"] if pair.records else "",
                "differing": differences.count if differences else 0,
                "only_a": differences.only_a if differences else 0,
                "only_b": differences.only_b if differences else 0,
                "last_offset": differences.last_offset if differences else None,
                "behind_bytes": abs(pair.a.end - pair.b.end),
                "behind_messages": behind.get((ahead.store, pair.end), 0),
                "behind_ms": abs(pair.a.last_ms - pair.b.last_ms),
            }
        )
    return table(
        "pairs",
        "Every two stores: offsets are positions in the log",
        "a b verdict common_begin:integer common_end:integer first_offset:integer "
        "first_byte:integer epoch_a:integer epoch_b:integer field differing:integer only_a:integer "
        "only_b:integer last_offset:integer behind_bytes:bytes behind_messages:integer "
        "behind_ms:duration",
        rows,
    )


def _parting(pair: _Pair) -> int | None:
    """Return the first offset at which the stores differ; None if none is known."""
    return None if pair.differences is None else pair.differences.first_offset


def _epoch(pair: _Pair, store: str, histories: Histories) -> int | None:
    at = _parting(pair)
    record = None if at is None else term_at(histories[store], at)
    return None if record is None else record.epoch


def _findings(
    pair: _Pair, behind: dict[tuple[str, int], int], histories: Histories
) -> Iterator[Finding]:
    at = _parting(pair)
    terms = "" if at is None else say_parting(pair.a.store, pair.b.store, histories, at)
    a, b = pair.a.store, pair.b.store
    common = f"from {pair.begin} to {pair.end}"
    if pair.verdict == "nothing in common":
        yield Finding.warning(f"{a} and {b} hold no range of the log in common.")
    elif pair.differences is not None:
        yield _divergence(pair, pair.differences, terms)
    else:
        yield Finding.info(
            f"{a} and {b} agree in every byte of their records {common} (by a CRC-32 of each)."
        )
    if pair.verdict != "nothing in common" and pair.a.end != pair.b.end:
        ahead, late = (pair.a, pair.b) if pair.a.end > pair.b.end else (pair.b, pair.a)
        messages = behind.get((ahead.store, pair.end), 0)
        yield Finding.info(
            f"{late.store} ends {say_bytes(ahead.end - late.end)} "
            f"({count_of(messages, 'message')}, {say_ms(ahead.last_ms - late.last_ms)}) before "
            f"{ahead.store}."
        )


def _divergence(pair: _Pair, found: Differences, epochs: str) -> Finding:
    first = list(_at(pair.records, found.first_offset))
    when = min(row["store_ms"] for row in first)
    terms = {row["store"]: row["term"] for row in first if row["term"] is not None}
    told = f", terms {terms}" if terms else ""
    where = f"record at {found.first_offset}"
    if len(first) == 1:
        where += f", which only {first[0]['store']} has"
    elif first[0]["first_byte"] is not None:
        where += _say_bytes(first[0])
    return Finding.error(
        f"{pair.a.store} and {pair.b.store} have diverged: the first is the {where}, topic "
        f"{first[0]['topic']}, stored {say_time(when)}{told}.{epochs} {_extent(found)}"
    )


def _say_bytes(row: dict[str, Any]) -> str:
    first, last = row["first_byte"], row["last_byte"]
    return f" (byte {first}" + ("" if first == last else f" to {last}") + f", in {row['field']})"


def _extent(found: Differences) -> str:
    if found.count == 1:
        return "No other record differs."
    return (
        f"{found.count:,} records differ, the last at {found.last_offset}: {found.only_a:,} only "
        f"the first store has, {found.only_b:,} only the second, "
        f"{found.count - found.only_a - found.only_b:,} both have with other bytes."
    )


def _damage(engine: Engine) -> list[dict[str, Any]]:
    """Damaged stretches of all stores: a record lost to damage is not a fork."""
    return engine.query(
        "SELECT store, phy_offset, length, reason FROM commitlog_corrupt "
        f"ORDER BY phy_offset, store LIMIT {STRETCHES_MAX}",
    )


def _damage_findings(pairs: Sequence[_Pair], damage: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """A sentence on each store that agrees with others, but for its damage."""
    agreeing = [pair for pair in pairs if pair.begin < pair.end and pair.verdict != "diverged"]
    for store in dict.fromkeys(row["store"] for row in damage):
        begins = [p.begin for p in agreeing if store in (p.a.store, p.b.store)]
        ends = [p.end for p in agreeing if store in (p.a.store, p.b.store)]
        lengths = [
            row["length"]
            for row in damage
            if begins
            and row["store"] == store
            and row["phy_offset"] < max(ends)
            and row["phy_offset"] + row["length"] > min(begins)
        ]
        if lengths:
            yield Finding.warning(
                f"{store} has {count_of(len(lengths), 'damaged stretch')} "
                f"({say_bytes(sum(lengths))}); what was there was not compared."
            )


def _journal(engine: Engine, diverged: list[_Pair]) -> Table:
    """Return journal events around the first difference of each pair: roles, cuts and links."""
    times = [
        row["store_ms"] for pair in diverged for row in pair.records[:2] if row["store_ms"] > 0
    ]
    rows: list[dict[str, Any]] = []
    if times and engine.journal_count:
        begin, end = min(times) - JOURNAL_MARGIN_MS, max(times) + JOURNAL_MARGIN_MS
        for event in engine.journal(_JOURNAL_NAMES):
            if begin <= event.wall_ms <= end and len(rows) < STRETCHES_MAX:
                told = ", ".join(f"{name} {value}" for name, value in event.fields.items())
                rows.append(
                    {
                        "wall_ms": event.wall_ms,
                        "node": event.node,
                        "event": event.name,
                        "fields": told,
                    }
                )
    return table(
        "journal",
        f"What the journals say within {say_ms(JOURNAL_MARGIN_MS)} of the first difference",
        "wall_ms:time node event fields",
        sorted(rows, key=lambda row: row["wall_ms"]),
    )
