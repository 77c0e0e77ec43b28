"""The condition of a replica or a set, in one word and one sentence.

A condition describes the present, without thresholds; those belong to the alert rules. Of all
conditions that hold, only the worst is returned.
"""

from __future__ import annotations

from trioha.watch.level import Condition as Condition
from trioha.watch.level import Level as Level
from trioha.watch.raft_condition import (
    Seen,
    condition_of_group,
    condition_of_member,
    is_removed,
)
from trioha.watch.replica import Replica
from trioha.watch.replica_set import ReplicaSet
from trioha.words import age_in_words, size_in_words

LATE_INTERVALS = 2
"""Missed heartbeats after which a link is late; then the journal has ha_heartbeat_late, too."""
QUIET_INTERVALS = 3


def condition_of(replica: Replica) -> Condition:
    """Return the present condition of a replica."""
    silent = _of_silent(replica)
    if silent is not None:
        return silent
    if replica.raft is not None:
        return _of_member(replica)
    if replica.standing == "FENCED":
        why = f"takes no writes: {replica.fenced_by or 'a newer epoch is known'}"
        return Condition(Level.BAD, "fenced", why)
    return _of_master(replica) if replica.is_master else _of_slave(replica)


def condition_of_set(one: ReplicaSet) -> Condition:
    """Return the condition of a set: whether it takes writes, and how many slaves are in sync."""
    if one.is_raft:
        return condition_of_group(one.raft_states)
    masters = one.masters
    if len(masters) > 1:
        names = " and ".join(master.address for master in masters)
        return Condition(Level.BAD, "two masters", f"{names} both say that they are master")
    slaves = [replica for replica in one.replicas if not replica.is_master]
    level = sum(bool(replica.in_sync) for replica in slaves)
    if not masters:
        return _of_headless(one)
    words = f"{level}/{len(slaves)} in sync" if slaves else "no slave"
    worst, why = _worst_of(one.replicas)
    if not level and masters[0].role == "SYNC_MASTER":
        return Condition(
            Level.BAD, words, "SYNC_MASTER without a slave in sync: sends get SLAVE_NOT_AVAILABLE"
        )
    return Condition(worst, words, why)


def _worst_of(replicas: tuple[Replica, ...]) -> tuple[Level, str]:
    """Return the worst level among the members, and which member has it for what reason."""
    worst, why = Level.GOOD, ""
    for replica in replicas:
        found = condition_of(replica)
        if found.level > worst:
            worst, why = found.level, f"{replica.own_id}: {found.why}" if found.why else ""
    return worst, why


def _of_headless(one: ReplicaSet) -> Condition:
    """Return the condition of a set of which no member says that it is master."""
    for replica in one.replicas:
        if replica.answer.is_rejected:
            why = f"its nodes do not tell which of them is master: {replica.answer.error}"
            return Condition(Level.WARN, "unknown", why)
    return Condition(Level.BAD, "no master", "nothing can be sent to it")


def _of_silent(replica: Replica) -> Condition | None:
    """Return the condition of a node that has not answered; None if it has."""
    answer = replica.answer
    if not answer.error:
        if answer.wall_ms is None:
            return Condition(Level.UNKNOWN, "asking", "has not answered yet")
        return None
    if answer.is_rejected:
        return Condition(Level.WARN, "rejects us", f"it answers with an error: {answer.error}")
    since = age_in_words(answer.error_age_s)
    why = f"no answer for {since}: {answer.error}"
    leader = replica.master.raft if replica.master is not None else None
    if is_removed(leader, replica.address, registered=replica.registered):
        return Condition(Level.UNKNOWN, "removed", "the group goes on without it")
    if not replica.registered:
        return Condition(Level.BAD, "absent", f"no longer registered; {why}")
    return Condition(Level.BAD, "unreachable", why)


def _of_member(replica: Replica) -> Condition:
    """Return the condition of a member of a Raft group, from its own answer and its leader's."""
    own, master = replica.raft, replica.master
    assert own is not None, f"{replica.address} is of no group"
    seen = None
    if master is not None and master.raft is not None and not master.answer.error:
        seen = Seen(master.raft, master.raft.follower(own.member_id))
    found = condition_of_member(own, seen)
    if found.level > Level.GOOD:
        return found
    if replica.answer.is_stale:
        return _stale(replica)
    if not replica.registered:
        level = Level.BAD if replica.is_master else Level.WARN
        return Condition(level, "unlisted", "no name server knows it")
    return found


def _of_master(replica: Replica) -> Condition:
    if not replica.registered:
        return Condition(Level.BAD, "unlisted", "no name server routes to it")
    if replica.writable is False:
        return Condition(Level.BAD, "read only", "its disk is too full to take writes")
    if replica.answer.is_stale:
        return _stale(replica)
    return Condition(Level.GOOD, "writable" if replica.writable else "master")


def _of_slave(replica: Replica) -> Condition:
    link, own = replica.link, replica.follows
    if link is None and own is not None and own.state not in (None, "TRANSFER"):
        why = own.last_error or "it knows no master"
        return Condition(Level.BAD, "unlinked", f"follows no master (state {own.state}): {why}")
    if link is None and replica.is_trioha and replica.master is not None:
        return Condition(Level.BAD, "unlinked", "its master has no link to it")
    age_s, interval_s = replica.heard_age_s, replica.heartbeat_interval_s
    if age_s is not None and interval_s and age_s > LATE_INTERVALS * interval_s:
        limit = age_in_words(replica.housekeeping_s)
        why = f"no heartbeat for {age_in_words(age_s)}; the link closes at {limit}"
        level = Level.BAD if age_s > QUIET_INTERVALS * interval_s else Level.WARN
        return Condition(level, "no heartbeat", why)
    if link is not None and link.doubt:
        return Condition(Level.WARN, "doubtful", link.doubt)
    if link is not None and link.in_sync is False:
        behind = f"{size_in_words(replica.gap_bytes)} behind"
        if replica.gap_s:
            behind += f", {age_in_words(replica.gap_s)} of messages"
        return Condition(Level.WARN, "behind", behind)
    if replica.answer.is_stale:
        return _stale(replica)
    if not replica.registered:
        return Condition(Level.WARN, "unlisted", "no name server knows it")
    if link is not None and link.in_sync:
        return Condition(Level.GOOD, "in sync")
    return Condition(Level.UNKNOWN, "unknown", "no node tells whether it is in sync")


def _stale(replica: Replica) -> Condition:
    return Condition(
        Level.UNKNOWN, "stale", f"its numbers are {age_in_words(replica.answer.age_s)} old"
    )
