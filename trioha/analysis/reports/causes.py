"""Damage of a log, and all that follows from it: one finding for one cause.

A missing segment is a gap in every queue, and every entry of what was in it leads nowhere. A header
with a flipped bit is a gap in the queue that its record was in, a topic that does not exist, and
wrong entries of the index. What lies at a cause is counted with it, and is no finding of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioha.analysis.reports.words import count_of, say_bytes
from trioha.analysis.results import Finding

_NAMED_MAX = 10
"""Records with a damaged header that have a finding each; the others share one."""


@attrs.define(eq=False)
class Cause:
    """A stretch of a store's log that is damaged, and what follows from it."""

    store: str
    begin: int
    end: int
    reason: str
    told: str = ""
    """The finding's text; empty for a stretch, whose store and reason make it."""
    named_topic: str = ""
    """The topic that a damaged header names."""
    missing: int = 0
    queues: set[tuple[str, int]] = attrs.field(factory=set)


@attrs.define(eq=False)
class Causes:
    """All causes of an analysis, looked up by place."""

    _by_store: dict[str, list[Cause]] = attrs.field(factory=dict)
    _begins: dict[str, list[int]] = attrs.field(factory=dict)
    misplaced_queues: frozenset[tuple[str, str, int]] = frozenset()
    """Store, topic, queue id: queues that a damaged header names, or has left."""
    entries: dict[str, int] = attrs.field(factory=dict)
    """Entries of consume queues that lead into damage, by store."""
    index_entries: dict[str, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for store, causes in self._by_store.items():
            causes.sort(key=lambda cause: cause.begin)
            self._begins[store] = [cause.begin for cause in causes]

    def between(self, store: str, low: int, high: int) -> Cause | None:
        """The first cause behind a record at `low` and before one at `high`."""
        causes = self._by_store.get(store, [])
        place = bisect_right(self._begins.get(store, []), low)
        return causes[place] if place < len(causes) and causes[place].begin < high else None

    def covers(self, store: str, phy_offset: int) -> bool:
        """Return whether a place is damaged."""
        place = bisect_right(self._begins.get(store, []), phy_offset) - 1
        return place >= 0 and phy_offset < self._by_store[store][place].end

    def headers_naming(self, store: str, topic: str) -> int:
        """Records that have this topic because their header is damaged."""
        return sum(cause.named_topic == topic for cause in self._all(store))

    def findings(self, totals: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
        """One sentence for each store and reason, and for each damaged header."""
        told = set()
        for row in totals:
            store, reason = row["store"], row["reason"]
            causes = [each for each in self._all(store) if each.reason == reason and not each.told]
            text = (
                f"{store}: {count_of(row['stretches'], 'damaged stretch')} of the log, "
                f"{say_bytes(row['bytes'])} in all, the first at {row['first_offset']}: {reason}."
            )
            missing = sum(cause.missing for cause in causes)
            queues = set[tuple[str, int]]().union(*(cause.queues for cause in causes))
            if missing:
                text += (
                    f" {count_of(missing, 'message')} of {count_of(len(queues), 'queue')} "
                    f"{'is' if missing == 1 else 'are'} missing there."
                )
            if store not in told:
                text += self._entries_text(store)
                told.add(store)
            yield Finding.error(text)
        for store in self._by_store:
            headers = [cause.told for cause in self._all(store) if cause.told]
            for each in headers[:_NAMED_MAX]:
                yield Finding.error(each)
            if len(headers) > _NAMED_MAX:
                yield Finding.error(
                    f"{store}: {count_of(len(headers) - _NAMED_MAX, 'more record')} with a damaged "
                    "header, each listed by an entry of another queue."
                )

    def _all(self, store: str) -> list[Cause]:
        return self._by_store.get(store, [])

    def _entries_text(self, store: str) -> str:
        queued, indexed = self.entries.get(store, 0), self.index_entries.get(store, 0)
        parts = [count_of(queued, "queue entry")] if queued else []
        parts += [count_of(indexed, "index entry")] if indexed else []
        return f" {' and '.join(parts)} lead into damage." if parts else ""


def causes_of(
    damage: Sequence[Mapping[str, Any]], misplaced: Sequence[Mapping[str, Any]]
) -> Causes:
    """Causes from damaged stretches, and from records that entries of other queues lead to."""
    by_store: dict[str, list[Cause]] = {}
    for row in damage:
        begin = row["phy_offset"]
        cause = Cause(row["store"], begin, begin + row["length"], row["reason"])
        by_store.setdefault(row["store"], []).append(cause)
    for row in misplaced:
        begin = row["phy_offset"]
        told = (
            f"{row['store']}: the header of the record at {begin} is damaged: it says topic "
            f"{row['record_topic']} queue {row['record_queue_id']} offset "
            f"{row['record_queue_offset']}, and the entry that leads to it topic {row['topic']} "
            f"queue {row['queue_id']} offset {row['queue_offset']}."
        )
        cause = Cause(
            *(row["store"], begin, begin + 1, "damaged header", told),
            named_topic=row["record_topic"],
        )
        by_store.setdefault(row["store"], []).append(cause)
    queues = [(row["store"], row["topic"], row["queue_id"]) for row in misplaced]
    queues += [(row["store"], row["record_topic"], row["record_queue_id"]) for row in misplaced]
    return Causes(by_store, misplaced_queues=frozenset(queues))
