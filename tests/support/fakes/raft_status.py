"""A simulated DLEDGER group: the status that its members would report."""

from __future__ import annotations

from typing import Any

from support.fakes.raw_answers import RawCluster, node_status

GROUP = "broker-a"
MEMBERS = ("n0", "n1", "n2")


def address_of(member: str) -> str:
    return f"10.0.1.{int(member[1:]) + 1}:10911"


def raft_status(
    member: str,
    leader: str = "n0",
    *,
    term: int = 4,
    end: int = 4096,
    voters: tuple[str, ...] = MEMBERS,
    learners: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the status of a member of a healthy group: ``status["raft"]``."""
    leads = member == leader
    return {
        "group": GROUP,
        "cluster": "DefaultCluster",
        "secret": False,
        "replicated_in_memory": False,
        "lease_reads": False,
        "elections": 1,
        "links": [],
        "member_id": member,
        "role": "LEADER" if leads else "FOLLOWER",
        "term": term,
        "leader_id": leader,
        "configuration": {"voters": list(voters), "learners": list(learners)},
        "addresses": {one: address_of(one) for one in (*voters, *learners)},
        "begin_offset": 0,
        "committed_offset": end,
        "held_offset": end,
        "end_offset": end,
        "is_serving": leads,
        "lease_until_ms": -1,
        "impaired": False,
        "bootstrap": "",
        "writable": True,
        "failed": "",
        "transfer_target": "",
        "transfer_error": "",
        "heartbeat_interval_ms": 150,
        "election_timeout_min_ms": 1000,
        "election_timeout_max_ms": 2000,
        "uncommitted_age_ms": 0,
        "refusals": [],
        "followers": [
            follower_row(one, end=end, is_voter=one in voters)
            for one in (*voters, *learners)
            if leads and one != leader
        ],
    }


def follower_row(
    member: str, *, end: int = 4096, gap: int = 0, is_voter: bool = True, heard_ms: int = 80
) -> dict[str, Any]:
    """A follower that keeps up, by its leader."""
    return {
        "member_id": member,
        "is_voter": is_voter,
        "phase": "APPEND",
        "matched_offset": end - gap,
        "held_offset": end - gap,
        "gap_bytes": gap,
        "inflight_bytes": 0,
        "heard_age_ms": heard_ms,
    }


class RawGroup:
    """A group of three in a `RawCluster`; n0 leads."""

    def __init__(self, cluster: RawCluster, *, end: int = 4096, learner: bool = False) -> None:
        self.cluster = cluster
        learners = ("n3",) if learner else ()
        for number, member in enumerate((*MEMBERS, *learners)):
            address = address_of(member)
            broker_id = number + 1 if number else 0
            cluster.members[address] = {
                "name": GROUP,
                "cluster": "DefaultCluster",
                "id": broker_id,
                "registered": True,
                "seen_wall_ms": cluster.wall_ms,
            }
            status = node_status(GROUP, broker_id, address, end=end)
            status["raft"] = raft_status(member, end=end, learners=learners)
            status["home_id"] = number + 1
            cluster.statuses[address] = status
        cluster.tick(0)

    def raft(self, member: str) -> dict[str, Any]:
        """Return the member's Raft status; change it at will."""
        told: dict[str, Any] = self.cluster.statuses[address_of(member)]["raft"]
        return told

    def row(self, member: str, leader: str = "n0") -> dict[str, Any]:
        """Return the leader's row of a follower."""
        rows: list[dict[str, Any]] = self.raft(leader)["followers"]
        return next(one for one in rows if one["member_id"] == member)

    def kill(self, member: str) -> None:
        """Silence a member; no other member has noticed yet."""
        self.cluster.silent[address_of(member)] = "Connection refused"

    def elect(self, leader: str, term: int, *, without: str = "") -> None:
        """Make a member leader of a term; `without` names a dead one."""
        for number, member in enumerate(MEMBERS):
            if member == without:
                self.cluster.members[address_of(member)]["registered"] = False
                continue
            status = self.cluster.statuses[address_of(member)]
            status["raft"] = raft_status(member, leader, term=term)
            broker_id = 0 if member == leader else number + 1
            self.cluster.members[address_of(member)]["id"] = broker_id
        if without:
            self.row(without, leader)["heard_age_ms"] = 60_000
