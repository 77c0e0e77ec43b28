"""Alert rules for groups that elect their masters, in addition to those for every set."""

from __future__ import annotations

from collections.abc import Iterator

from trioha.watch.raft_condition import CURE_OF_IMPAIRED, leader_of
from trioha.watch.rule import Reading, is_answering
from trioha.watch.snapshot import ClusterSnapshot
from trioha.words import age_in_words


def read_impaired(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.replicas:
        if one.raft is None:
            continue
        value = float(one.raft.impaired) if is_answering(one) else None
        text = (
            f"{one.full_name} ({one.raft.member_id}) neither votes nor stands; {CURE_OF_IMPAIRED}"
        )
        yield Reading("raft_impaired", one.full_name, value, text)


def read_no_spare(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.sets:
        leader = leader_of(one.raft_states)
        if leader is None or len(leader.voters) < 3:
            continue
        here = leader.voters_present
        text = (
            f"{one.name}: its leader hears {here} of {len(leader.voters)} voters, itself included:"
            " the loss of one more stops writes"
        )
        yield Reading("raft_no_spare", one.name, float(here <= leader.quorum), text)


def read_commit_stalled(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.sets:
        leader = leader_of(one.raft_states)
        if leader is None:
            continue
        age_s = leader.uncommitted_age_s
        text = f"{one.name}: nothing has been committed for {age_in_words(age_s)}, and puts wait"
        yield Reading("raft_commit_stalled", one.name, age_s, text)
