"""One member of a Raft group: messages and time in, a `Ready` out. The façade of this package.

Theory of operation.

    node = RaftNode("n0", settings, recovered, ledger, rng, now_ms)
    node.step(message, now_ms)            # a peer's message
    node.on_time(now_ms)                  # at node.next_deadline_ms, never earlier
    if node.may_append: ...               # the leader's shell writes to its log, then calls
        node.appended(end_offset, now_ms)
    node.flushed(end_offset, cut_count, now_ms)      # an fsync has ended
    while (ready := node.ready()) is not None:       # do its fields from top to bottom
        ...
        node.advance(ready)

No other call may come between `ready` and its `advance`, except `storage_failed`. The log itself is
the broker's; the core knows its offsets and terms and passes bytes through, so a batch of a
thousand messages is one number here (docs/decisions/0014-raft-log-is-the-commitlog.md).

The algorithm is that of Ongaro's thesis, the interface that of etcd/raft. It replaces DLedger 0.3's
DLedgerEntryPusher, DLedgerLeaderElector and MemberState; where it departs, the modules say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trioha.dledger import messages as say
from trioha.dledger.entry_handler import EntryHandler
from trioha.dledger.leader_elector import LeaderElector
from trioha.dledger.leadership import Leadership
from trioha.dledger.ledger import Ledger
from trioha.dledger.member_state import MemberState, Recovered
from trioha.dledger.membership import ChangeKind
from trioha.dledger.ready import Control, HardState, ReadReady, Ready, Role
from trioha.dledger.settings import TERM_ROOM, RaftSettings
from trioha.dledger.status import RaftStatus, status_of
from trioha.dledger.transfer import Transfer
from trioha.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from random import Random

_FROM_LEADER: Final = (say.Heartbeat, say.Push, say.TimeoutNow)


class RaftNode:
    """One member. The caller gives it messages, the time and a source of random numbers."""

    def __init__(
        self,
        member_id: str,
        settings: RaftSettings,
        recovered: Recovered,
        ledger: Ledger,
        rng: Random,
        now_ms: int,
    ) -> None:
        self.state = MemberState(member_id, settings, recovered, rng, now_ms)
        self._ledger = ledger
        self._elector = LeaderElector(self.state)
        self._handler = EntryHandler(self.state, ledger)
        self._leadership: Leadership | None = None
        self._transfer: Transfer | None = None
        self._told_commit = -1
        self._ready: Ready | None = None

    # The shell's questions.

    @property
    def may_append(self) -> bool:
        """The shell may write to its log: this member leads and is not handing over."""
        return (
            self._leadership is not None
            and self._leadership.may_push
            and self._transfer is not None
            and not self._transfer.target
            and self.state.writable
        )

    @property
    def is_serving(self) -> bool:
        """This member leads and knows all that is committed: its broker is the master."""
        return self._leadership is not None and self._leadership.is_serving

    @property
    def awaits_flush(self) -> bool:
        """The end of an fsync may make this member answer or commit at once.

        Otherwise the shell may call `flushed` with the next input, and spare a wake-up.
        """
        return self._leadership is None or self._leadership.awaits_flush

    @property
    def next_deadline_ms(self) -> int:
        """Time at which to call `on_time`."""
        if self._leadership is None:
            return self.state.election_deadline_ms
        if self._transfer is not None and self._transfer.target:
            return min(self._leadership.next_deadline_ms, self._transfer.deadline_ms)
        return self._leadership.next_deadline_ms

    def status(self) -> RaftStatus:
        return status_of(self.state, self._leadership, self._transfer)

    # Inputs.

    def step(self, message: say.RaftMessage, now_ms: int) -> None:
        """Handle a message of a peer.

        Errors: RemoteProtocolError if it breaks the protocol: the caller ends the connection.
        """
        self._begin(now_ms)
        state = self.state
        if message.target != state.member_id or message.source == state.member_id:
            # A vote counted for the wrong member would break election safety (Raft 5.2).
            raise RemoteProtocolError(
                f"{message.source} wrote to {message.target}, this is {state.member_id}; "
                "compare dLegerPeers and dLegerSelfId of both"
            )
        if message.term - state.term > TERM_ROOM:
            raise RemoteProtocolError(
                f"{message.source} has term {message.term}, this member {state.term}: no group "
                "comes so far by elections"
            )
        if message.term > state.term:
            if not self._take_term(message):
                return
        elif message.term < state.term:
            self._answer_stale(message)
            return
        self._step_in_term(message)

    def on_time(self, now_ms: int) -> None:
        """Do what is due at `now_ms`: an election, heartbeats, the end of a transfer."""
        self._begin(now_ms)
        state = self.state
        if self._leadership is None:
            if state.now_ms >= state.election_deadline_ms and self._elector.on_election_timeout():
                self._lead()
            return
        if not self._leadership.on_time():
            self._step_down("no majority heard")
            return
        if self._transfer is not None:
            self._transfer.step()
            self._transfer.look_for_preferred()

    def peer_lost(self, member_id: str, now_ms: int) -> None:
        """Note that all connections with a member have ended, as they do when its process dies."""
        self._begin(now_ms)
        self._elector.on_peer_lost(member_id)

    def appended(self, end_offset: int, now_ms: int) -> None:
        """Note that the leader's shell has written whole records, up to `end_offset`."""
        if not self.may_append:
            raise LocalProtocolError(f"{self.state.role.value} must not append: ask `may_append`")
        self._begin(now_ms)
        assert self._leadership is not None
        self._leadership.appended(end_offset)

    def control_appended(self, control: Control, end_offset: int, now_ms: int) -> None:
        """Note that the leader's shell has written a control record, up to `end_offset`."""
        self._begin(now_ms)
        if self._leadership is not None and control.term == self.state.term:
            self._leadership.control_appended(control, end_offset)

    def flushed(self, end_offset: int, cut_count: int, now_ms: int) -> None:
        """Note the end of an fsync that began when the log ended here, after `cut_count` cuts."""
        self._begin(now_ms)
        if not self.state.flushed(end_offset, cut_count):
            return
        if self._leadership is None:
            self._handler.on_flushed()
            return
        self._leadership.try_commit()
        self._after_commit()

    def transfer_leadership(self, target: str, now_ms: int) -> str:
        """Begin to hand over to `target`. Return the reason if that is not possible, else ""."""
        self._begin(now_ms)
        if self._transfer is None:
            return self._not_leader()
        return self._transfer.begin(target)

    def change_membership(self, kind: ChangeKind, member: str, now_ms: int) -> str:
        """Begin to change one member. Return the reason if that is not possible, else ""."""
        self._begin(now_ms)
        if self._leadership is None or self._transfer is None:
            return self._not_leader()
        if self._transfer.target:
            return f"the leadership is being handed to {self._transfer.target}"
        return self._leadership.change(kind, member)

    def read_index(self, token: int, now_ms: int) -> None:
        """Ask for leave to serve a read; the answer comes in `Ready.reads`."""
        self._begin(now_ms)
        if self._leadership is None:
            self.state.reads.append(ReadReady(token, -1))
        else:
            self._leadership.read(token)

    def set_writable(self, writable: bool, now_ms: int) -> None:
        """Note that the disk is full or has room again. A leader whose disk is full steps down."""
        self._begin(now_ms)
        self.state.writable = writable
        if not writable:
            self._resign("disk full")

    def resign(self, reason: str, now_ms: int) -> None:
        """Step down, for example because the broker is too slow; hand over if possible."""
        self._begin(now_ms)
        self._resign(reason)

    def storage_failed(self, reason: str, now_ms: int) -> None:
        """Note that a write or fsync failed. Drop the messages that rely on it, and step down."""
        self._begin(now_ms, discard=True)
        state = self.state
        state.failed = state.failed or reason
        state.messages.clear()
        state.log.clear()
        state.hard_state_dirty = False
        self._step_down(f"disk failed: {reason}")

    def log_trimmed(self, begin_offset: int) -> None:
        """Note that retention has deleted committed bytes before `begin_offset`."""
        state = self.state
        assert begin_offset <= state.committed_offset, (
            f"deleted up to {begin_offset}, committed {state.committed_offset}"
        )
        state.begin_offset = max(state.begin_offset, begin_offset)
        state.terms = state.terms.drop_before(begin_offset)
        state.configurations = state.configurations.drop_before(begin_offset)

    # Output.

    def ready(self) -> Ready | None:
        """Return the work that is to be done, the same until `advance`; None if there is none."""
        state = self.state
        if self._ready is None and (
            state.messages
            or state.log
            or state.controls
            or state.hard_state_dirty
            or state.committed_offset > self._told_commit
            or state.reads
            or state.soft_states
        ):
            hard: HardState | None = state.hard_state if state.hard_state_dirty else None
            self._ready = Ready(
                hard,
                tuple(state.log),
                tuple(state.controls),
                tuple(state.messages),
                state.committed_offset,
                tuple(state.reads),
                tuple(state.soft_states),
            )
            self._told_commit = state.committed_offset
            state.hard_state_dirty = False
            state.log.clear()
            state.controls.clear()
            state.messages.clear()
            state.reads.clear()
            state.soft_states.clear()
        return self._ready

    def advance(self, ready: Ready) -> None:
        """Note that the shell has done the work of `ready`."""
        if ready is not self._ready:
            raise LocalProtocolError("advance must be given what ready returned last")
        self._ready = None

    # Between the parts.

    def _begin(self, now_ms: int, *, discard: bool = False) -> None:
        if self._ready is not None and not discard:
            raise LocalProtocolError("a Ready is out: advance before anything else happens")
        self._ready = None
        # A clock that goes back stands still here: deadlines and leases never move back.
        self.state.now_ms = max(self.state.now_ms, now_ms)

    def _take_term(self, message: say.RaftMessage) -> bool:
        """Adopt a newer term (Raft 5.1). Return False if the message is dealt with already.

        A pre-vote and a disturbance do not change our term (thesis 9.6, 4.2.3).
        """
        state = self.state
        if isinstance(message, say.VoteRequest):
            if message.is_pre or self._elector.is_disturbance(message):
                self._elector.on_vote_request(message)
                return False
        elif isinstance(message, say.VoteResponse) and message.is_pre and message.granted:
            return True  # a granted pre-vote is for a term that no member has yet
        leader_id = message.source if isinstance(message, _FROM_LEADER) else ""
        self._end_leadership()
        state.become_follower(message.term, leader_id, f"{message.source} has term {message.term}")
        return True

    def _answer_stale(self, message: say.RaftMessage) -> None:
        """Tell a leader or candidate of an older term that there is a newer one (Raft 5.1)."""
        state = self.state
        if isinstance(message, _FROM_LEADER):
            state.messages.append(say.StaleTerm(state.member_id, message.source, state.term))
        elif isinstance(message, say.VoteRequest):
            state.messages.append(
                say.VoteResponse(
                    state.member_id,
                    message.source,
                    state.term,
                    message.is_pre,
                    False,
                    f"term is {state.term}",
                )
            )

    def _step_in_term(self, message: say.RaftMessage) -> None:
        """Handle a message of our term, or an answer to our pre-vote."""
        if isinstance(message, _FROM_LEADER):
            self.state.hear_leader(message.source)
        match message:
            case say.Append():
                self._handler.on_append(message)
            case say.Heartbeat():
                self._handler.on_heartbeat(message)
            case say.PushResponse() if self._leadership is not None:
                self._leadership.on_push_response(message)
                self._after_commit()
            case say.HeartbeatResponse() if self._leadership is not None:
                self._leadership.on_heartbeat_response(message)
                self._after_commit()
            case say.VoteRequest():
                self._elector.on_vote_request(message)
            case say.VoteResponse():
                if self._elector.on_vote_response(message):
                    self._lead()
            case say.Compare():
                self._handler.on_compare(message)
            case say.Truncate():
                self._handler.on_truncate(message)
            case say.Install():
                self._handler.on_install(message)
            case say.TimeoutNow():
                if self._elector.stand_now(f"{message.source} hands over"):
                    self._lead()

    def _lead(self) -> None:
        self._leadership = Leadership(self.state, self._ledger)
        self._transfer = Transfer(self.state, self._leadership)
        self._leadership.on_time()

    def _after_commit(self) -> None:
        """Go on with a transfer; step down once our own removal is committed (thesis 4.2.2)."""
        state = self.state
        if self._transfer is not None:
            self._transfer.step()
        if (
            state.member_id not in state.configuration.voters
            and state.configurations.latest_offset <= state.committed_offset
        ):
            self._resign("no voter any more")

    def _resign(self, reason: str) -> None:
        if self._transfer is not None:
            self._transfer.resign()
        self._step_down(reason)

    def _step_down(self, reason: str) -> None:
        if self.state.role is not Role.FOLLOWER:
            self._end_leadership()
            self.state.become_follower(self.state.term, "", reason)

    def _end_leadership(self) -> None:
        if self._leadership is not None:
            self._leadership.end()
        self._leadership = self._transfer = None

    def _not_leader(self) -> str:
        leader = self.state.leader_id
        return f"{self.state.member_id} is not the leader; " + (
            f"ask {leader}" if leader else "there is none at the moment"
        )
