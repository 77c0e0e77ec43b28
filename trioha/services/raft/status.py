"""A member's own view of its group, for people and programs: `status["raft"]` of a node."""

from __future__ import annotations

import attrs

from trioha.dledger.membership import Configuration
from trioha.dledger.status import FollowerStatus, RaftStatus
from trioha.services.raft.views import ToldMember

_FORGOTTEN = (
    "this member may have forgotten a vote (its store was lost or damaged): it is a copy without "
    "a vote; remove it with `trioha raft remove` and add it again under a new dLegerSelfId"
)


def member_status(member: ToldMember) -> dict[str, object]:
    """Return the status in plain msgpack values; without offsets and lease before it takes part."""
    setup, settings = member.setup, member.setup.settings
    status: dict[str, object] = {
        "member_id": member.member_id,
        "group": setup.door.group,
        "cluster": setup.door.cluster,
        "secret": bool(setup.secret),
        "heartbeat_interval_ms": settings.heartbeat_interval_ms,
        "election_timeout_min_ms": settings.election_timeout_min_ms,
        "election_timeout_max_ms": settings.election_timeout_max_ms,
        "replicated_in_memory": settings.replicated_in_memory,
        "lease_reads": settings.lease_reads,
        "addresses": member.addresses(),
        "elections": member.elections,
        "uncommitted_age_ms": member.uncommitted_age_ms,
        "bootstrap": member.bootstrap.waits_for,
        "refusals": member.peers.refusals.plain(),
        "links": member.peers.links.plain(),
    }
    node = member.node
    if node is None:
        return status | {
            "role": member.role.value,
            "term": 0,
            "leader_id": "",
            "is_serving": False,
            "impaired": False,
            "writable": True,
            "failed": "",
            "transfer_target": "",
            "transfer_error": "",
            "configuration": {"voters": sorted(setup.founders), "learners": []},
            "followers": [],
        }
    if member.member_id not in node.state.configuration.members:
        status["bootstrap"] = (
            f"{member.member_id} is no member of {setup.door.group}: `trioha raft add` at the "
            "leader makes it one; if it was removed, stop it"
        )
    elif node.state.impaired:
        status["bootstrap"] = member.bootstrap.impaired or _FORGOTTEN
    return status | _plain(node.status()) | {"is_serving": member.is_serving}


def _plain(raft: RaftStatus) -> dict[str, object]:
    fields = attrs.asdict(raft, recurse=False)
    fields["role"] = raft.role.value
    fields["configuration"] = _plain_configuration(raft.configuration)
    fields["followers"] = [_plain_follower(one) for one in raft.followers]
    return fields


def _plain_configuration(configuration: Configuration) -> dict[str, object]:
    return {"voters": list(configuration.voters), "learners": list(configuration.learners)}


def _plain_follower(follower: FollowerStatus) -> dict[str, object]:
    return attrs.asdict(follower) | {"phase": follower.phase.name}
