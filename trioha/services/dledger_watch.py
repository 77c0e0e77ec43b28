"""What a member writes to the journal of its roles and of commits that do not come."""

from __future__ import annotations

from trioha.dledger.ready import Role, SoftState
from trioha.journal import EventSink

COMMIT_STALLED_MS = 3000
"""As long as a put is given (facts/dledger-raft.md 17.3): then people hear of it."""


class RoleWatch:
    """Roles as they change. A member that nobody votes for stands again and again: one line."""

    def __init__(self, events: EventSink) -> None:
        self.rounds = 0
        """That were stood for since the start."""
        self._events = events
        self._stands = False

    def look(self, soft: SoftState) -> None:
        stands = soft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
        self.rounds += soft.role is Role.PRE_CANDIDATE
        if not self._stands or not (stands or not soft.leader_id):
            self._events.event(
                "raft_role",
                role=soft.role.value,
                term=soft.term,
                leader=soft.leader_id,
                reason=soft.reason,
            )
        self._stands = stands or (self._stands and not soft.leader_id)


class CommitWatch:
    """For how long nothing was committed though there is something to commit."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._since_ms = -1
        self._gap_bytes = 0
        self._stalled = False

    def look(self, gap_bytes: int, now_ms: int) -> None:
        """So many bytes are not committed. HOT."""
        self._gap_bytes = gap_bytes
        if not gap_bytes:
            self._since_ms = -1
        elif self._since_ms < 0:
            self._since_ms = now_ms

    def committed(self, committed_offset: int) -> None:
        """The commit has moved. HOT."""
        self._since_ms = -1
        if self._stalled:
            self._stalled = False
            self._events.event("raft_commit_resumed", committed_offset=committed_offset)

    def age_ms(self, now_ms: int) -> int:
        return now_ms - self._since_ms if self._since_ms >= 0 else 0

    def on_time(self, now_ms: int) -> None:
        """For a leader: tell once that it gets no majority."""
        age_ms = self.age_ms(now_ms)
        if age_ms >= COMMIT_STALLED_MS and not self._stalled:
            self._stalled = True
            self._events.event("raft_commit_stalled", age_ms=age_ms, gap_bytes=self._gap_bytes)
