"""Part of `trioha ha status` on groups that elect their masters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trioha.cli.ha_terms import registered_id
from trioha.cli.raft_words import member_table, problems_of_group
from trioha.watch.replica_set import ReplicaSet
from trioha.watch.snapshot import ClusterSnapshot

Status = dict[str, Any]


def is_member(broker: Status) -> bool:
    """Return whether the broker says that it is in a DLEDGER group."""
    return isinstance(broker.get("raft"), dict)


def without_groups(brokers: Sequence[Status]) -> list[Status]:
    """Return the brokers of sets without a member that says it is in a DLEDGER group."""
    groups = {broker["name"] for broker in brokers if is_member(broker)}
    return [broker for broker in brokers if broker["name"] not in groups]


def groups_of(brokers: Sequence[Status]) -> tuple[ReplicaSet, ...]:
    """Return the DLEDGER groups among these statuses, members that do not answer included."""
    raw = {
        "at_wall_ms": 0,
        "namesrvs": [],
        "members": {
            broker["address"]: {
                "name": broker["name"],
                "cluster": "",
                "id": registered_id(broker),
                "registered": broker.get("registered", True),
            }
            for broker in brokers
        },
        "answers": {
            broker["address"]: {
                "status": {"value": broker, "wall_ms": 0, "error": broker.get("error") or ""}
            }
            for broker in brokers
        },
    }
    return tuple(one for one in ClusterSnapshot.of(raw).sets if one.is_raft)


def groups_in_words(brokers: Sequence[Status]) -> list[str]:
    groups = groups_of(brokers)
    return [member_table(groups)] if groups else []


def problems_of_groups(brokers: Sequence[Status]) -> list[str]:
    return [problem for one in groups_of(brokers) for problem in problems_of_group(one)]


def groups_without_leader(brokers: Sequence[Status]) -> list[str]:
    """Names of groups of which no member that answers leads and serves."""
    return [
        one.name
        for one in groups_of(brokers)
        if not any(state.is_leader and state.is_serving for state in one.raft_states)
    ]
