"""Judges what clients were told by the log that their set or group ended with.

The judge of all drills: `judge_log` is for a log and the sends alone, `History.findings` for what
readers, committers and makers of topics saw besides.

A history holds what was asked and what was answered, with the time of both. Nothing is assumed of
an answer that never came: such a put may be stored or not, at any moment after it was asked for.
`History.findings` demands:

- what was acknowledged is in the log, at the told queue offset and place, and once;
- what was refused is not there; what is unknown is there once or not at all; nothing is made up;
- queue offsets are dense and given once;
- time is kept: a put that began after another one's answer lies behind it in its queue;
- whatever a reader read, at any time, from any member, is what the log holds at that offset: no
  reader saw what was taken back later, and all saw one order; a reader that goes on from where it
  was skips nothing and sees nothing twice;
- what a group has committed never goes back: no leader tells less than was acknowledged, or told,
  before it was asked, nor more than was ever asked for;
- a topic that was made is there at every member, and one that was deleted is not.

A client that tries again by itself may store a message more than once; of it is demanded that what
it was told in the end is true.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from support.histories.messages import Place, Put, Stored

FINDINGS_SHOWN = 12


LOG_KINDS = (
    "acknowledged and lost",
    "told another place",
    "stored twice",
    "another body",
    "refused and stored",
    "queue not dense",
)
"""The kinds of finding that `judge_log` knows."""


class Finding(NamedTuple):
    """A promise that was not kept."""

    kind: str
    words: str


@attrs.frozen(kw_only=True)
class Read:
    """A message as a reader was given it."""

    client: str
    queue_id: int
    queue_offset: int
    name: str
    at_s: float


@attrs.frozen(kw_only=True)
class Commit:
    """A group's progress, handed to a leader. A key has one writer, and its values only grow."""

    key: str
    value: int
    began_s: float
    ended_s: float = math.inf
    acknowledged: bool = False


@attrs.frozen(kw_only=True)
class Look:
    """A group's progress as a member told it."""

    key: str
    value: int
    began_s: float
    ended_s: float
    member: str = ""


@attrs.frozen(kw_only=True)
class TopicChange:
    """A topic made or deleted at a leader. Its name is used once, by one client."""

    topic: str
    made: bool
    """Else deleted."""
    acknowledged: bool = False


@attrs.define(eq=False)
class History:
    """All that was asked of one set or group, in any order."""

    puts: list[Put] = attrs.Factory(list)
    reads: list[Read] = attrs.Factory(list)
    """Each reader's in its own order."""
    commits: list[Commit] = attrs.Factory(list)
    looks: list[Look] = attrs.Factory(list)
    topic_changes: list[TopicChange] = attrs.Factory(list)
    """Changes of one topic in the order of their client."""
    topics: dict[str, set[str]] = attrs.Factory(dict)
    """Topics that each member reports once nothing changes any more."""
    strict_readers: set[str] = attrs.Factory(set)
    """Readers that read each queue from its beginning, one message after the other."""

    def findings(self, log: Sequence[Stored]) -> list[str]:
        """Return the broken promises; empty when every promise was kept."""
        return [
            *judge_strangers(self.puts, log),
            *(finding.words for finding in judge_log(self.puts, log)),
            *_judge_time(self.puts, log),
            *_judge_reads(self.reads, log),
            *_judge_strict_readers(self.reads, self.strict_readers),
            *_judge_progress(self.commits, self.looks),
            *_judge_topics(self.topic_changes, self.topics),
        ]

    def check(self, log: Sequence[Stored]) -> None:
        """Errors: AssertionError with the first findings."""
        demand_none(self.findings(log))

    def counts(self, log: Sequence[Stored]) -> dict[str, int]:
        """Return how many messages, queue offsets and steps of progress were lost."""
        regressions = sum(1 for _ in _judge_progress(self.commits, self.looks))
        return {**log_counts(self.puts, log), "progress_regressions": regressions}


def demand_none(findings: Sequence[str]) -> None:
    """Errors: AssertionError with the first findings."""
    shown = "\n  ".join(findings[:FINDINGS_SHOWN])
    assert not findings, f"{len(findings)} finding(s)\n  {shown}"


def judge_log(puts: Sequence[Put], log: Sequence[Stored]) -> Iterable[Finding]:
    """Yield what is wrong with these puts and with the queues. Others may have sent, too."""
    held = stored_by_name(log)
    assert len({put.name for put in puts}) == len(puts), "a history holds a name twice"
    for put in puts:
        found = held.get(put.name, [])
        places = [stored.place for stored in found]
        if len(found) > 1 and not put.retries:
            yield Finding("stored twice", f"{put.name} is stored {len(found)} times: {places}")
        if put.body is not None and any((one.size, one.crc) != put.body for one in found):
            yield Finding("another body", f"{put.name} has another body")
        if put.outcome == "refused" and found:
            words = f"{put.name} was refused ({put.detail}) and is at {places[0]}"
            yield Finding("refused and stored", words)
        if put.outcome != "acknowledged":
            continue
        if not found:
            words = f"{put.name} was acknowledged to {put.client} for {put.place} and is lost"
            yield Finding("acknowledged and lost", words)
        elif put.place is not None and not any(_agree(put.place, place) for place in places):
            words = f"{put.name} was told {put.place} and is at {places}"
            yield Finding("told another place", words)
    yield from _judge_queues(log)


