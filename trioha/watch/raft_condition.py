"""The condition of a member of a Raft group, and of the group: one word, one sentence.

A member's condition comes from its own answer and from its leader's, which has each follower's
offsets and the time since it was heard. If both differ, the worse counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.watch.level import Condition, Level
from trioha.watch.raft import RaftFollower, RaftState
from trioha.words import age_in_words, count_in_words, size_in_words

STALLED_S = 3.0
"""Seconds after which waiting puts are answered with "outcome unknown"."""
CURE_OF_IMPAIRED = "remove it and add it again, empty, under a new dLegerSelfId"
_ELECTING = ("PRE_CANDIDATE", "CANDIDATE")
_PHASES = {
    "COMPARE": "its log is being compared with the leader's",
    "TRUNCATE": "it cuts off what the leader's log does not have",
    "INSTALL_SNAPSHOT": "it copies the log from the leader's first byte on",
}


@attrs.frozen
class Seen:
    """A leader's view of one follower."""

    leader: RaftState
    follower: RaftFollower | None
    """Leader's row on the member; None if the leader does not know it: it is no member."""


def condition_of_member(own: RaftState, seen: Seen | None) -> Condition:
    """Return the condition of a member that answers.

    `seen` is None for the leader, and while there is no leader.
    """
    if own.failed:
        return Condition(Level.BAD, "failed", f"its store cannot be trusted: {own.failed}")
    if own.impaired:
        why = f"a copy that neither votes nor stands; {CURE_OF_IMPAIRED}"
        return Condition(Level.BAD, "impaired", why)
    if own.bootstrap:
        return Condition(Level.WARN, "waiting", own.bootstrap)
    if own.is_leader:
        return _of_leader(own)
    if own.role in _ELECTING:
        why = f"stands for election in term {own.term}; there is no leader"
        return Condition(Level.BAD, "electing", why)
    if seen is None:
        named = f"; this member follows {own.leader_id}" if own.leader_id else ""
        return Condition(Level.BAD, "no leader", f"no leader answers{named}")
    return _of_follower(own, seen)


def _of_leader(own: RaftState) -> Condition:
    if own.voters and own.voters_present < own.quorum:
        why = f"hears {own.voters_present} of {len(own.voters)} voters, itself included"
        return Condition(Level.BAD, "cut off", f"{why}; it steps down")
    if own.is_serving is False:
        why = f"leads term {own.term} and serves once a majority has its first record"
        return Condition(Level.WARN, "opening", why)
    if own.writable is False:
        return Condition(Level.BAD, "read only", "its disk is too full to take writes")
    if (own.uncommitted_age_s or 0.0) >= STALLED_S:
        age = age_in_words(own.uncommitted_age_s)
        return Condition(Level.BAD, "stalled", f"nothing has been committed for {age}")
    if own.transfer_target:
        return Condition(Level.WARN, "hands over", f"hands over to {own.transfer_target}")
    return Condition(Level.GOOD, "leads")


def _of_follower(own: RaftState, seen: Seen) -> Condition:
    leader, row = seen.leader, seen.follower
    if row is None:
        why = f"the leader {leader.member_id} does not count it as a member; stop it, or add it"
        return Condition(Level.WARN, "no member", why)
    if leader.is_present(row) is False:
        why = f"its leader has not heard it for {age_in_words(row.heard_age_s)}"
        return Condition(Level.BAD, "unheard", why)
    if row.phase in _PHASES:
        word = "copying" if row.phase == "INSTALL_SNAPSHOT" else "comparing"
        return Condition(Level.WARN, word, _PHASES[row.phase])
    if own.writable is False:
        return Condition(Level.BAD, "disk full", "it appends nothing more: its disk is full")
    if row.keeps_up is False:
        return Condition(Level.WARN, "behind", f"{size_in_words(row.gap_bytes)} behind")
    if row.keeps_up is None:
        return Condition(Level.UNKNOWN, "unknown", "no node tells whether it keeps up")
    return Condition(Level.GOOD, "in sync", "" if row.is_voter is not False else "a learner")


def condition_of_group(members: Sequence[RaftState]) -> Condition:
    """Return the condition of a group, from the members that answer."""
    leader = leader_of(members)
    if leader is None:
        return Condition(Level.BAD, "no leader", _why_no_leader(members))
    present, voters = leader.voters_present, len(leader.voters)
    words = f"{present}/{voters} voters"
    own = _of_leader(leader)
    if own.level > Level.GOOD:
        return Condition(own.level, words, own.why)
    if present == leader.quorum and voters > 1:
        spare = "the loss of one more stops writes"
        return Condition(Level.WARN if voters > 2 else Level.GOOD, words, spare)
    if present < voters:
        missing = count_in_words(voters - present, "voter")
        return Condition(Level.WARN, words, f"{missing} not heard")
    return Condition(Level.GOOD, words)


def leader_of(members: Sequence[RaftState]) -> RaftState | None:
    """Return the leader of the newest term; one of an older term is deposed and may not know it."""
    leaders = [one for one in members if one.is_leader]
    newest = max((one.term or 0 for one in members), default=0)
    leader = max(leaders, key=lambda one: one.term or 0, default=None)
    if leader is None or ((leader.term or 0) < newest and not leader.is_serving):
        return None
    return leader


def is_removed(leader: RaftState | None, address: str, *, registered: bool) -> bool:
    """Return whether an operator has removed this former member from the group."""
    if leader is None or registered or not leader.addresses:
        return False
    return address not in {leader.addresses.get(name) for name in leader.members}


def _why_no_leader(members: Sequence[RaftState]) -> str:
    voters = max((one.voters for one in members), key=len, default=())
    answering = {one.member_id for one in members if not one.impaired and not one.failed}
    able = len(answering & set(voters))
    if voters and able < len(voters) // 2 + 1:
        return (
            f"{able} of {len(voters)} voters answer and may vote, {len(voters) // 2 + 1} are"
            " needed; nothing can be sent to it"
        )
    return "nothing can be sent to it until one is elected"
