"""The leader's view of one follower, and what to push next.

    COMPARE ──same up to──► TRUNCATE ──cut──► APPEND ──level──► COMMIT
       │  ▲                 (if it has other bytes there)          │
       │  └──────────── contradiction, silence ───────────────────-┘
       └──below our begin──► INSTALL_SNAPSHOT ──emptied──► APPEND

One COMPARE, TRUNCATE or INSTALL_SNAPSHOT is out at a time; APPENDs are pipelined within a window of
bytes and count. COMMIT is APPEND without bytes, to a follower that is level. Every push has a
sequence number: an answer to a push from before the last change of direction changes nothing but
the watermarks, or one lost packet would make the whole window be sent once per packet in it.

Two watermarks: `matched_offset`, up to which the follower's log is proved to be ours, moves the
window; `held_offset`, what it has on disk, is what commits.

INSTALL_SNAPSHOT carries no data. The log is the state: an emptied follower is sent the segments
that there are by the same pipelined APPENDs, which can be resumed at any record.
"""

from __future__ import annotations

from collections import deque

from trioha.dledger.ledger import Ledger
from trioha.dledger.member_state import MemberState
from trioha.dledger.messages import (
    Append,
    Compare,
    HeartbeatResponse,
    Install,
    PushResponse,
    PushStatus,
    PushType,
    Truncate,
)
from trioha.wire.remoting_command import Buffer


