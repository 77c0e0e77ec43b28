"""Majorities: pure arithmetic."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping


class VoteOutcome(enum.Enum):
    """What the votes so far amount to."""

    PENDING = "PENDING"
    WON = "WON"
    LOST = "LOST"


def majority(count: int) -> int:
    """How many of `count` voters are a majority."""
    return count // 2 + 1


def reached_by_majority(values: Iterable[int]) -> int:
    """The largest value that a majority has reached, each voter counted once."""
    ordered = sorted(values, reverse=True)
    assert ordered, "no voters"
    return ordered[majority(len(ordered)) - 1]


def vote_outcome(votes: Mapping[str, bool], voters: Collection[str]) -> VoteOutcome:
    """Votes of others than the voters do not count."""
    needed = majority(len(voters))
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    rejected = sum(1 for voter in voters if votes.get(voter) is False)
    if granted >= needed:
        return VoteOutcome.WON
    return VoteOutcome.LOST if rejected > len(voters) - needed else VoteOutcome.PENDING
