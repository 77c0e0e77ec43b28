"""The leader's view of one follower, and its next push to it (DLedgerEntryPusher.EntryDispatcher).

    COMPARE ──same up to──► TRUNCATE ──cut──► APPEND ──up to date──► COMMIT
       │  ▲                 (if it has other bytes there)               │
       │  └──────────── contradiction, no answer ──────────────────────-┘
       └──below our begin──► INSTALL_SNAPSHOT ──emptied──► APPEND

Theory of operation. One COMPARE, TRUNCATE or INSTALL_SNAPSHOT is in flight at a time; APPENDs are
pipelined within a window of bytes and count. COMMIT is an APPEND without bytes, to a follower that
is up to date. Every push has a sequence number. An answer to a push from before the last change of
phase changes the watermarks only. Otherwise one lost packet would make the leader send the whole
window once for every packet in it.

A *spare* follower is one that no majority needs at the moment (`Leadership`). Bytes may wait for it
until `push_delay_ms` have passed, or until they are worth a message of their own.

There are two watermarks. `matched_offset`, up to which the follower's log is proved to be ours,
moves the window. `held_offset`, up to which the follower has the log on disk, is what commits.

INSTALL_SNAPSHOT carries no data. The log is the state: the leader sends an emptied follower its
segments by the same pipelined APPENDs, which can be resumed at any record.
"""

from __future__ import annotations

from collections import deque
from typing import Final

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

# Looking a member up in its enum costs more than the comparison it is for.
_APPEND: Final = PushType.APPEND
_COMMIT: Final = PushType.COMMIT
_COMPARE: Final = PushType.COMPARE
_INSTALL_SNAPSHOT: Final = PushType.INSTALL_SNAPSHOT
_TRUNCATE: Final = PushType.TRUNCATE
_BELOW_BEGIN: Final = PushStatus.BELOW_BEGIN
_GAP: Final = PushStatus.GAP
_SUCCESS: Final = PushStatus.SUCCESS


SPARE_BYTES: Final = 64 * 1024
"""So many bytes are pushed to a spare follower without delay."""