class EntryDispatcher:
    """Pushes to one follower, from our election to our end."""

    def __init__(self, state: MemberState, ledger: Ledger, follower: str) -> None:
        self.follower = follower
        self.phase = PushType.COMPARE
        self.matched_offset = 0
        """Proved to be ours. Falls only when the follower turns out to have lost bytes."""
        self.held_offset = 0
        """On its disk, by its own word in our term. Never falls."""
        self.heard_ms = state.now_ms
        """Any answer. At the election: now, so that followers get their time."""
        self.echoed_ms = -(1 << 62)
        """Our clock when we sent the newest heartbeat that it has answered."""
        self.echoed_round = 0
        self.next_offset = 0
        self._told_commit = -1
        self._state = state
        self._ledger = ledger
        self._sequence = 0
        self._valid_from = 0
        """Answers to older pushes are not about where we are now."""
        self._inflight: deque[int] = deque()
        self._waiting_since_ms: int | None = None
        self._heartbeat_matched = (0, 0)

    @property
    def inflight_count(self) -> int:
        return len(self._inflight)

    @property
    def inflight_bytes(self) -> int:
        return self.next_offset - self.matched_offset if self._inflight else 0

    @property
    def owes_commit(self) -> bool:
        """It has all bytes, but has not been told how much of them is committed."""
        return (
            self.phase is PushType.APPEND
            and not self._inflight
            and self._told_commit < self._state.committed_offset
        )

    def tell_commit(self) -> None:
        """Push a commit that has waited for bytes to go along with."""
        self.dispatch()
        if self.owes_commit:
            self._append(self.next_offset)

    def dispatch(self) -> None:
        """Push what may be pushed now."""
        if self.phase is PushType.APPEND:
            self._append_all()
        elif self._waiting_since_ms is None:
            self._push()

    def on_tick(self) -> None:
        """Take what has had no answer for too long as lost."""
        since = self._waiting_since_ms
        if since is not None and self._state.now_ms - since >= self._state.settings.retry_ms:
            # Nobody there, perhaps: one small question instead of the whole window again.
            self._turn(self.phase if self.phase is not PushType.APPEND else PushType.COMPARE)
        self.dispatch()

    def heartbeat_sent(self, sent_ms: int) -> None:
        """Remember what the answer to this heartbeat must at least say."""
        self._heartbeat_matched = (sent_ms, self.matched_offset)

    def on_heartbeat_response(self, response: HeartbeatResponse) -> None:
        self.heard_ms = self._state.now_ms
        self.echoed_ms = max(self.echoed_ms, response.sent_ms)
        self.echoed_round = max(self.echoed_round, response.read_round)
        sent_ms, matched_then = self._heartbeat_matched
        if (
            self.phase is PushType.APPEND
            and response.sent_ms == sent_ms
            and response.matched_offset < matched_then
        ):
            # It has started anew, and perhaps lost what it had not fsynced.
            self._turn(PushType.COMPARE)
        elif self.phase is PushType.APPEND:
            self._progress(response.matched_offset)
        self.held_offset = max(self.held_offset, response.held_offset)
        self.dispatch()

    def on_push_response(self, response: PushResponse) -> None:
        self.heard_ms = self._state.now_ms
        self.held_offset = max(self.held_offset, response.held_offset)
        if response.sequence and response.sequence < self._valid_from:
            return
        if response.type in (PushType.APPEND, PushType.COMMIT):
            self._on_append_response(response)
        elif response.type is self.phase and response.sequence == self._sequence:
            self._on_turn_response(response)
        self.dispatch()

    def _on_append_response(self, response: PushResponse) -> None:
        if self.phase is not PushType.APPEND:
            return
        if response.status is PushStatus.SUCCESS:
            self._progress(response.matched_offset)
        elif response.status is PushStatus.GAP and response.matched_offset >= self.matched_offset:
            self._append_from(response.matched_offset)
        else:
            self._turn(PushType.COMPARE)

    def _on_turn_response(self, response: PushResponse) -> None:
        """The one question that was out is answered."""
        if self.phase is not PushType.COMPARE and response.status is not PushStatus.SUCCESS:
            self._turn(PushType.COMPARE)
        elif (
            response.status is PushStatus.BELOW_BEGIN
            or response.matched_offset < self._state.begin_offset
        ):
            self._turn(PushType.INSTALL_SNAPSHOT)
        elif self.phase is PushType.COMPARE and response.conflict:
            self._turn(PushType.TRUNCATE)
            self.matched_offset = response.matched_offset
        else:
            self._append_from(response.matched_offset)

    def _progress(self, matched_offset: int) -> None:
        """The follower's log is ours up to here."""
        if matched_offset <= self.matched_offset:
            return
        self.matched_offset = matched_offset
        self.next_offset = max(self.next_offset, matched_offset)
        while self._inflight and self._inflight[0] <= matched_offset:
            self._inflight.popleft()
        self._waiting_since_ms = self._state.now_ms if self._inflight else None

    def _turn(self, phase: PushType) -> None:
        self.phase = phase
        self._valid_from = self._sequence + 1
        self._inflight.clear()
        self._waiting_since_ms = None

    def _append_from(self, matched_offset: int) -> None:
        self._turn(PushType.APPEND)
        self.matched_offset = self.next_offset = matched_offset

    def _push(self) -> None:
        """Ask the one question of this phase."""
        state = self._state
        self._sequence += 1
        self._waiting_since_ms = state.now_ms
        head = (state.member_id, self.follower, state.term, self._sequence)
        if self.phase is PushType.COMPARE:
            state.messages.append(
                Compare(*head, state.begin_offset, state.end_offset, state.terms.rows)
            )
        elif self.phase is PushType.TRUNCATE:
            offset = self.matched_offset
            terms = state.terms
            state.messages.append(
                Truncate(*head, offset, terms.term_at(offset), terms.term_of(offset))
            )
        else:
            begin = state.begin_offset
            rows = state.configurations.drop_before(begin).rows
            state.messages.append(
                Install(*head, begin, state.terms.rows, state.end_offset, rows[0])
            )

    def _append_all(self) -> None:
        state, settings = self._state, self._state.settings
        if self.next_offset < state.begin_offset:
            # Retention took what it needs next: find that out together.
            self._turn(PushType.COMPARE)
            self._push()
            return
        while (
            self.next_offset < state.end_offset
            and len(self._inflight) < settings.inflight_count_max
            and (
                not self._inflight
                or self.next_offset - self.matched_offset < settings.inflight_bytes_max
            )
        ):
            self._append(state.end_offset)
        if self.owes_commit and not settings.commit_delay_ms:
            self._append(self.next_offset)

    def _append(self, end_offset: int) -> None:
        """One push of bytes of one term; without any, of the commit."""
        state = self._state
        start = self.next_offset
        body: Buffer = b""
        if start < end_offset:
            read = self._ledger.read(start, state.settings.batch_bytes_max)
            body = read[: state.terms.run_end(start, end_offset) - start]
            assert body, f"nothing to read at {start}, end {end_offset}"
        end = start + len(body)
        self._sequence += 1
        state.messages.append(
            Append(
                state.member_id,
                self.follower,
                state.term,
                self._sequence,
                start,
                state.terms.term_at(start),
                state.terms.term_of(start) if body else 0,
                state.committed_offset,
                body,
                state.configurations.within(start, end),
            )
        )
        self._told_commit = state.committed_offset
        if body:
            self.next_offset = end
            self._inflight.append(end)
            if self._waiting_since_ms is None:
                self._waiting_since_ms = state.now_ms
