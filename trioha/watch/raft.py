"""The state of a Raft member as it answers, and as leader its view of the followers.

It is read from ``status["raft"]``, tolerantly like all answers of the watch: a field that is
missing or of another type is None, "" or empty, never a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs

from trioha.watch.readings import Fields, fields_of, number, read, rows_of, truth, words

LEADER = "LEADER"
FOLLOWER = "FOLLOWER"
LEARNER = "LEARNER"
_MATCHED_PHASES = frozenset({"APPEND", "COMMIT"})
"""Phases of a follower whose log is proved to be the same as its leader's."""
KEEPS_UP_BYTES = 4 << 20
"""Largest gap of a follower that keeps up: with less the core lets it lead."""
ELECTION_TIMEOUT_S = 1.0
"""Default of dLegerElectionTimeoutMin, for a node that does not tell its own."""


@attrs.frozen(kw_only=True)
class RaftFollower:
    """One follower or learner as its leader sees it."""

    member_id: str
    is_voter: bool | None
    phase: str | None
    """Kind of the leader's pushes: COMPARE, TRUNCATE, APPEND, COMMIT or INSTALL_SNAPSHOT."""
    matched_offset: int | None
    held_offset: int | None
    """End of the log that the follower has fsynced."""
    gap_bytes: int | None
    inflight_bytes: int | None
    heard_age_s: float | None

    @classmethod
    def of(cls, row: Fields) -> Self:
        return read(
            cls,
            row,
            member_id=words(row, "member_id") or "?",
            heard_age_s=_seconds(row, "heard_age_ms"),
        )

    @property
    def is_matched(self) -> bool | None:
        return None if self.phase is None else self.phase in _MATCHED_PHASES

    @property
    def keeps_up(self) -> bool | None:
        """The follower's log is the same as the leader's and lacks at most `KEEPS_UP_BYTES`."""
        if self.is_matched is None or self.gap_bytes is None:
            return None
        return self.is_matched and self.gap_bytes <= KEEPS_UP_BYTES


@attrs.frozen(kw_only=True)
class RaftRefusal:
    """A rejected peer and the reason."""

    peer: str
    reason: str
    age_s: float | None


@attrs.frozen(kw_only=True)
class RaftState:
    """One member's answer about itself."""

    group: str
    member_id: str
    role: str
    """LEADER, FOLLOWER, PRE_CANDIDATE or CANDIDATE."""
    term: int | None
    leader_id: str
    """Leader that it follows; "" for none."""
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    addresses: Mapping[str, str]
    """Member id -> host:port."""
    begin_offset: int | None
    committed_offset: int | None
    held_offset: int | None
    end_offset: int | None
    is_serving: bool | None
    """The member leads and has committed in its term, so it may answer clients."""
    impaired: bool
    """The member may have forgotten a vote: it is a copy that never votes nor stands again."""
    bootstrap: str
    """Reason why the member does not take part yet; "" if it does."""
    writable: bool | None
    failed: str
    transfer_target: str
    transfer_error: str
    followers: tuple[RaftFollower, ...]
    refusals: tuple[RaftRefusal, ...]
    heartbeat_interval_s: float | None
    election_timeout_s: float | None
    """Shortest election timeout; a leader must hear a majority within it, too."""
    uncommitted_age_s: float | None
    """Seconds since the last progress of the commit; 0 if all is committed."""

    @classmethod
    def of(cls, told: object) -> Self | None:
        """Read ``status["raft"]``; None for a node that is in no group."""
        row = fields_of(told)
        if words(row, "member_id") is None or words(row, "role") is None:
            return None
        configuration = fields_of(row.get("configuration"))
        return read(
            cls,
            row,
            voters=_texts(configuration.get("voters")),
            learners=_texts(configuration.get("learners")),
            addresses={
                str(name): address
                for name, address in fields_of(row.get("addresses")).items()
                if isinstance(address, str)
            },
            impaired=truth(row, "impaired") is True,
            followers=tuple(
                RaftFollower.of(one)
                for one in rows_of(row.get("followers"))
                if words(one, "member_id")
            ),
            refusals=tuple(
                read(
                    RaftRefusal,
                    one,
                    peer=words(one, "peer") or "?",
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
        """Return whether `member_id` is a member; True while the members are unknown."""
        return not self.members or member_id in self.members

    @property
    def is_learner(self) -> bool:
        return self.member_id in self.learners

    @property
    def standing(self) -> str:
        """Role for people: a follower without a vote is a learner."""
        return LEARNER if self.is_learner and self.role == FOLLOWER else self.role

    @property
    def gone_after_s(self) -> float:
        """Seconds of silence after which a leader does not count a follower any more."""
        return self.election_timeout_s or ELECTION_TIMEOUT_S

    def follower(self, member_id: str) -> RaftFollower | None:
        return next((one for one in self.followers if one.member_id == member_id), None)

    def is_present(self, follower: RaftFollower) -> bool | None:
        """Return whether this leader hears the follower; None if that is unknown."""
        if follower.heard_age_s is None:
            return None
        return follower.heard_age_s <= self.gone_after_s

    @property
    def voters_present(self) -> int:
        """Count of voters that this leader hears, with itself if it is a voter."""
        present = {one.member_id for one in self.followers if self.is_present(one)}
        return len((present | {self.member_id}) & set(self.voters))

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1


def member_number(member_id: str) -> int:
    """Return the brokerId under which a member registers as a slave: 3 for ``n2``."""
    digits = member_id[1:]
    return int(digits) + 1 if digits.isdecimal() and len(digits) < 10 else 0


def members_told(status: object) -> dict[str, str]:
    """Return member id -> address of the members that a node knows; empty for one in no group.

    Nodes remember the addresses of removed members; those are left out here.
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
    """Return a field of milliseconds in seconds.

    Unlike other ages it is not increased up to the snapshot's time: a leader hears a follower
    several times a second, so that would only show how seldom we ask the leader.
    """
    found = number(row, name)
    return None if found is None else found / 1000
