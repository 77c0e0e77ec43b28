"""Metrics of a member of a DLEDGER group: role, term, offsets, followers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trioha.broker.put_message import PutPipeline
from trioha.dledger.ready import Role
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.metrics_families import Families, one
from trioha.services.node.metrics import wait_sample

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_OFFSETS = {
    "committed": "What is on the disks of a majority, for good.",
    "held": "What is on this member's disk.",
    "end": "Where this member's log ends.",
}


def raft_families(
    families: Families,
    status: Mapping[str, Any],
    pipeline: PutPipeline,
    counts: EventCounts,
    *,
    serving: bool,
) -> Iterator[Metric]:
    """Return the families, as the member knows its state now."""
    gauge = families.gauge
    yield gauge(
        "trioha_raft_role",
        "1 for the role this member has, 0 for the others.",
        [((role.value.lower(),), float(status["role"] == role.value)) for role in Role],
        "role",
    )
    yield gauge("trioha_raft_serving", "1 while clients may write here.", one(float(serving)))
    yield gauge("trioha_raft_term", "The newest term this member knows of.", one(status["term"]))
    yield gauge(
        "trioha_raft_has_leader",
        "1 while this member knows the leader, itself included.",
        one(float(bool(status["leader_id"]))),
    )
    for name, text in _OFFSETS.items():
        if (offset := status.get(f"{name}_offset")) is not None:  # it has not begun
            yield gauge(f"trioha_raft_{name}_offset_bytes", text, one(offset))
    yield gauge(
        "trioha_raft_impaired",
        "1 for a copy without a vote: it may have forgotten a promise.",
        one(float(status["impaired"])),
    )
    yield from _follower_families(status, families)
    yield families.counter(
        "trioha_raft_elections", "Rounds in which this member stood.", one(status["elections"])
    )
    yield families.counter(
        "trioha_raft_refused",
        "Peers that were turned away: another group, another peer list, no proof.",
        one(counts["raft_refused"]),
    )
    yield families.histogram(
        "trioha_raft_commit_wait_seconds",
        "How long puts waited for a majority.",
        [wait_sample(pipeline)],
    )


def _follower_families(status: Mapping[str, Any], families: Families) -> Iterator[Metric]:
    """Return a leader's view of its followers; nothing for other members."""
    rows = status["followers"]
    yield families.gauge(
        "trioha_raft_gap_bytes",
        "Bytes of the leader's log that a follower does not have on disk.",
        [((row["member_id"],), row["gap_bytes"]) for row in rows],
        "member",
    )
    yield families.gauge(
        "trioha_raft_follower_silent_seconds",
        "How long ago the leader heard the follower last.",
        [((row["member_id"],), row["heard_age_ms"] / 1000) for row in rows],
        "member",
    )
