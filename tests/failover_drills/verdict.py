"""Judges the history of a set of members by what clients were told and what the logs hold.

What it demands says nothing of how the members agree on a master:

* every message that was acknowledged with SEND_OK is in the log, at the place that was told;
* no queue offset was told twice with SEND_OK, and queues are dense;
* the terms of two masters do not overlap: after the first SEND_OK of an epoch no send that begins
  is acknowledged in an older epoch, and within one epoch only one member acknowledges;
* a commit that was acknowledged and that a slave holds is what every master tells afterwards, and
  no member that has told it ever tells less.

The epoch of an acknowledged message is that of its place in the log, by the master's history. Of a
message that was lost it is the epoch in which the member that was asked said to be master.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
from failover_drills.probes import Asked, Commit, Told
from support.histories.commitlog import stored_messages
from support.histories.judge import LOG_KINDS, judge_log, stored_by_name
from support.histories.messages import Stored
from support.histories.senders import Attempt
from support.processes.rig import Node

from trioha.ha.epochs import EpochHistory
from trioha.ha.mastership import FILE_NAME, kept_history
from trioha.store.two_slot_file import TwoSlotFile

FINDINGS_SHOWN = 8


@attrs.frozen
class Ack:
    """One SEND_OK, and in which term it was given."""

    name: str
    began_s: float
    ended_s: float
    epoch: int
    stored_at: str
    """Address of the member that stored it; "" where the client was not told."""


@attrs.frozen
class Verdict:
    """The findings by kind. A kind of which nothing was found has an empty list."""

    acknowledged: int
    findings: dict[str, list[str]]
    told_twice_by_retries: int
    """Messages that a client stored twice by sending again: at least once, and no fault."""

    def check(self) -> None:
        """Errors: AssertionError with the first findings of every kind."""
        lines = []
        for kind, found in self.findings.items():
            if found:
                lines.append(f"{kind}: {len(found)} of {self.acknowledged} acknowledged")
                lines += [f"  {line}" for line in found[:FINDINGS_SHOWN]]
        assert not lines, "\n".join(["", *lines])

    def counts(self) -> dict[str, int]:
        return {kind: len(found) for kind, found in self.findings.items()}


def judge(
    master: Node,
    topic: str,
    attempts: Sequence[Attempt],
    commits: Iterable[Commit],
    told: Iterable[Told],
) -> Verdict:
    """Judge a drill by the log of `master`. All nodes are stopped."""
    assert master.store is not None, f"{master.name} has no store"
    log = list(stored_messages(master.commitlog, topic))
    held = stored_by_name(log)
    acknowledged = [one for one in attempts if one.is_ok]
    acks = list(_acks(acknowledged, held, history_of(master.store)))
    findings: dict[str, list[str]] = {kind: [] for kind in LOG_KINDS}
    for finding in judge_log([one.put for one in attempts], log):
        findings[finding.kind].append(finding.words)
    return Verdict(
        len(acknowledged),
        {
            **findings,
            "queue offset given twice": list(_given_twice(acknowledged)),
            "two masters at a time": list(overlapping_terms(acks)),
            "offset went back": list(regressions(commits, told)),
        },
        sum(len(found) > 1 for found in held.values()),
    )


def history_of(store: Path) -> EpochHistory:
    """The epochs of a stopped node."""
    payload = TwoSlotFile(store / FILE_NAME).payload
    assert payload is not None, f"{store} holds no epochs"
    return kept_history(payload)


def _acks(
    acknowledged: Iterable[Attempt], held: Mapping[str, list[Stored]], history: EpochHistory
) -> Iterable[Ack]:
    for one in acknowledged:
        stored_at = one.stored_at if isinstance(one, Asked) else ""
        if one.name in held:
            epoch = history.epoch_at(held[one.name][0].place.phy_offset)
        elif isinstance(one, Asked) and one.epoch is not None:
            epoch = one.epoch
        else:
            continue  # lost, in an unknown term
        yield Ack(one.name, one.began_s, one.ended_s, epoch, stored_at)


def overlapping_terms(acks: Iterable[Ack]) -> Iterable[str]:
    """Sends that were acknowledged in a term that was over."""
    terms: dict[int, list[Ack]] = defaultdict(list)
    for ack in acks:
        terms[ack.epoch].append(ack)
    newer: Ack | None = None
    for _, term in sorted(terms.items(), reverse=True):
        if newer is not None:
            for ack in term:
                if ack.began_s > newer.ended_s:
                    yield (
                        f"{ack.name} of epoch {ack.epoch} at {ack.stored_at or 'unknown'} was sent "
                        f"{ack.began_s - newer.ended_s:.3f} s after {newer.name} of epoch "
                        f"{newer.epoch} at {newer.stored_at or 'unknown'} was acknowledged"
                    )
        first = min(term, key=lambda ack: ack.ended_s)
        if newer is None or first.ended_s < newer.ended_s:
            newer = first
        members = sorted({ack.stored_at for ack in term if ack.stored_at})
        if len(members) > 1:
            counts = {at: sum(ack.stored_at == at for ack in term) for at in members}
            yield f"epoch {term[0].epoch} was acknowledged by {counts}"


def regressions(commits: Iterable[Commit], told: Iterable[Told]) -> Iterable[str]:
    """Find the answers that took a group back.

    A master's answer is below what was acknowledged, or any member's below its own of before.
    """
    safe: dict[int, list[Commit]] = defaultdict(list)
    for commit in commits:
        safe[commit.queue_id].append(commit)
    by_queue: dict[int, list[Told]] = defaultdict(list)
    for one in told:
        by_queue[one.queue_id].append(one)
    for queue_id, answers in by_queue.items():
        pending = sorted(safe[queue_id], key=lambda commit: commit.ended_s, reverse=True)
        acknowledged = -1
        by_member: dict[int, int] = {}
        for one in sorted(answers, key=lambda one: one.began_s):
            while pending and pending[-1].ended_s < one.began_s:
                acknowledged = max(acknowledged, pending.pop().offset)
            before = by_member.get(one.home_id, -1)
            least = before if one.epoch is None else max(before, acknowledged)
            if one.offset < least:
                yield (
                    f"queue {queue_id}: member {one.home_id} told {one.offset} at {one.began_s:.3f}"
                    f" as {'slave' if one.epoch is None else f'master of epoch {one.epoch}'}; "
                    f"{before} by itself, {acknowledged} acknowledged"
                )
            by_member[one.home_id] = max(before, min(one.offset, acknowledged))


def _given_twice(acknowledged: Iterable[Attempt]) -> Iterable[str]:
    seen: dict[tuple[int, int], Attempt] = {}
    for one in acknowledged:
        if one.queue_id is None or one.queue_offset is None:
            continue
        other = seen.setdefault((one.queue_id, one.queue_offset), one)
        if other is not one:
            yield f"queue {one.queue_id} at {one.queue_offset}: {_words(other)} and {_words(one)}"


def _words(one: Attempt) -> str:
    where = f" at {one.stored_at}" if isinstance(one, Asked) else ""
    return f"{one.name}{where} ({one.status}, {one.ended_s:.3f})"
