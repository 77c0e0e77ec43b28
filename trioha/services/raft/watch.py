"""A member's journal events on its roles and on a commit that makes no progress."""

from __future__ import annotations

from trioha.dledger.ready import Role, SoftState
from trioha.journal import EventSink

COMMIT_STALLED_MS = 3000
"""Time without progress after which the journal tells it: `slaveTimeout`, the limit of a put."""


class RoleWatch:
    """Writes changes of role to the journal; one line for a member that stands again and again."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._stands = False

    def look(self, soft: SoftState) -> None:
        stands = soft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
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
    """Measures how long the commit has made no progress, and tells the journal."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._since_ms = -1
        self._gap_bytes = 0
        self._stalled = False

    def look(self, gap_bytes: int, now_ms: int) -> None:
        """Note that `gap_bytes` are not committed. HOT."""
        self._gap_bytes = gap_bytes
        if not gap_bytes:
            self._since_ms = -1
        elif self._since_ms < 0:
            self._since_ms = now_ms

    def committed(self, committed_offset: int) -> None:
        """Note that the commit has moved. HOT."""
        self._since_ms = -1
        if self._stalled:
            self._stalled = False
            self._events.event("raft_commit_resumed", committed_offset=committed_offset)

    def age_ms(self, now_ms: int) -> int:
        return now_ms - self._since_ms if self._since_ms >= 0 else 0

    def on_time(self, now_ms: int) -> None:
        """Tell the journal once that a leader's commit has stalled."""
        age_ms = self.age_ms(now_ms)
        if age_ms >= COMMIT_STALLED_MS and not self._stalled:
            self._stalled = True
            self._events.event("raft_commit_stalled", age_ms=age_ms, gap_bytes=self._gap_bytes)
