"""Arithmetic of majorities (Raft 5.2, 5.3)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping


class VoteOutcome(enum.Enum):
    """Result of the votes counted so far."""

    PENDING = "PENDING"
    WON = "WON"
    LOST = "LOST"


def majority(count: int) -> int:
    """Return the size of a majority of `count` voters."""
    return count // 2 + 1


def reached_by_majority(values: list[int]) -> int:
    """Return the largest value that a majority has reached; `values` has one per voter. HOT."""
    assert values, "no voters"
    needed = majority(len(values))
    reached = min(values)
    # Groups are small: to count takes less than to sort.
    for value in values:
        if value > reached:
            count = 0
            for other in values:
                if other >= value:
                    count += 1
            if count >= needed:
                reached = value
    return reached


def vote_outcome(votes: Mapping[str, bool], voters: Collection[str]) -> VoteOutcome:
    """Count the votes of `voters`; votes of other members do not count (thesis 4.2.1)."""
    needed = majority(len(voters))
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    rejected = sum(1 for voter in voters if votes.get(voter) is False)
    if granted >= needed:
        return VoteOutcome.WON
    return VoteOutcome.LOST if rejected > len(voters) - needed else VoteOutcome.PENDING
