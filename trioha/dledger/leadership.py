"""The leader's part: pushes, heartbeats, commits and reads, from its election until it steps down.

Theory of operation. A leader opens its term with a control record and pushes nothing before: then
every follower's log that differs from its own differs at a byte. It commits the largest offset that
a majority has on disk, itself included, but only beyond the first byte of its own term: later bytes
commit those of older terms (Raft 5.4.2). DLedger counts bytes of older terms, and there a committed
entry was replaced.

Spares. A majority is enough: of three members the leader and one follower. So the followers that
held the newest commit when it was made get bytes at once, and the others are *spares*: they get the
same bytes up to `push_delay_ms` later, many puts at a time. When a follower that gets bytes at once
falls silent, the spares' answers make the next commit. They then get bytes at once in its place.

The leader sends a heartbeat every `heartbeat_interval_ms`, whatever else it sends. Any answer shows
that the follower still accepts the leader. Without answers of a majority within the shortest
election timeout the leader steps down (*check-quorum*, thesis 6.2). A leader whose own process was
held up that long has asked nobody meanwhile: it asks once more before it steps down.

Reads. No voter votes for another within `promise_ms` after a heartbeat. So if a majority has echoed
a heartbeat that was sent within the last `lease_ms`, no other member can have been elected.
`lease_ms` is shorter than the promise by the drift allowed between two clocks. A
transfer ends the lease for the rest of the term, since its candidate may be elected at any time.
Without a lease a read waits until a majority has echoed a heartbeat that was sent after the read
was asked for (read-index, Raft thesis 6.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from trioha.dledger.entry_dispatcher import EntryDispatcher
from trioha.dledger.ledger import Ledger
from trioha.dledger.member_state import MemberState
from trioha.dledger.membership import ChangeKind
from trioha.dledger.messages import Heartbeat, HeartbeatResponse, PushResponse
from trioha.dledger.quorum import majority, reached_by_majority
from trioha.dledger.ready import Control, ReadReady
from trioha.errors import RemoteProtocolError

READS_MAX: Final = 10_000
"""Largest count of reads that wait for a majority; DLedger's limit of pending appends."""

_NEVER: Final = 1 << 62
_HEARD_MS: Final = attrgetter("heard_ms")
_ECHOED_MS: Final = attrgetter("echoed_ms")
_ECHOED_ROUND: Final = attrgetter("echoed_round")


