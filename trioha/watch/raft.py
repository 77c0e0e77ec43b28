"""What a member of a Raft group says of itself and, as leader, of the others.

Read from ``status["raft"]`` as tolerantly as everything that is watched: what is missing or of
another shape is None, an empty text or nothing, and never a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs

from trioha.watch.readings import Fields, fields_of, number, rows_of, truth, whole, words

LEADER = "LEADER"
FOLLOWER = "FOLLOWER"
LEARNER = "LEARNER"
_MATCHED_PHASES = frozenset({"APPEND", "COMMIT"})
"""Of a follower whose log is proved to be its leader's, as far as it goes."""
KEEPS_UP_BYTES = 4 << 20
"""A follower that lacks less keeps up: from there on the core would let it lead."""
ELECTION_TIMEOUT_S = 1.0
"""Of a node that does not tell: the default of dLegerElectionTimeoutMin."""


@attrs.frozen(kw_only=True)
class RaftFollower:
    """One follower or learner as its leader sees it."""

    member_id: str
    is_voter: bool | None
    phase: str | None
    """What the leader pushes: COMPARE, TRUNCATE, APPEND, COMMIT or INSTALL_SNAPSHOT."""
    matched_offset: int | None
    held_offset: int | None
    """fsynced there."""
    gap_bytes: int | None
    inflight_bytes: int | None
    heard_age_s: float | None

    @classmethod
    def of(cls, row: Fields) -> Self:
        phase = words(row, "phase")
        return cls(
            member_id=words(row, "member_id") or "?",
            is_voter=truth(row, "is_voter"),
            phase=phase,
            matched_offset=whole(row, "matched_offset"),
            held_offset=whole(row, "held_offset"),
            gap_bytes=whole(row, "gap_bytes"),
            inflight_bytes=whole(row, "inflight_bytes"),
            heard_age_s=_seconds(row, "heard_age_ms"),
        )

    @property
    def is_matched(self) -> bool | None:
        return None if self.phase is None else self.phase in _MATCHED_PHASES

    @property
    def keeps_up(self) -> bool | None:
        """Its log is the leader's, and nearly all of it."""
        if self.is_matched is None or self.gap_bytes is None:
            return None
        return self.is_matched and self.gap_bytes <= KEEPS_UP_BYTES


@attrs.frozen(kw_only=True)
class RaftRefusal:
    """A peer that was turned away, and why."""

    peer: str
    reason: str
    age_s: float | None


