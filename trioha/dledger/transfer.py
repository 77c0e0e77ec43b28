"""Leadership transfer: on request, to a preferred member, or because the disk is full.

Theory of operation (Raft thesis 3.10). During a transfer the leader accepts no bytes. As soon as
the target holds the leader's whole log, the leader sends it `TimeoutNow`: the target stands for
election at once, and wins unless the network fails. If there is no new leader within one election
timeout, the old one accepts bytes again. A late `TimeoutNow` does no harm: the target stands in a
newer term, and only wins with a log that is up to date. But a term in which one was sent has no
lease any more.

A leader that is not preferred looks every second for a preferred member that answers and is up to
date. After each attempt it waits twice as long, up to a minute, so that a member which cannot lead
does not stop the writes again and again (fault B7).
"""

from __future__ import annotations

from trioha.dledger.leadership import Leadership
from trioha.dledger.member_state import MemberState
from trioha.dledger.messages import TimeoutNow


class Transfer:
    """Transfers during one leadership, at most one at a time."""

    def __init__(self, state: MemberState, leadership: Leadership) -> None:
        self.target = ""
        """Member that gets the leadership; empty without a transfer."""
        self.deadline_ms = 0
        self.last_error = ""
        """Failure of the last attempt, for the status; empty for none."""
        self._state = state
        self._leadership = leadership
        self._told = False
        self._backoff_ms = state.settings.preferred_check_ms
        self._next_check_ms = state.now_ms + self._backoff_ms

    def begin(self, target: str) -> str:
        """Begin to hand over. Return the reason if that is not possible, else ""."""
        state = self._state
        if target == state.member_id:
            return f"{target} is the leader already"
        if target not in state.configuration.voters:
            return f"{target} is no voter; there are {', '.join(state.configuration.voters)}"
        if self.target:
            return f"a transfer to {self.target} is in progress; ask again in a moment"
        if not self._leadership.is_serving or self._leadership.has_open_change:
            return "a change is not committed yet; ask again in a moment"
        dispatcher = self._leadership.dispatchers[target]
        if state.now_ms - dispatcher.heard_ms >= state.settings.election_timeout_min_ms:
            return f"{target} does not answer; bring it back first"
        behind = state.end_offset - dispatcher.held_offset
        if behind > state.settings.caught_up_bytes:
            return f"{target} is {behind} bytes behind; wait until it has caught up"
        self.target = target
        self.deadline_ms = state.now_ms + state.settings.election_timeout_min_ms
        self._told = False
        self._leadership.push_waiting()
        self.step()
        return ""

    def step(self) -> None:
        """Send `TimeoutNow` once the target holds the whole log; give up at the deadline."""
        state = self._state
        if not self.target:
            return
        if state.now_ms >= self.deadline_ms or self.target not in state.configuration.voters:
            self.last_error = f"{self.target} did not take over in time"
            self.target = ""
            return
        dispatcher = self._leadership.dispatchers[self.target]
        if not self._told and dispatcher.held_offset == state.end_offset:
            self._tell(self.target)
            self._told = True

    def resign(self) -> None:
        """Send `TimeoutNow` to the voter heard last among those that hold the whole log, if any.

        The caller steps down in any case.
        """
        state = self._state
        fit = [
            (dispatcher.heard_ms, voter)
            for voter, dispatcher in self._leadership.dispatchers.items()
            if voter in state.configuration.voters and dispatcher.held_offset == state.end_offset
        ]
        if fit:
            self._tell(max(fit)[1])

    def look_for_preferred(self) -> None:
        """Begin to hand over to the preferred member that is the most up to date."""
        state, settings = self._state, self._state.settings
        preferred = settings.preferred_leader_ids
        if not preferred or state.member_id in preferred or self.target:
            return
        if state.now_ms < self._next_check_ms:
            return
        candidates = [
            (dispatcher.held_offset, member)
            for member, dispatcher in self._leadership.dispatchers.items()
            if member in preferred
        ]
        self._next_check_ms = state.now_ms + settings.preferred_check_ms
        for _, member in sorted(candidates, reverse=True):
            if not self.begin(member):
                # If it succeeds, this object is gone before the next check.
                self._backoff_ms = min(self._backoff_ms * 2, settings.preferred_backoff_ms_max)
                self._next_check_ms = state.now_ms + self._backoff_ms
                return

    def _tell(self, target: str) -> None:
        state = self._state
        self._leadership.lease_void = True
        state.messages.append(TimeoutNow(state.member_id, target, state.term))