class EntryDispatcher:
    """Pushes to one follower, from our election until we step down."""

    def __init__(self, state: MemberState, ledger: Ledger, follower: str) -> None:
        self.follower = follower
        self.phase = _COMPARE
        self.matched_offset = 0
        """End of the log that is proved to be ours. Falls only when the follower has lost bytes."""
        self.held_offset = 0
        """End of the log on the follower's disk, as it answered in our term. Never falls."""
        self.heard_ms = state.now_ms
        """Time of the newest answer. The election counts as one, so that the follower gets a whole
        election timeout to answer."""
        self.echoed_ms = -(1 << 62)
        """Time when we sent the newest heartbeat that the follower has answered."""
        self.echoed_round = 0
        self.next_offset = 0
        self.is_spare = False
        """No majority needs this follower at the moment: bytes may wait for it."""
        self._told_commit = -1
        self._state = state
        self._ledger = ledger
        self._sequence = 0
        self._valid_from = 0
        """First sequence number of this phase: older answers are about an earlier phase."""
        self._inflight: deque[int] = deque()
        self._waiting_since_ms: int | None = None
        self._heartbeat_matched = (0, 0)
        self._holds_back = False
        """Bytes wait, since the follower is a spare."""
        self._is_behind = False
        """The window had no room for all bytes when they were pushed last: none are held back."""

    @property
    def inflight_bytes(self) -> int:
        return self.next_offset - self.matched_offset if self._inflight else 0

    @property
    def owes_push(self) -> bool:
        """Something waits for `push_waiting`: bytes for a spare, or a commit."""
        return self._holds_back or self.owes_commit

    @property
    def owes_commit(self) -> bool:
        """The follower has all bytes, but does not know yet that the newest are committed."""
        return (
            self.phase is _APPEND
            and not self._inflight
            and self._told_commit < self._state.committed_offset
        )

    def push_waiting(self) -> None:
        """Push bytes that were held back, and a commit that has waited for bytes to go with."""
        self.dispatch(at_once=True)
        if self.owes_commit:
            self._append(self.next_offset)

    def dispatch(self, *, at_once: bool = False) -> None:
        """Push whatever the phase and the window allow now.

        `at_once`: also what may wait for a spare follower.
        """
        if self.phase is _APPEND:
            self._append_all(at_once)
        elif self._waiting_since_ms is None:
            self._push()

    def on_tick(self) -> None:
        """Treat a push without an answer within `retry_ms` as lost."""
        since = self._waiting_since_ms
        if since is not None and self._state.now_ms - since >= self._state.settings.retry_ms:
            # The follower may be down: ask one small question, do not send the window again.
            self._turn(self.phase if self.phase is not _APPEND else _COMPARE)
        self.dispatch()

    def heartbeat_sent(self, sent_ms: int) -> None:
        """Remember the matched offset that the answer to this heartbeat must reach."""
        self._heartbeat_matched = (sent_ms, self.matched_offset)

    def on_heartbeat_response(self, response: HeartbeatResponse) -> None:
        self.heard_ms = self._state.now_ms
        self.echoed_ms = max(self.echoed_ms, response.sent_ms)
        self.echoed_round = max(self.echoed_round, response.read_round)
        sent_ms, matched_then = self._heartbeat_matched
        if (
            self.phase is _APPEND
            and response.sent_ms == sent_ms
            and response.matched_offset < matched_then
        ):
            # The follower has restarted, and may have lost bytes that it had not fsynced.
            self._turn(_COMPARE)
        elif self.phase is _APPEND:
            self._progress(response.matched_offset)
        elif self._is_lost(response.sent_ms):
            self._turn(_COMPARE)
        self.held_offset = max(self.held_offset, response.held_offset)
        self.dispatch()

    def on_push_response(self, response: PushResponse) -> None:
        self.heard_ms = self._state.now_ms
        self.held_offset = max(self.held_offset, response.held_offset)
        if response.sequence and response.sequence < self._valid_from:
            return  # the answer to a push of an earlier phase, see above
        if response.type in (_APPEND, _COMMIT):
            self._on_append_response(response)
        elif response.type is self.phase and response.sequence == self._sequence:
            self._on_turn_response(response)
        self.dispatch()

    def _on_append_response(self, response: PushResponse) -> None:
        if self.phase is not _APPEND:
            return
        if response.status is _SUCCESS:
            self._progress(response.matched_offset)
        elif response.status is _GAP and response.matched_offset >= self.matched_offset:
            self._append_from(response.matched_offset)
        else:
            self._turn(_COMPARE)

    def _on_turn_response(self, response: PushResponse) -> None:
        """Choose the next phase by the answer to the COMPARE, TRUNCATE or INSTALL_SNAPSHOT."""
        if self.phase is not _COMPARE and response.status is not _SUCCESS:
            self._turn(_COMPARE)
        elif response.status is _BELOW_BEGIN or response.matched_offset < self._state.begin_offset:
            self._turn(_INSTALL_SNAPSHOT)
        elif self.phase is _COMPARE and response.conflict:
            self._turn(_TRUNCATE)
            self.matched_offset = response.matched_offset
        else:
            self._append_from(response.matched_offset)

    def _progress(self, matched_offset: int) -> None:
        """Move the window: the follower's log is proved to be ours up to here."""
        if matched_offset <= self.matched_offset:
            return  # answers overtake each other
        self.matched_offset = matched_offset
        self.next_offset = max(self.next_offset, matched_offset)
        while self._inflight and self._inflight[0] <= matched_offset:
            self._inflight.popleft()
        self._waiting_since_ms = self._state.now_ms if self._inflight else None

    def _is_lost(self, sent_ms: int) -> bool:
        """Return whether the COMPARE was lost: the follower has answered a heartbeat sent later.

        A connection keeps its order, and a follower answers a COMPARE at once. So the COMPARE went
        down with an earlier connection, for example when the follower was restarted. Waiting for
        `retry_ms` would keep a healthy follower out of the majority, and a transfer to it would
        fail. If a network reorders the two, the price is one question more.
        """
        since = self._waiting_since_ms
        return self.phase is _COMPARE and since is not None and since < sent_ms

    def _turn(self, phase: PushType) -> None:
        self.phase = phase
        self._valid_from = self._sequence + 1
        self._inflight.clear()
        self._waiting_since_ms = None
        self._holds_back = False

    def _append_from(self, matched_offset: int) -> None:
        self._turn(_APPEND)
        self.matched_offset = self.next_offset = matched_offset

    def _push(self) -> None:
        """Send the COMPARE, TRUNCATE or INSTALL_SNAPSHOT of this phase."""
        state = self._state
        self._sequence += 1
        self._waiting_since_ms = state.now_ms
        head = (state.member_id, self.follower, state.term, self._sequence)
        if self.phase is _COMPARE:
            state.messages.append(
                Compare(*head, state.begin_offset, state.end_offset, state.terms.rows)
            )
        elif self.phase is _TRUNCATE:
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

    def _append_all(self, at_once: bool) -> None:
        state, settings = self._state, self._state.settings
        if self.next_offset < state.begin_offset:
            # Retention has deleted the bytes that the follower needs next: compare again.
            self._turn(_COMPARE)
            self._push()
            return
        waiting = state.end_offset - self.next_offset
        self._holds_back = (
            self.is_spare and not at_once and not self._is_behind and 0 < waiting < SPARE_BYTES
        )
        if self._holds_back:
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
        self._is_behind = self.next_offset < state.end_offset
        if self.owes_commit and not settings.push_delay_ms:
            self._append(self.next_offset)

    def _append(self, end_offset: int) -> None:
        """Push bytes of one term; without any, push only the commit."""
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
            )
        )
        self._told_commit = state.committed_offset
        if body:
            self.next_offset = end
            self._inflight.append(end)
            if self._waiting_since_ms is None:
                self._waiting_since_ms = state.now_ms
