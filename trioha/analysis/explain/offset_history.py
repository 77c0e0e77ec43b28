"""Committed offsets of a group over time.

A broker samples into its journal, every ten seconds in which something changed, which queues of a
group have another offset than at its last sample (`consumer_lag`, field `offsets`), and which were
set back in between. Read in order, the samples give every queue's offset at each of them. A
slave's samples are read, since it may become the master, but only a master's say where a group was.
In a DLEDGER group the log tells each commit exactly (`group_log`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from trioha.analysis.explain.case import Case
from trioha.analysis.explain.group_log import logged_offsets, store_with_tables
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.reports.lives import journal_of, number
from trioha.analysis.store_files import StoreFiles

_NAMES = ("consumer_lag", "progress_set_back", "journal_dropped", "node_started")


@attrs.frozen
class OffsetsAt:
    """Committed offsets of a group in one topic at one time."""

    wall_ms: int
    source: str
    """The node whose journal says so, or the store whose log does."""
    offsets: Mapping[int, int]
    """Queue id -> next offset that the group consumes; a queue that lacks is not known."""
    is_exact: bool = False
    """The offsets changed at that very time, and then not before the next ones."""


@attrs.frozen
class Reset:
    """An operator told the connected consumers of a group to go on elsewhere."""

    wall_ms: int
    node: str
    peer: str
    offsets: Mapping[int, int]


def offset_history(
    case: Case,
    replicas: Sequence[StoreFiles],
    group: str,
    topic: str,
    queue_ids: Collection[int] | None = None,
) -> list[OffsetsAt]:
    """The offsets of a group in a topic of one broker, by time.

    `queue_ids`: tell of these queues alone.
    """
    labels = [store.label for store in replicas]
    found = (
        _of_log(case, store, group, topic)
        if (store := store_with_tables(case.engine, labels)) is not None
        else _of_journals(case, _brokers_of(case, labels), group, topic)
    )
    history = []
    for each in found:
        if queue_ids is not None:
            offsets = {queue: each.offsets[queue] for queue in queue_ids if queue in each.offsets}
            each = attrs.evolve(each, offsets=offsets)
        if each.offsets:
            history.append(each)
    return sorted(history, key=lambda each: each.wall_ms)


def resets_of(case: Case, replicas: Sequence[StoreFiles], group: str, topic: str) -> list[Reset]:
    """Resets of a group that operators asked this broker for, by time."""
    brokers = _brokers_of(case, [store.label for store in replicas])
    found = [
        Reset(row.wall_ms, row.node, row.fields.get("peer", ""), _pairs(row, "queues"))
        for row in case.engine.journal({"progress_reset"})
        if _is_of(row, brokers, group, topic)
    ]
    return sorted(found, key=lambda reset: reset.wall_ms)


def is_of_master(case: Case, row: JournalRow) -> bool:
    """Return whether the node was a master, or a leader, when it wrote the event."""
    life = case.lives.at(journal_of(row), row.wall_ms)
    return life is not None and any(
        stint.is_master
        and stint.begin_ms <= row.wall_ms
        and (stint.end_ms is None or row.wall_ms <= stint.end_ms)
        for stint in life.stints
    )


def _of_log(case: Case, store: str, group: str, topic: str) -> Iterator[OffsetsAt]:
    for each in logged_offsets(case.engine, store, group, topic):
        yield OffsetsAt(each.wall_ms, store, each.offsets, is_exact=True)


def _of_journals(
    case: Case, brokers: Collection[str], group: str, topic: str
) -> Iterator[OffsetsAt]:
    states: dict[str, dict[int, int]] = {}
    for row in case.engine.journal(_NAMES):
        journal = journal_of(row)
        if row.name in ("journal_dropped", "node_started"):
            states.pop(journal, None)  # a sample is lost, or the node names all offsets anew
        elif not _is_of(row, brokers, group, topic):
            continue
        elif row.name == "progress_set_back":
            if is_of_master(case, row):
                yield from _moved_back(row)
        elif "offsets" in row.fields:  # an older node tells sums alone
            offsets = states.setdefault(journal, {})
            named = _pairs(row, "offsets")
            offsets.update(named)
            if is_of_master(case, row):
                known = named if number(row, "offsets_left") else offsets
                yield OffsetsAt(row.wall_ms, row.node, dict(known))


def _moved_back(row: JournalRow) -> Iterator[OffsetsAt]:
    """Yield the offsets from before the queues were set back, then those from after."""
    numbers = _numbers(row, "queues")
    moves = list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=False))
    yield OffsetsAt(row.wall_ms, row.node, {queue: before for queue, before, _ in moves})
    yield OffsetsAt(row.wall_ms, row.node, {queue: after for queue, _, after in moves})


def _pairs(row: JournalRow, name: str) -> dict[int, int]:
    numbers = _numbers(row, name)
    return dict(zip(numbers[::2], numbers[1::2], strict=False))


def _numbers(row: JournalRow, name: str) -> list[int]:
    """A field that is a list of numbers; what is none, a later version's, says nothing."""
    try:
        found = json.loads(row.fields.get(name, "[]"))
    except ValueError:
        return []
    is_list = isinstance(found, list) and all(isinstance(each, int) for each in found)
    return found if is_list else []


def _brokers_of(case: Case, labels: Sequence[str]) -> frozenset[str]:
    return frozenset().union(*(case.brokers_of(label) for label in labels))


def _is_of(row: JournalRow, brokers: Collection[str], group: str, topic: str) -> bool:
    return (
        row.fields.get("group") == group
        and row.fields.get("topic") == topic
        and (not brokers or row.node.rpartition(":")[0] in brokers)
    )