class Leadership:
    """One term of one leader."""

    def __init__(self, state: MemberState, ledger: Ledger) -> None:
        self.dispatchers: dict[str, EntryDispatcher] = {}
        self.term_start_offset = state.end_offset
        """Beginning of this term in the log: only offsets beyond it are committed by counting."""
        self.lease_void = False
        """A transfer was begun in this term: there is no lease until the next term."""
        self.next_heartbeat_ms = state.now_ms
        self._push_due_ms = _NEVER
        """Time at which to push the bytes that wait for spares, and a commit that no bytes have
        carried."""
        self._asks_once_more = False
        """The last heartbeat came late, and no majority had answered before it."""
        self._state = state
        self._ledger = ledger
        self._read_round = 0
        self._reads: deque[tuple[int, int, int]] = deque()  # round, token, committed_offset
        self._controls_open = 1
        state.controls.append(Control(state.term, state.member_id))
        self._follow_configuration()

    @property
    def is_serving(self) -> bool:
        """Bytes of this term are committed, so the leader knows all that was ever committed."""
        return self._state.committed_offset > self.term_start_offset

    @property
    def has_open_change(self) -> bool:
        """A control record is not written yet, or a configuration is not committed."""
        state = self._state
        return self._controls_open > 0 or (
            state.configurations.latest_offset > state.committed_offset
        )

    @property
    def awaits_flush(self) -> bool:
        """A follower holds more than this member, or there is no follower to wait for.

        While none does, a commit needs an answer of a follower first. HOT.
        """
        held = self._state.held_offset
        return not self.dispatchers or any(
            one.held_offset > held for one in self.dispatchers.values()
        )

    @property
    def next_deadline_ms(self) -> int:
        """Time at which to call `on_time`."""
        return min(self.next_heartbeat_ms, self._push_due_ms)

    def on_time(self) -> bool:
        """Send heartbeats and repeat lost pushes. Return False if no majority answered in time."""
        state = self._state
        if state.now_ms >= self._push_due_ms:
            self.push_waiting()
        # Check-quorum (thesis 6.2): a leader that a majority does not hear may have been replaced.
        if state.now_ms < self.next_heartbeat_ms:
            return True
        if state.now_ms - self._heard_by_majority_ms() < state.settings.election_timeout_min_ms:
            self._asks_once_more = False
        # A process that stood still has asked nobody meanwhile: the silence proves nothing yet.
        elif self._asks_once_more or not state.is_late(self.next_heartbeat_ms):
            return False
        else:
            self._asks_once_more = True
        self.next_heartbeat_ms = state.now_ms + state.settings.heartbeat_interval_ms
        if self._reads:
            self._read_round = self._reads[-1][0]
        self._send_heartbeats()
        if self.may_push:
            for dispatcher in self.dispatchers.values():
                dispatcher.on_tick()
        return True

    @property
    def may_push(self) -> bool:
        """The term is open: the log ends with a byte of this term."""
        return self._state.terms.last_term == self._state.term

    def appended(self, end_offset: int) -> None:
        """Push what was appended to our log."""
        state = self._state
        # Leader append-only (Raft 5.3): a leader never cuts its own log.
        assert end_offset >= state.end_offset, f"end {end_offset} after {state.end_offset}"
        # The first bytes of a term are its control record, behind which logs differ visibly.
        if not self.may_push:
            state.terms = state.terms.begin(state.term, state.end_offset)
        state.end_offset = end_offset
        if state.settings.replicated_in_memory:
            state.held_offset = end_offset
            self.try_commit()
        self._dispatch_all()
        for dispatcher in self.dispatchers.values():
            self._push_waits(dispatcher)

    def control_appended(self, control: Control, end_offset: int) -> None:
        """Push a control record; a configuration counts from now on (thesis 4.1)."""
        state = self._state
        self._controls_open -= 1
        if control.configuration is not None:
            state.configurations = state.configurations.add(end_offset, control.configuration)
            self._follow_configuration()
        self.appended(end_offset)

    def change(self, kind: ChangeKind, member: str) -> str:
        """Begin to change the membership. Return the reason if that is not possible, else ""."""
        state = self._state
        if not self.is_serving:  # the bug of 2015, see membership
            return "this leader has not committed anything in its term yet; ask again in a moment"
        if self.has_open_change:  # one at a time: majorities have to overlap (thesis 4.1)
            return "another change is not committed yet; ask again in a moment"
        obstacle = state.configuration.obstacle(kind, member)
        if obstacle:
            return obstacle
        if kind is ChangeKind.PROMOTE:  # an empty voter would delay commits (thesis 4.2.1)
            behind = state.end_offset - self.dispatchers[member].held_offset
            if behind > state.settings.caught_up_bytes:
                return f"{member} is {behind} bytes behind; wait until it has caught up"
        self._controls_open += 1
        changed = state.configuration.changed(kind, member)
        state.controls.append(Control(state.term, state.member_id, changed))
        return ""

    def read(self, token: int) -> None:
        """Ask for leave to serve a read; it must see everything acknowledged so far."""
        state = self._state
        # Thesis 6.4: it knows what was acknowledged before its term once it has committed in it.
        if not self.is_serving or len(self._reads) >= READS_MAX:
            state.reads.append(ReadReady(token, -1))
        elif self.has_lease:
            state.reads.append(ReadReady(token, state.committed_offset))
        else:
            # Reads that come while a round is out share the next one.
            self._reads.append((self._read_round + 1, token, state.committed_offset))
            self._answer_reads()

    @property
    def has_lease(self) -> bool:
        """No other member can be leader at this moment."""
        return self._state.now_ms < self.lease_until_ms

    @property
    def lease_until_ms(self) -> int:
        """End of the lease by our clock; -1 for none."""
        settings = self._state.settings
        # After a transfer the target may be elected at once, whatever the voters promised.
        if self.lease_void or not settings.lease_reads:
            return -1
        return self._echoed_by_majority_ms() + settings.lease_ms

    def on_heartbeat_response(self, response: HeartbeatResponse) -> None:
        dispatcher = self.dispatchers.get(response.source)
        if dispatcher is None:  # as in `on_push_response`
            return
        self._check(response)
        state = self._state
        if response.sent_ms > state.now_ms or response.read_round > self._read_round:
            # Believed, it would lengthen our lease, or serve reads that nobody has confirmed.
            raise RemoteProtocolError(
                f"{response.source} answers a heartbeat of {response.sent_ms} ms, round "
                f"{response.read_round}, which was not sent yet"
            )
        dispatcher.on_heartbeat_response(response)
        self._push_waits(dispatcher)
        self.try_commit()
        self._answer_reads()

    def on_push_response(self, response: PushResponse) -> None:
        dispatcher = self.dispatchers.get(response.source)
        if dispatcher is None:  # a removed member, which has not heard of its removal
            return
        self._check(response)
        dispatcher.on_push_response(response)
        self._push_waits(dispatcher)
        self.try_commit()

    def try_commit(self) -> None:
        """Commit what a majority has on disk, and push the commit."""
        state = self._state
        held = reached_by_majority(self._held_by_voters())
        if held <= max(state.committed_offset, self.term_start_offset):
            return  # Raft 5.4.2: bytes of older terms are not committed by counting
        before = state.committed_offset
        state.commit(held)
        if state.settings.push_delay_ms:
            self._choose_spares()
        self._dispatch_all()
        if before < state.configurations.latest_offset <= held:
            # A removed member gets this commit before its dispatcher is deleted.
            self.push_waiting()
            self._follow_configuration()
        for dispatcher in self.dispatchers.values():
            self._push_waits(dispatcher)

    def end(self) -> None:
        """Reject all waiting reads: their clients ask the next leader."""
        self._state.reads.extend(ReadReady(token, -1) for _, token, _ in self._reads)
        self._reads.clear()
        self._state.controls.clear()

    def _check(self, response: PushResponse | HeartbeatResponse) -> None:
        """Errors: RemoteProtocolError if a follower claims more of our log than there is."""
        state = self._state
        end = state.end_offset
        matched = response.matched_offset
        # Its bytes beyond our log would count for a commit of bytes that nobody has.
        if not response.held_offset <= matched <= end:
            raise RemoteProtocolError(
                f"{response.source} says it holds {response.held_offset} and matches "
                f"{matched} of our {end} bytes: no honest follower does"
            )
        # We read on from there, and our log would look damaged to us.
        if state.begin_offset <= matched < end and not self._ledger.is_boundary(matched):
            raise RemoteProtocolError(
                f"{response.source} says it matches our log up to {matched}, within a record"
            )

    def _dispatch_all(self) -> None:
        if self.may_push:
            for dispatcher in self.dispatchers.values():
                dispatcher.dispatch()

    def _push_waits(self, dispatcher: EntryDispatcher) -> None:
        """Set the time to push what waits, in case it is not pushed before."""
        if self._push_due_ms == _NEVER and dispatcher.owes_push:
            self._push_due_ms = self._state.now_ms + self._state.settings.push_delay_ms

    def push_waiting(self) -> None:
        """Push what waits now."""
        self._push_due_ms = _NEVER
        if self.may_push:
            for dispatcher in self.dispatchers.values():
                dispatcher.push_waiting()

    def _choose_spares(self) -> None:
        """Make spares of the followers that no majority needs for the newest commit. HOT."""
        state = self._state
        voters, committed = state.configuration.voters, state.committed_offset
        # While this member's own disk is slower, two followers of three make the commit.
        holds = state.member_id in voters and state.held_offset >= committed
        needed = majority(len(voters)) - holds
        quick = [one for one in self.dispatchers.values() if not one.is_spare]
        if len(quick) == needed and all(one.held_offset >= committed for one in quick):
            return
        # A follower that is no spare stays none, unless it does not hold the commit.
        order = sorted(
            (one.held_offset < committed, one.is_spare, one.follower)
            for one in self.dispatchers.values()
            if one.follower in voters
        )
        chosen = {follower for _, _, follower in order[:needed]}
        for one in self.dispatchers.values():
            one.is_spare = one.follower not in chosen

    def _follow_configuration(self) -> None:
        """Keep one dispatcher per member; that of a removed member until the removal commits."""
        state = self._state
        members = set(state.configuration.members)
        members.update(state.configurations.at(state.committed_offset).members)
        for member in sorted(members - {state.member_id} - self.dispatchers.keys()):
            self.dispatchers[member] = EntryDispatcher(state, self._ledger, member)
        for member in sorted(self.dispatchers.keys() - members):
            del self.dispatchers[member]

    def _send_heartbeats(self) -> None:
        state = self._state
        for follower, dispatcher in self.dispatchers.items():
            dispatcher.heartbeat_sent(state.now_ms)
            state.messages.append(
                Heartbeat(
                    state.member_id,
                    follower,
                    state.term,
                    state.committed_offset,
                    self._read_round,
                    state.now_ms,
                )
            )

    def _answer_reads(self) -> None:
        """Serve the reads whose round a majority has echoed; begin the next round if reads wait."""
        while self._reads:
            echoed = reached_by_majority(self._of_voters(self._read_round, _ECHOED_ROUND))
            while self._reads and self._reads[0][0] <= echoed:
                _, token, committed_offset = self._reads.popleft()
                self._state.reads.append(ReadReady(token, committed_offset))
            if not self._reads or echoed < self._read_round:
                return
            self._read_round += 1
            self._send_heartbeats()

    def _held_by_voters(self) -> list[int]:
        """`_of_voters` for the offset that is held: each answer asks for it. HOT."""
        state = self._state
        return [
            state.held_offset if voter == state.member_id else self.dispatchers[voter].held_offset
            for voter in state.configuration.voters
        ]

    def _heard_by_majority_ms(self) -> int:
        return reached_by_majority(self._of_voters(self._state.now_ms, _HEARD_MS))

    def _echoed_by_majority_ms(self) -> int:
        return reached_by_majority(self._of_voters(self._state.now_ms, _ECHOED_MS))

    def _of_voters(self, own: int, value: Callable[[EntryDispatcher], int]) -> list[int]:
        """Return one number per voter: `own` for this member, `value` of the other dispatchers."""
        state = self._state
        return [
            own if voter == state.member_id else value(self.dispatchers[voter])
            for voter in state.configuration.voters
        ]
