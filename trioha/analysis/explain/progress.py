"""Progress of a consumer group: its committed offsets, and the samples of them in journals.

A store keeps only the newest committed offset of each queue; `offset_history` knows the earlier
ones. Journals of older nodes have sums alone, over those queues of a topic that the group has
committed to. Of these, a sample of one queue is exact, and a sample of all queues in which nothing
is left holds for each of them. A slave's sample is as old as its copy of the offsets and is left
out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from trioha.analysis.engine import or_noted
from trioha.analysis.explain.case import Case
from trioha.analysis.explain.offset_history import OffsetsAt, is_of_master
from trioha.analysis.reports.lives import number
from trioha.analysis.reports.words import say_time
from trioha.analysis.store_files import StoreFiles
from trioha.wire.names import BROKER_GROUPS


@attrs.frozen
class Committed:
    """The newest committed offset of one queue among the replicas of a store."""

    offset: int
    """Next offset that the group consumes."""
    store: str
    written_ms: int | None
    """Time at which the file was written, in ms since 1970; a copied file may say otherwise."""


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
class Pass:
    """A group passed a message: later than `after_ms`, no later than `by_ms`; ms since 1970."""

    after_ms: int | None
    """The group had not passed it yet; None when nothing says since when."""
    by_ms: int

    @property
    def is_exact(self) -> bool:
        return self.after_ms == self.by_ms

    def __str__(self) -> str:
        if self.after_ms is None:
            return f"by {say_time(self.by_ms)}"
        if self.is_exact:
            return say_time(self.by_ms)
        return f"between {say_time(self.after_ms)} and {say_time(self.by_ms)}"


@attrs.frozen
class Consumption:
    """Times at which a group passed one message, if known; milliseconds since 1970."""

    passes: Sequence[Pass] = ()
    """Passes; more than one when the group was set back before the message in between."""
    set_back_by_ms: Sequence[int] = ()
    """The group had been set back before the message."""
    not_before_ms: int | None = None
    """The last time that the group is known not to have passed it."""
    skipped_ms: int | None = None
    """The group was past it already before it was stored."""


Offsets = Mapping[tuple[str, str], Mapping[int, Committed]]
"""(Topic, group) -> queue id -> committed offset."""


def committed_offsets(case: Case, stores: Sequence[StoreFiles]) -> Offsets:
    """Return the highest offsets in these replicas, without the broker's own groups."""
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
    """Return when a store's committed offsets were written; None when there is no file of them."""
    if store.root is None:
        return None
    try:
        return (store.root / "config" / "consumerOffset.json").stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def samples_of(case: Case, brokers: Collection[str], group: str, topic: str) -> list[Sample]:
    """Return samples of these brokers' masters, or of all if none is named, by time."""
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
        and is_of_master(case, row)
    ]
    return sorted(found, key=lambda sample: sample.wall_ms)


def consumption_of(
    history: Sequence[OffsetsAt],
    samples: Sequence[Sample],
    store_ms: int,
    queue_id: int,
    queue_offset: int,
    queue_count: int,
) -> Consumption:
    """Return when the group passed a message that was stored at `store_ms`.

    `samples` count where the history knows nothing of the queue. `queue_count`: queues of the topic
    that the group has committed to by now. Their number never shrinks, so a sample of as many has
    all of them.
    """
    points = [
        (each.wall_ms, each.offsets[queue_id] > queue_offset, each.is_exact)
        for each in history
        if queue_id in each.offsets
    ] or [
        (sample.wall_ms, is_past, False)
        for sample in samples
        if (is_past := _is_past(sample, store_ms, queue_id, queue_offset, queue_count)) is not None
    ]
    skipped_ms: int | None = None
    not_before_ms: int | None = None
    passes: list[Pass] = []
    set_back_by_ms: list[int] = []
    was_past = False
    for wall_ms, is_past, is_exact in points:
        if wall_ms < store_ms:
            skipped_ms = wall_ms if is_past else None
            was_past = is_past
            continue
        if is_past and not was_past:
            passes.append(Pass(wall_ms if is_exact else not_before_ms, wall_ms))
        elif was_past and not is_past:
            set_back_by_ms.append(wall_ms)
        if not is_past:
            not_before_ms = wall_ms
        was_past = is_past
    return Consumption(passes, set_back_by_ms, not_before_ms, skipped_ms)


def _is_past(
    sample: Sample, store_ms: int, queue_id: int, queue_offset: int, queue_count: int
) -> bool | None:
    """Return whether a group had passed a message at a sample of sums; None if unknown."""
    if sample.queues == 1 and sample.worst_queue == queue_id:
        return sample.consumer_offset > queue_offset
    is_whole = sample.queues == queue_count > 1 and sample.wall_ms >= store_ms
    return True if is_whole and sample.lag == 0 else None