@attrs.frozen(kw_only=True)
class RaftState:
    """One member by its own word."""

    group: str
    member_id: str
    role: str
    """LEADER, FOLLOWER, PRE_CANDIDATE or CANDIDATE."""
    term: int | None
    leader_id: str
    """Whom it follows; "" for nobody."""
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    addresses: Mapping[str, str]
    """Member id -> host:port."""
    begin_offset: int | None
    committed_offset: int | None
    held_offset: int | None
    end_offset: int | None
    is_serving: bool | None
    """A leader whose term has committed something, so that it may answer clients."""
    impaired: bool
    """It may have forgotten a promise: a copy that neither votes nor stands, for good."""
    bootstrap: str
    """Why it does not take part yet; "" when it does."""
    writable: bool | None
    failed: str
    transfer_target: str
    transfer_error: str
    followers: tuple[RaftFollower, ...]
    refusals: tuple[RaftRefusal, ...]
    heartbeat_interval_s: float | None
    election_timeout_s: float | None
    """The shortest; also within which a leader must have heard a majority."""
    uncommitted_age_s: float | None
    """For how long something has waited for a majority without any progress."""

    @classmethod
    def of(cls, told: object) -> Self | None:
        """From ``status["raft"]``; None for a node of no group."""
        row = fields_of(told)
        member_id, role = words(row, "member_id"), words(row, "role")
        if member_id is None or role is None:
            return None
        configuration = fields_of(row.get("configuration"))

        return cls(
            group=words(row, "group") or "",
            member_id=member_id,
            role=role,
            term=whole(row, "term"),
            leader_id=words(row, "leader_id") or "",
            voters=_texts(configuration.get("voters")),
            learners=_texts(configuration.get("learners")),
            addresses={
                str(name): address
                for name, address in fields_of(row.get("addresses")).items()
                if isinstance(address, str)
            },
            begin_offset=whole(row, "begin_offset"),
            committed_offset=whole(row, "committed_offset"),
            held_offset=whole(row, "held_offset"),
            end_offset=whole(row, "end_offset"),
            is_serving=truth(row, "is_serving"),
            impaired=truth(row, "impaired") is True,
            bootstrap=words(row, "bootstrap") or "",
            writable=truth(row, "writable"),
            failed=words(row, "failed") or "",
            transfer_target=words(row, "transfer_target") or "",
            transfer_error=words(row, "transfer_error") or "",
            followers=tuple(
                RaftFollower.of(one)
                for one in rows_of(row.get("followers"))
                if words(one, "member_id")
            ),
            refusals=tuple(
                RaftRefusal(
                    peer=words(one, "peer") or "?",
                    reason=words(one, "reason") or "",
                    age_s=_seconds(one, "age_ms"),
                )
                for one in rows_of(row.get("refusals"))
            ),
            heartbeat_interval_s=_seconds(row, "heartbeat_interval_ms"),
            election_timeout_s=_seconds(row, "election_timeout_min_ms"),
            uncommitted_age_s=_seconds(row, "uncommitted_age_ms"),
        )

    @property
    def is_leader(self) -> bool:
        return self.role == LEADER

    @property
    def members(self) -> tuple[str, ...]:
        return self.voters + self.learners

    def is_of(self, member_id: str) -> bool:
        """Does it count as a member? Yes, while nothing is known of the members."""
        return not self.members or member_id in self.members

    @property
    def is_learner(self) -> bool:
        return self.member_id in self.learners

    @property
    def standing(self) -> str:
        """Its role as people name it: a follower that does not vote is a learner."""
        return LEARNER if self.is_learner and self.role == FOLLOWER else self.role

    @property
    def gone_after_s(self) -> float:
        """A follower that was silent for so long is not counted by its leader."""
        return self.election_timeout_s or ELECTION_TIMEOUT_S

    def follower(self, member_id: str) -> RaftFollower | None:
        return next((one for one in self.followers if one.member_id == member_id), None)

    def is_present(self, follower: RaftFollower) -> bool | None:
        """Does this leader hear it? None when that is not told."""
        if follower.heard_age_s is None:
            return None
        return follower.heard_age_s <= self.gone_after_s

    @property
    def voters_present(self) -> int:
        """Voters that this leader can count on now, itself included if it is one."""
        present = {one.member_id for one in self.followers if self.is_present(one)}
        return len((present | {self.member_id}) & set(self.voters))

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1


def member_number(member_id: str) -> int:
    """The brokerId under which a member registers as a slave: ``n2`` has 3."""
    digits = member_id[1:]
    return int(digits) + 1 if digits.isdecimal() and len(digits) < 10 else 0


def members_told(status: object) -> dict[str, str]:
    """Member id -> address of the members by one's word; nothing of a node of no group.

    Addresses of those that were removed are remembered by the nodes, and left out here.
    """
    raft = RaftState.of(fields_of(status).get("raft"))
    if raft is None:
        return {}
    return {
        name: address for name, address in raft.addresses.items() if address and raft.is_of(name)
    }


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(one for one in value if isinstance(one, str))


def _seconds(row: Fields, name: str) -> float | None:
    """A field in milliseconds, in seconds.

    Not carried on to the moment of a snapshot, as other ages are: a follower is heard several times
    a second, and what would be shown is how often its leader is asked.
    """
    found = number(row, name)
    return None if found is None else found / 1000
