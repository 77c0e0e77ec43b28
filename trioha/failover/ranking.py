"""The ranking of candidates for promotion, and the loss that each would cost.

Theory of operation. Candidates are ranked as Raft compares logs (Raft 5.4.1): by the newest epoch
in the log, then by its length. A log of an older epoch may be longer and still lack what was
acknowledged since. Of equal logs the one with more changes of metadata is first: a link carries
both in one order.

The loss window is the part of the old master's log that the candidate lacks. While the old master
answers, the end of its log is known exactly; otherwise its log ended at the furthest end that it
announced to any slave, or beyond. Under SYNC_MASTER every acknowledged message is on two members.
So if all members but one answer, and none of them lost power since it was last up to date, a
promotion of the best of them loses no acknowledged message (`trioha.ha.quorum`).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.failover.facts import Make, ReplicaFacts, SetFacts
from trioha.ha.mastership import Standing
from trioha.ha.quorum import MISSING_MAX


@attrs.frozen
class Candidate:
    """A member with its rank."""

    replica: ReplicaFacts
    rank: int
    """1 is the best; 0 means that the member cannot be promoted."""
    reason: str
    """Reason of the rank, in words."""

    @property
    def eligible(self) -> bool:
        return self.rank > 0


@attrs.frozen
class LossWindow:
    """The part of the log that a promotion gives up."""

    bytes: int | None
    """Lower bound of the lost bytes; None if no member knows where the master's log ended."""
    exact: bool
    """The master itself has told the end of its log."""
    acknowledged: bool
    """Some of the lost bytes may have been acknowledged to a client."""

    @property
    def is_none(self) -> bool:
        """No acknowledged message is lost."""
        return not self.acknowledged

    def exceeds(self, agreed: LossWindow) -> bool:
        """Return whether more would be lost than `agreed`; unacknowledged bytes do not count."""
        if self.is_none or agreed.is_none:
            return not self.is_none
        if self.bytes is None or agreed.bytes is None:
            return agreed.bytes is not None
        return self.bytes > agreed.bytes

    def __str__(self) -> str:
        if self.is_none:
            rest = f"; {self.bytes} bytes were never acknowledged" if self.bytes else ""
            return f"no acknowledged message{rest}"
        if self.bytes is None:
            return "unknown: no member knows where the master's log ended"
        return f"{'' if self.exact else 'at least '}{self.bytes} bytes of log"


def rank_candidates(facts: SetFacts) -> tuple[Candidate, ...]:
    """Rank every member but a live master: the best first, those that cannot be promoted last."""
    able: list[ReplicaFacts] = []
    unable: list[Candidate] = []
    for replica in facts.replicas:
        if replica.standing is Standing.MASTER:
            continue
        why = _obstacle(replica)
        if why:
            unable.append(Candidate(replica, 0, why))
        else:
            able.append(replica)
    able.sort(key=_merit, reverse=True)
    best = able[0] if able else None
    ranked = [
        Candidate(replica, rank, _reason(replica, best)) for rank, replica in enumerate(able, 1)
    ]
    return (*ranked, *unable)


def loss_of(facts: SetFacts, target: ReplicaFacts) -> LossWindow:
    """Return the loss of promoting `target`, which must be a member that answers."""
    assert target.max_phy_offset is not None, f"{target.name} has no max_phy_offset"
    end = target.max_phy_offset
    slaves = [one for one in facts.replicas if one.standing is Standing.SLAVE]
    # An old master's end counts only if it was master of the newest epoch and still has all of it.
    newest = max((one.epoch or 0 for one in facts.replicas), default=0)
    told = [
        one.max_phy_offset
        for one in facts.replicas
        if one.standing is not Standing.SLAVE
        and one.max_phy_offset is not None
        and one.level_since_start is not False
        and (one.log_epoch is None or one.log_epoch == newest)
    ]
    if told:
        lost = max(0, max(told) - end)
        return LossWindow(lost, exact=True, acknowledged=lost > 0)
    others = [one.max_phy_offset or 0 for one in slaves]
    announced = [one.announced_offset for one in slaves if one.announced_offset is not None]
    known = max([*others, *announced], default=None) if announced else None
    if target.level_since_start is False:
        # No live member may hold what the target acknowledged before its machine lost power.
        known = None
    lost_bytes = None if known is None else max(0, known - end)
    if _all_acks_are_here(facts, target):
        return LossWindow(lost_bytes, exact=False, acknowledged=False)
    return LossWindow(lost_bytes, exact=False, acknowledged=True)


def _all_acks_are_here(facts: SetFacts, target: ReplicaFacts) -> bool:
    """Return whether the target holds all that a SYNC_MASTER has acknowledged."""
    if not target.sync or target.level_since_start is False:
        return False
    if any(one.standing is Standing.SLAVE and is_ahead(one, target) for one in facts.replicas):
        return False
    return len(missing_logs(facts)) <= MISSING_MAX


def missing_logs(facts: SetFacts) -> list[ReplicaFacts]:
    """Return the members whose logs may lack what they acknowledged; the lost master first."""
    lost_master = facts.lost_master()
    missing = [one for one in facts.replicas if not one.answers or one.level_since_start is False]
    return sorted(missing, key=lambda one: one is not lost_master)


def _obstacle(replica: ReplicaFacts) -> str:
    """Return why this member cannot be promoted; empty if it can."""
    if not replica.answers:
        return f"does not answer: {replica.error}"
    if replica.make is Make.JAVA:
        return "is RocketMQ's own broker: its role is fixed when it starts"
    if replica.make is not Make.TRIOHA or replica.standing is None:
        return "does not tell its role"
    if replica.log_epoch is None or replica.max_phy_offset is None:
        return "is of a version that knows no epochs"
    return ""


def _merit(replica: ReplicaFacts) -> tuple[int, int, int, int]:
    """Return the sort key of a candidate: larger is better; the lower id wins a draw."""
    position = replica.metadata_position
    return (
        replica.log_epoch or 0,
        replica.max_phy_offset or 0,
        -1 if position is None else position,
        -replica.home_id,
    )


def _reason(replica: ReplicaFacts, best: ReplicaFacts | None) -> str:
    at = f"epoch {replica.log_epoch}, offset {replica.max_phy_offset}"
    if best is None or best is replica:
        return f"{at}: the furthest log"
    if best.log_epoch != replica.log_epoch:
        return f"{at}: of an older epoch than {best.log_epoch}"
    behind = (best.max_phy_offset or 0) - (replica.max_phy_offset or 0)
    if behind:
        return f"{at}: {behind} bytes behind the best"
    if is_ahead(best, replica):
        return f"{at}: without the last changes of topics, groups or offsets"
    return f"{at}: as far as the best"


def is_ahead(one: ReplicaFacts, other: ReplicaFacts) -> bool:
    """Return whether `one` may hold log or metadata that `other` lacks."""
    return _merit(one)[:3] > _merit(other)[:3]


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the first candidate if it can be promoted."""
    return candidates[0] if candidates and candidates[0].eligible else None
