"""Groups that elect their masters, in tables, in sentences and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trioha.cli.output import age_in_words, size_in_words, table_of
from trioha.watch.condition import condition_of, condition_of_set
from trioha.watch.level import Level
from trioha.watch.raft_condition import leader_of
from trioha.watch.replica import Replica
from trioha.watch.replica_set import ReplicaSet
from trioha.watch.rule import is_answering

_REFUSALS_TOLD_S = 60.0


def groups_in_words(groups: Sequence[ReplicaSet]) -> str:
    """Tables for people, and a sentence for each problem."""
    if not groups:
        return "No DLEDGER group is registered with this name server."
    problems = [problem for one in groups for problem in problems_of_group(one)]
    said = "\n".join(f"! {problem}" for problem in problems) or "All is well."
    return "\n\n".join([group_table(groups), member_table(groups), said])


def group_table(groups: Sequence[ReplicaSet]) -> str:
    rows = []
    for one in groups:
        leader = leader_of(one.raft_states)
        rows.append(
            {
                "GROUP": one.name,
                "LEADER": leader and leader.member_id,
                "TERM": leader and leader.term,
                "SERVES": leader.is_serving if leader is not None else False,
                "COMMITTED": leader and leader.committed_offset,
                "VOTERS HEARD": leader and f"{leader.voters_present} of {len(leader.voters)}",
                "LEARNERS": ", ".join(leader.learners) if leader and leader.learners else None,
            }
        )
    return table_of(rows)


def member_table(groups: Sequence[ReplicaSet]) -> str:
    return table_of([_member_row(one, replica) for one in groups for replica in one.replicas])


def _member_row(one: ReplicaSet, replica: Replica) -> dict[str, object]:
    raft, link = replica.raft, replica.link
    return {
        "GROUP": one.name,
        "MEMBER": replica.member_id,
        "ROLE": replica.standing,
        "STATE": condition_of(replica).word,
        "ADDRESS": replica.address,
        "TERM": replica.epoch,
        "LOG BEGINS": raft and raft.begin_offset,
        "COMMITTED": raft and raft.committed_offset,
        "HELD": raft and raft.held_offset,
        "LOG ENDS": raft and raft.end_offset,
        "GAP": size_in_words(link.gap_bytes) if link is not None else "-",
        "HEARD": age_in_words(link.heard_age_s) if link is not None else "-",
    }


def problems_of_group(one: ReplicaSet) -> Iterator[str]:
    """Yield the problems of a group and its members."""
    whole = condition_of_set(one)
    if whole.level >= Level.WARN and whole.why:
        yield f"{one.name}: {whole.why}"
    for replica in one.replicas:
        who = f"{one.name} {replica.own_id} at {replica.address}"
        found = condition_of(replica)
        if found.level > Level.GOOD and found.why and found.why != whole.why:
            yield f"{who}: {found.why}"
        if replica.raft is None or not is_answering(replica):
            continue
        for refusal in replica.raft.refusals:
            if (refusal.age_s or 0.0) > _REFUSALS_TOLD_S:
                continue  # a peer that is still refused tries again every second
            ago = age_in_words(refusal.age_s)
            yield f"{who}: refused {refusal.peer} {ago} ago: {refusal.reason}"
        if replica.raft.transfer_error:
            yield f"{who}: the last transfer came to nothing: {replica.raft.transfer_error}"


def is_well(groups: Sequence[ReplicaSet]) -> bool:
    """Every group has a leader that serves, and every member that answers is as it should be."""
    for one in groups:
        if not any(state.is_leader and state.is_serving for state in one.raft_states):
            return False
        answering = [replica for replica in one.replicas if is_answering(replica)]
        if any(condition_of(replica).level >= Level.WARN for replica in answering):
            return False
    return True


def group_as_dict(one: ReplicaSet) -> dict[str, object]:
    """Return a group for ``-o json``: what was understood, and what each member said."""
    leader, whole = leader_of(one.raft_states), condition_of_set(one)
    return {
        "name": one.name,
        "cluster": one.cluster,
        "leader": None if leader is None else leader.member_id,
        "term": None if leader is None else leader.term,
        "serving": leader is not None and leader.is_serving is True,
        "committed_offset": None if leader is None else leader.committed_offset,
        "voters": [] if leader is None else list(leader.voters),
        "learners": [] if leader is None else list(leader.learners),
        "voters_heard": None if leader is None else leader.voters_present,
        "state": whole.word,
        "why": whole.why,
        "members": [_member_as_dict(replica) for replica in one.replicas],
    }


def _member_as_dict(replica: Replica) -> dict[str, object]:
    found, link, told = condition_of(replica), replica.link, replica.answer.value
    return {
        "member": replica.member_id,
        "id": replica.number,
        "address": replica.address,
        "registered": replica.registered,
        "role": replica.standing,
        "state": found.word,
        "why": found.why,
        "error": replica.answer.error or None,
        "gap_bytes": None if link is None else link.gap_bytes,
        "heard_age_s": None if link is None else link.heard_age_s,
        "raft": told.get("raft") if isinstance(told, dict) else None,
    }