def log_counts(puts: Sequence[Put], log: Sequence[Stored]) -> dict[str, int]:
    """Return how many acknowledged messages are lost, and how many queues are not dense."""
    kinds = Counter(finding.kind for finding in judge_log(puts, log))
    return {
        "acknowledged_lost": kinds["acknowledged and lost"],
        "queue_offset_faults": kinds["queue not dense"],
    }


def stored_by_name(log: Iterable[Stored]) -> Mapping[str, list[Stored]]:
    held: dict[str, list[Stored]] = defaultdict(list)
    for stored in log:
        held[stored.name].append(stored)
    return held


def judge_strangers(puts: Iterable[Put], log: Iterable[Stored]) -> Iterable[str]:
    """Yield the messages that no client sent."""
    names = {put.name for put in puts}
    for stored in log:
        if stored.name not in names:
            yield f"{stored.name} was never sent and is at {stored.place}"


def _agree(told: Place, found: Place) -> bool:
    return (
        told.queue_id in (-1, found.queue_id)
        and told.queue_offset == found.queue_offset
        and told.phy_offset in (-1, found.phy_offset)
    )


def _judge_queues(log: Iterable[Stored]) -> Iterable[Finding]:
    queues: dict[int, list[int]] = defaultdict(list)
    for stored in log:
        queues[stored.place.queue_id].append(stored.place.queue_offset)
    for queue_id, offsets in queues.items():
        for index, offset in enumerate(offsets):
            if index != offset:
                words = f"queue {queue_id} is not dense: record {index} has offset {offset}"
                yield Finding("queue not dense", words)
                break


def _judge_time(puts: Sequence[Put], log: Sequence[Stored]) -> Iterable[str]:
    """Check that a put that began after an answer is stored behind the answered put."""
    held = stored_by_name(log)
    by_queue: dict[int, list[tuple[Put, int]]] = defaultdict(list)
    for put in puts:
        found = held.get(put.name, [])
        if len(found) == 1 and not put.retries:
            place = found[0].place
            by_queue[place.queue_id].append((put, place.queue_offset))
    for queue_id, stored in by_queue.items():
        ended = [
            (put.ended_s, offset, put.name)
            for put, offset in stored
            if put.outcome == "acknowledged"
        ]
        heapq.heapify(ended)
        newest, newest_name = -1, ""
        for put, offset in sorted(stored, key=lambda one: one[0].began_s):
            while ended and ended[0][0] < put.began_s:
                _, before, name = heapq.heappop(ended)
                if before > newest:
                    newest, newest_name = before, name
            if offset < newest:
                yield (
                    f"{put.name} began after the answer to {newest_name} and is before it in "
                    f"queue {queue_id}: {offset}, {newest}"
                )


def _judge_reads(reads: Sequence[Read], log: Sequence[Stored]) -> Iterable[str]:
    held = {(one.place.queue_id, one.place.queue_offset): one.name for one in log}
    for read in reads:
        there = held.get((read.queue_id, read.queue_offset))
        if there != read.name:
            yield (
                f"{read.client} read {read.name} at offset {read.queue_offset} of queue "
                f"{read.queue_id}, where the log has {there or 'nothing'}"
            )


def _judge_strict_readers(reads: Sequence[Read], strict: set[str]) -> Iterable[str]:
    next_offset: dict[tuple[str, int], int] = {}
    for read in reads:
        if read.client not in strict:
            continue
        key = read.client, read.queue_id
        expected = next_offset.get(key, 0)
        if read.queue_offset != expected:
            yield (
                f"{read.client} was given offset {read.queue_offset} of queue {read.queue_id} "
                f"after {expected - 1}"
            )
        next_offset[key] = read.queue_offset + 1


def _judge_progress(commits: Sequence[Commit], looks: Sequence[Look]) -> Iterable[str]:
    commits_of: dict[str, list[Commit]] = defaultdict(list)
    looks_of: dict[str, list[Look]] = defaultdict(list)
    for commit in commits:
        commits_of[commit.key].append(commit)
    for look in looks:
        looks_of[look.key].append(look)
    for key, told in looks_of.items():
        yield from _judge_key(key, commits_of[key], told)


def _judge_key(key: str, commits: Sequence[Commit], looks: Sequence[Look]) -> Iterable[str]:
    known = [(one.ended_s, one.value) for one in commits if one.acknowledged]
    known += [(look.ended_s, look.value) for look in looks]
    asked = sorted((one.began_s, one.value) for one in commits)
    heapq.heapify(known)
    least = -1
    for look in sorted(looks, key=lambda one: one.began_s):
        while known and known[0][0] < look.began_s:
            least = max(least, heapq.heappop(known)[1])
        if look.value < least:
            yield f"{key} was {least}, then {look.value} at {look.member}"
        count = bisect.bisect_right(asked, (look.ended_s, math.inf))
        most = asked[count - 1][1] if count else 0
        if commits and look.value > most:
            yield f"{key} is {look.value} at {look.member}, and {most} was the most asked for"


def _judge_topics(changes: Sequence[TopicChange], topics: Mapping[str, set[str]]) -> Iterable[str]:
    newest: dict[str, TopicChange] = {}
    for change in changes:
        # One whose outcome is unknown may happen, or not: it spoils what was known.
        newest[change.topic] = change
    for change in newest.values():
        for member, names in topics.items():
            if change.acknowledged and (change.topic in names) is not change.made:
                what = "made, and is not there" if change.made else "deleted, and is there"
                yield f"topic {change.topic} was {what} at {member}"
