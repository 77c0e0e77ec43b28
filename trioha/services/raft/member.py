"""A member of a Raft group: the core, its peers, its clock, and its seam to the broker.

Its tasks are in `member_tasks`. They call `begin` once the vote record says that this member takes
part (bootstrap.py). From then on every input of the core is a pass (ready.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import trio

from trioha.broker.raft.admin import RaftAdmin
from trioha.dledger.bootstrap import PeerNote
from trioha.dledger.member_state import Recovered
from trioha.dledger.membership import ChangeKind, ConfigurationTable
from trioha.dledger.messages import Append, RaftMessage
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import Ready, Role, SoftState
from trioha.errors import StoreError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.services.loop.alarm import Alarm
from trioha.services.raft.bootstrap import Bootstrap, VoteFile
from trioha.services.raft.interfaces import (
    Flusher,
    MemberContext,
    MemberLog,
    MemberSetup,
    StateMachine,
)
from trioha.services.raft.peers import Peers
from trioha.services.raft.ready import Action, ReadyLoop
from trioha.services.raft.status import member_status
from trioha.services.raft.watch import CommitWatch, RoleWatch

_CONTROL_BYTES = 4096
"""Room for a control record and the blank before it."""


class RaftMember:
    """One member, from the moment its store is open."""

    def __init__(
        self,
        setup: MemberSetup,
        log: MemberLog,
        votes: VoteFile,
        state_machine: StateMachine,
        flush: Flusher,
        context: MemberContext,
        rng: Random,
    ) -> None:
        self.setup = setup
        self.member_id = setup.door.member_id
        self.node: RaftNode | None = None
        """The core; None until this member takes part."""
        self.peers = Peers(setup, self.note, self._on_notes, self._on_peer_lost, self.step, context)
        self.bootstrap = Bootstrap(votes, setup.door, self.note, self.peers.notes, context.events)
        self.admin = RaftAdmin(self)
        self._log = log
        self._found = log.recover(votes.birth.configuration(setup.door.founders))
        self._votes = votes
        self._state_machine = state_machine
        self._flush = flush
        self._context = context
        self._clock = context.clock
        self._rng = rng
        self._loop: ReadyLoop | None = None
        self.alarm = Alarm(context.clock, self._next_deadline_ms, self._on_alarm)
        """Wakes the core at its deadline."""
        self._reads: dict[int, Callable[[int], None]] = {}
        self._read_token = 0
        self._new_addresses: dict[str, str] = {}
        """Addresses of members that operators are about to add."""
        self._seen_configurations: ConfigurationTable | None = None
        self._told_commit = -1
        self._commit_watch = CommitWatch(context.events)
        self._role_watch = RoleWatch(context.events)
        self.changed = trio.Event()
        """Set when the role, the leader or a transfer may have changed."""
        self.peers.set_members(self._other_founders())

    # The broker's questions.

    @property
    def role(self) -> Role:
        return self.node.state.role if self.node is not None else Role.FOLLOWER

    @property
    def term(self) -> int:
        return self.node.state.term if self.node is not None else 0

    @property
    def leader_id(self) -> str:
        return self.node.state.leader_id if self.node is not None else ""

    @property
    def committed_offset(self) -> int:
        return self.node.state.committed_offset if self.node is not None else 0

    @property
    def cut_count(self) -> int:
        """Count of cuts. Read it before an fsync begins, for `flushed`."""
        return self.node.state.cut_count if self.node is not None else 0

    @property
    def may_append(self) -> bool:
        """The broker may write to its log now. HOT."""
        return self.node is not None and not self.has_failed and self.node.may_append

    @property
    def is_serving(self) -> bool:
        """This member leads and knows all that was ever committed."""
        return self.node is not None and not self.has_failed and self.node.is_serving

    @property
    def transfer_outcome(self) -> tuple[str, str]:
        """Target of the present transfer, and the failure of the last; each "" for none."""
        if self.node is None:
            return "", ""
        status = self.node.status()
        return status.transfer_target, status.transfer_error

    @property
    def elections(self) -> int:
        """Count of election rounds that this member began."""
        return self.node.state.election_rounds if self.node is not None else 0

    @property
    def uncommitted_age_ms(self) -> int:
        """Milliseconds since the last progress of the commit; 0 if all is committed."""
        return self._commit_watch.age_ms(self._clock.now_ms())

    def handlers(self) -> Mapping[int, Handler]:
        return {**self.peers.listener.handlers(), **self.admin.handlers()}

    def channel_closed(self, channel: Channel) -> None:
        self.peers.listener.channel_closed(channel)
        self.admin.channel_closed(channel)

    def addresses(self) -> dict[str, str]:
        """Return member id -> host:port. A founder's configured address wins over the log's."""
        own = {self.member_id: self.setup.address}
        return {**self._new_addresses, **own, **self._log.addresses(), **self.setup.founders}

    def status(self) -> dict[str, object]:
        """Return the status for people and programs, in plain msgpack values."""
        return member_status(self)

    def note(self) -> PeerNote:
        """Return our own note for peers."""
        terms, _, begin, end = self._found
        begun = self.node is not None
        voters = self.node.state.configuration.voters if self.node is not None else ()
        return PeerNote(
            begun=self._votes.hard is not None,
            birth=self._votes.birth,
            # Only a member that has not begun tells it: each new number would be a changed note.
            log_bytes=0 if begun else end - begin,
            has_terms=bool(terms.rows),
            is_leader=self.is_serving,
            voters=voters if self.is_serving else (),
            leader_id=self.leader_id,
            leader_address=self.addresses().get(self.leader_id, ""),
        )

    # Inputs.

    def step(self, message: RaftMessage) -> None:
        """Handle a peer's message. HOT.

        Errors: RemoteProtocolError; StoreError if the disk fails.
        """
        if isinstance(message, Append):
            self._watch_room(len(message.body) + _CONTROL_BYTES)
        self._run(lambda node, now_ms: node.step(message, now_ms))

    def log_grown(self) -> None:
        """Push the bytes that the broker has appended, as it may while `may_append`. HOT."""
        if self.may_append:
            self._run(_nothing)

    def flushed(self, end_offset: int, cut_count: int) -> None:
        """Note the end of an fsync that began when the log ended here, after `cut_count` cuts. HOT.

        Errors: StoreError if the disk fails.
        """
        self._run(lambda node, now_ms: node.flushed(end_offset, cut_count, now_ms))

    def flush_failed(self, error: StoreError) -> None:
        """Step down at once: an fsync has failed. The node must end."""
        if self._loop is not None:
            self._loop.fail(error)

    def log_trimmed(self, begin_offset: int) -> None:
        """Note that retention has deleted segments and the log begins here."""
        if self.node is not None:
            self.node.log_trimmed(begin_offset)

    def resign(self, reason: str) -> None:
        """Step down because the broker above cannot lead."""
        self._run(lambda node, now_ms: node.resign(reason, now_ms))

    def read(self, on_ready: Callable[[int], None]) -> None:
        """Ask for leave to answer a read that must see all that was acknowledged before.

        `on_ready` is called once with the offset that has to be applied first, within this call if
        there is a lease; with -1 if this member does not lead, or steps down.
        """
        if self.node is None or self.has_failed:
            on_ready(-1)
            return
        self._read_token += 1
        token = self._read_token
        self._reads[token] = on_ready
        self._run(lambda node, now_ms: node.read_index(token, now_ms))

    def transfer(self, target: str) -> str:
        """Begin to hand over to `target`. Return the reason if that is not possible, else ""."""
        return self._ask(lambda node, now_ms: node.transfer_leadership(target, now_ms))

    def change(self, kind: ChangeKind, member: str, address: str = "") -> str:
        """Begin to change one member. Return the reason if that is not possible, else ""."""
        if address:
            self._new_addresses[member] = address
        obstacle = self._ask(lambda node, now_ms: node.change_membership(kind, member, now_ms))
        if obstacle:
            self._new_addresses.pop(member, None)
        return obstacle

    # Calls of a pass (`PassListener`).

    def on_change_appended(self, end_offset: int) -> None:
        """Note that a change of members is in our log."""
        self.admin.change_appended(end_offset)

    def on_ready(self, ready: Ready) -> None:
        """Tell the commit, roles and reads of a `Ready`.

        Operators' requests come first: one may wait for the very commit that ends the leadership.
        """
        committed_offset = ready.committed_offset
        is_news = committed_offset != self._told_commit
        self._told_commit = committed_offset
        if is_news:
            self._commit_watch.committed(committed_offset)
            self.admin.on_commit(committed_offset)
        for soft in ready.soft_states:
            self._tell_role(soft)
        if is_news:
            self._state_machine.on_commit(committed_offset)
        for read in ready.reads:
            self._reads.pop(read.token)(read.committed_offset)

    def on_failed(self, soft_states: tuple[SoftState, ...]) -> None:
        """Tell the step-down after a failed disk, and reject all waiting reads."""
        for soft in soft_states:
            self._tell_role(soft)
        reads, self._reads = self._reads, {}
        for on_ready in reads.values():
            on_ready(-1)

    def on_settled(self, node: RaftNode, now_ms: int) -> None:
        """Look at what has changed at the end of a pass. HOT."""
        state = node.state
        self._commit_watch.look(state.end_offset - state.committed_offset, now_ms)
        if state.configurations is not self._seen_configurations:
            self._follow_configuration(node)
        if self._flush.is_quiet and node.awaits_flush:
            self._flush.awaited_nowait()
        self.alarm.check()
        self._state_machine.on_settled()

    # Inside.

    @property
    def has_failed(self) -> bool:
        return self._loop is not None and self._loop.failure is not None

    def _tell_role(self, soft: SoftState) -> None:
        self._role_watch.look(soft)
        self._state_machine.on_soft_state(soft)
        self.admin.on_soft_state(soft)
        self.changed.set()

    def begin(self) -> None:
        """Make the core, once there is a vote record."""
        votes, setup = self._votes, self.setup
        assert votes.hard is not None, "a member without a vote record"
        initial = votes.birth.configuration(setup.door.founders)
        terms, configurations, begin, end = self._log.recover(initial)
        recovered = Recovered(
            hard_state=votes.hard,
            terms=terms,
            configurations=configurations,
            begin_offset=begin,
            end_offset=end,
        )
        self.node = RaftNode(
            self.member_id,
            setup.settings,
            recovered,
            self._log,
            self._rng,
            self._clock.now_ms(),
        )
        self._loop = ReadyLoop(
            self.node,
            self._log,
            votes,
            self._flush,
            self.peers.send,
            self._state_machine,
            self,
            self._context,
        )
        self._run(_nothing)

    def _run(self, action: Action) -> None:
        """Run a pass, if the core exists. HOT."""
        if self._loop is not None:
            self._loop.run(action)

    def _ask(self, question: Callable[[RaftNode, int], str]) -> str:
        """Put an operator's request to the core; return its answer."""
        loop = self._loop
        if loop is None:
            return f"{self.member_id} does not take part yet: {self.bootstrap.waits_for}"
        if loop.failure is not None or loop.is_busy:
            return f"{self.member_id} cannot do that at this moment; ask again"
        answer = ""

        def ask(node: RaftNode, now_ms: int) -> None:
            nonlocal answer
            answer = question(node, now_ms)

        loop.run(ask)
        return answer

    def _watch_room(self, size: int) -> None:
        """Tell the core whether the disk has room for `size` bytes and for a batch.

        Without room a leader steps down and a follower appends nothing.
        """
        node = self.node
        if node is not None and not self.has_failed:
            writable = self._log.has_room(max(size, self.setup.settings.batch_bytes_max))
            if writable != node.state.writable:
                self._run(lambda node, now_ms: node.set_writable(writable, now_ms))

    def _next_deadline_ms(self) -> int | None:
        node = self.node
        if node is None or self.has_failed:
            return None
        deadline_ms = self.admin.next_deadline_ms
        ours = node.next_deadline_ms
        return ours if deadline_ms is None else min(ours, deadline_ms)

    def _on_alarm(self, instant: Instant) -> None:
        now_ms = instant.now_ms
        self._watch_room(_CONTROL_BYTES)
        self._run(lambda node, _: node.on_time(now_ms))
        with self._context.outboxes.batch():
            self.admin.on_time(now_ms)
        if self.role is Role.LEADER:
            self._commit_watch.on_time(now_ms)
            self._promote_founders()
        self.changed.set()

    def _promote_founders(self) -> None:
        """Promote founders that began as learners of a converted store and are up to date."""
        node, birth = self.node, self._votes.birth
        if node is None or not birth.seed or not node.state.configuration.learners:
            return
        bytes_max = self.setup.settings.batch_bytes_max
        for one in node.status().followers if self.is_serving else ():
            is_current = one.held_offset > 0 and one.gap_bytes <= bytes_max
            if one.member_id in birth.founders and not one.is_voter and is_current:
                self.change(ChangeKind.PROMOTE, one.member_id)

    def _follow_configuration(self, node: RaftNode) -> None:
        state = node.state
        table = self._seen_configurations = state.configurations
        # A removed member gets the commit of its removal, so it stays connected until then.
        members = {*table.latest.members, *table.at(state.committed_offset).members}
        addresses = self.addresses()
        known = (members - {self.member_id}) & addresses.keys()
        self.peers.set_members({member: addresses[member] for member in known})

    def _on_peer_lost(self, member_id: str) -> None:
        """Tell the core that its leader's process may be dead."""
        if self.role is Role.FOLLOWER and self.leader_id == member_id:
            self._run(lambda node, now_ms: node.peer_lost(member_id, now_ms))

    def _on_notes(self) -> None:
        """Before the core exists, connect to the leaders that notes name; then decide again."""
        if self.node is None:
            notes = self.peers.notes().values()
            leaders = {note.leader_id: note.leader_address for note in notes if note.leader_address}
            leaders.pop(self.member_id, None)
            self.peers.set_members({**leaders, **self._other_founders()})
        self.bootstrap.on_notes()

    def _other_founders(self) -> dict[str, str]:
        """Return the other founders' addresses, without one that has our own address now."""
        setup = self.setup
        return {
            one: at
            for one, at in setup.founders.items()
            if one != self.member_id and at != setup.address
        }


def _nothing(node: RaftNode, now_ms: int) -> None:
    pass
