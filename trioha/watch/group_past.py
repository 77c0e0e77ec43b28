"""A group's lag over hours, and its rebalances, out of recordings and journals.

Of a long recording every n-th round is read. In a journal the event `consumer_lag` tells a group's
progress in a topic whenever it has changed (docs/journal.md); it holds until the next one. A
group's lag is the sum over its topics and over the sets whose journals are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import merge

import attrs

from trioha.errors import TriohaError
from trioha.journal.file import Event
from trioha.watch.readings import whole
from trioha.watch.rebalances import Rebalance, RebalanceHistory
from trioha.watch.recording import Recording
from trioha.watch.snapshot import ClusterSnapshot, Tables

LAG_EVENT = "consumer_lag"
ROUNDS_MAX = 3_600
"""Most rounds of a recording that are looked at: an hour of one a second."""


@attrs.frozen
class LagPoint:
    """A group's progress at a moment."""

    wall_ms: int
    lag: int
    consumed: int
    """Sum of its offsets."""


@attrs.frozen
class GroupPast:
    """Course of one group, oldest first."""

    lags: Sequence[LagPoint]
    rebalances: Sequence[Rebalance] = ()


def past_of_recording(recording: Recording, group: str) -> GroupPast:
    """Return the course of a group in a recording; damaged rounds are left out."""
    lags: list[LagPoint] = []
    seen = RebalanceHistory(group)
    tables = Tables()
    step = -(-len(recording.frames) // ROUNDS_MAX)
    for number in range(0, len(recording.frames), step):
        try:
            snapshot = ClusterSnapshot.of(recording.raw(number), tables)
        except TriohaError:
            continue
        seen.look(snapshot)
        found = snapshot.groups.get(group)
        if found is not None and found.lag is not None:
            consumed = sum(one.consumer_offset for one in found.queues)
            lags.append(LagPoint(snapshot.at_wall_ms, found.lag, consumed))
    return GroupPast(lags, tuple(reversed(seen.changes)))


def past_of_journals(journals: Mapping[str, Iterable[Event]], group: str) -> GroupPast:
    """Return the course of a group in the journals of sets, by the sets' names."""
    known: dict[tuple[str, object], tuple[int, int]] = {}
    lags: list[LagPoint] = []
    told = [
        [(event.wall_ms, name, event) for event in events if _is_about(event, group)]
        for name, events in journals.items()
    ]
    for wall_ms, name, event in merge(*told, key=lambda one: one[:2]):
        lag, consumed = whole(event.fields, "lag"), whole(event.fields, "consumer_offset")
        if lag is None or consumed is None:
            continue
        known[name, event.fields.get("topic")] = lag, consumed
        point = LagPoint(wall_ms, *map(sum, zip(*known.values(), strict=True)))
        if lags and lags[-1].wall_ms == wall_ms:
            lags[-1] = point
        else:
            lags.append(point)
    return GroupPast(lags)


def lags_at(
    lags: Sequence[LagPoint], begin_ms: int, end_ms: int, count: int
) -> list[LagPoint | None]:
    """Return the newest point of each of `count` steps, or the one that still holds then."""
    found: list[LagPoint | None] = []
    last: LagPoint | None = None
    at = 0
    for step in range(1, count + 1):
        until_ms = begin_ms + (end_ms - begin_ms) * step // count
        while at < len(lags) and lags[at].wall_ms <= until_ms:
            last = lags[at]
            at += 1
        found.append(last)
    return found


def _is_about(event: Event, group: str) -> bool:
    return event.name == LAG_EVENT and event.fields.get("group") == group
