"""How far a consumer group has come: its committed offsets, and what journals sampled of them.

A store keeps only the newest committed offset of each queue. Masters sample into their journals,
every ten seconds in which something changed, the sum over those queues of a topic that the group
has committed to. A sample of one queue is exact. A sample of all queues in which nothing is left
holds for each of them. A slave's sample is as old as its copy of the offsets and is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from trioha.analysis.engine import or_noted
from trioha.analysis.explain.case import Case
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.reports.lives import journal_of, number
from trioha.analysis.store_files import StoreFiles
from trioha.wire.names import BROKER_GROUPS


@attrs.frozen
class Committed:
    """The newest committed offset of one queue among the replicas of a store."""

    offset: int
    """Next offset that the group consumes."""
    store: str
    written_ms: int | None
    """When the file was written, in milliseconds since 1970; a copied file may say otherwise."""


@attrs.frozen
class Sample:
    """One `consumer_lag` of a journal."""

    wall_ms: int
    node: str
    lag: int
    consumer_offset: int
    broker_offset: int
    queues: int
    worst_queue: int
    """Queue with the largest lag; of one queue, that queue."""


@attrs.frozen
class Consumption:
    """When a group passed one message, as far as samples tell; milliseconds since 1970."""

    not_before_ms: int | None = None
    """The group had not passed it yet."""
    by_ms: int | None = None
    """The group had passed it."""
    skipped_ms: int | None = None
    """The group was past it already before it was stored."""


Offsets = Mapping[tuple[str, str], Mapping[int, Committed]]
"""(Topic, group) -> queue id -> committed offset."""


def committed_offsets(case: Case, stores: Sequence[StoreFiles]) -> Offsets:
    """Of these replicas, without the broker's own groups. A slave's copy may be older."""
    found: dict[tuple[str, str], dict[int, Committed]] = {}
    for store in stores:
        for (topic, group), queues in (or_noted(case.engine, store.consumer_offsets) or {}).items():
            if group in BROKER_GROUPS:
                continue
            known = found.setdefault((topic, group), {})
            for queue_id, offset in queues.items():
                if queue_id not in known or offset > known[queue_id].offset:
                    known[queue_id] = Committed(offset, store.label, offsets_written_ms(store))
    return found


def offsets_written_ms(store: StoreFiles) -> int | None:
    """When a store's committed offsets were written; None when there is no file of them."""
    if store.root is None:
        return None
    try:
        return (store.root / "config" / "consumerOffset.json").stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def samples_of(case: Case, brokers: Collection[str], group: str, topic: str) -> list[Sample]:
    """What the journals of these brokers, or of all if none is named, sampled; by time."""
    found = [
        Sample(
            row.wall_ms,
            row.node,
            number(row, "lag"),
            number(row, "consumer_offset"),
            number(row, "broker_offset"),
            number(row, "queues"),
            number(row, "worst_queue"),
        )
        for row in case.engine.journal({"consumer_lag"})
        if row.fields.get("group") == group
        and row.fields.get("topic") == topic
        and (not brokers or row.node.rpartition(":")[0] in brokers)
        and _is_of_master(case, row)
    ]
    return sorted(found, key=lambda sample: sample.wall_ms)


def consumption_of(
    samples: Sequence[Sample], store_ms: int, queue_id: int, queue_offset: int, queue_count: int
) -> Consumption:
    """When the group passed a message that was stored at `store_ms`.

    `queue_count`: queues of the topic that the group has committed to by now. Their number never
    shrinks, so a sample of as many has all of them.
    """
    not_before_ms: int | None = None
    for sample in samples:
        is_exact = sample.queues == 1 and sample.worst_queue == queue_id
        is_past = is_exact and sample.consumer_offset > queue_offset
        if sample.wall_ms < store_ms:
            if is_past:
                return Consumption(skipped_ms=sample.wall_ms)
            continue
        if is_past or (sample.queues == queue_count > 1 and sample.lag == 0):
            return Consumption(not_before_ms, sample.wall_ms)
        if is_exact:
            not_before_ms = sample.wall_ms
    return Consumption(not_before_ms)


def _is_of_master(case: Case, row: JournalRow) -> bool:
    life = case.lives.at(journal_of(row), row.wall_ms)
    return life is not None and any(
        stint.is_master
        and stint.begin_ms <= row.wall_ms
        and (stint.end_ms is None or row.wall_ms <= stint.end_ms)
        for stint in life.stints
    )
