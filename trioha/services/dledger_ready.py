"""The pass of a Raft member: something happens to the core, then all is done that it wants.

`Ready` says what and in which order; this is where it is done, on a real log and a real disk. There
is no inbox and no task: whoever has something (a message that was read, an fsync that has ended, an
alarm, a batch of puts) runs the pass itself, and what the pass queues leaves with the batch that it
is part of.

What the broker above does when it is told of a commit or a role may come back here (a delayed
message is delivered, a table is saved in the log): that waits until the pass is through.

Errors: a vote that cannot be saved and a log that cannot be written or read make the core step
down, so that whoever waits hears that the outcome is unknown, and end the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from trioha.dledger.messages import Message
from trioha.dledger.node import DLedgerNode
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite, Ready, SoftState
from trioha.errors import DiskFull, RemoteProtocolError, StoreError
from trioha.journal import EventSink
from trioha.services.clock import Clock
from trioha.services.dledger_bootstrap import VoteFile
from trioha.services.dledger_interfaces import Flusher, MemberLog, StateMachine
from trioha.services.remoting_link import Outboxes

Action = Callable[[DLedgerNode, int], object]
"""What happens to the core, at this millisecond."""


class PassListener(Protocol):
    """`DLedgerMember`: who is told, in this order."""

    def addresses(self) -> Mapping[str, str]: ...
    def on_change_appended(self, end_offset: int) -> None: ...
    def on_ready(self, ready: Ready) -> None:
        """Everything of it that had to be durable is."""

    def on_failed(self, soft_states: tuple[SoftState, ...]) -> None:
        """The disk has failed. Nothing will come any more."""

    def on_settled(self, node: DLedgerNode, now_ms: int) -> None: ...


class ReadyLoop:
    """The passes of one life of a member."""

    def __init__(
        self,
        node: DLedgerNode,
        log: MemberLog,
        votes: VoteFile,
        flush: Flusher,
        send: Callable[[Message], None],
        state_machine: StateMachine,
        listener: PassListener,
        outboxes: Outboxes,
        clock: Clock,
        events: EventSink,
    ) -> None:
        self.failure: StoreError | None = None
        self.is_busy = False
        """A pass is under way: what is asked for now happens after it."""
        self._node = node
        self._log = log
        self._votes = votes
        self._flush = flush
        self._send = send
        self._state_machine = state_machine
        self._listener = listener
        self._outboxes = outboxes
        self._clock = clock
        self._events = events
        self._postponed: deque[Action] = deque()

    def run(self, action: Action) -> None:
        """Let something happen to the core, then do all that it wants. HOT.

        Errors: RemoteProtocolError that `action` raised; StoreError when the disk fails.
        """
        if self.failure is not None:
            return
        if self.is_busy:
            self._postponed.append(action)
            return
        self.is_busy = True
        now_ms = self._clock.now_ms()
        refusal: RemoteProtocolError | None = None
        try:
            with self._outboxes.batch():
                self._take_growth(now_ms)
                try:
                    action(self._node, now_ms)
                except RemoteProtocolError as error:
                    # Its term may have been taken all the same: that is done first.
                    refusal = error
                self._do_ready(now_ms)
                while self._postponed:
                    self._take_growth(now_ms)
                    self._postponed.popleft()(self._node, now_ms)
                    self._do_ready(now_ms)
        except StoreError as error:
            # A vote, the log, or what was to be read of it for a follower.
            self.fail(error)
            raise
        finally:
            self.is_busy = False
        self._listener.on_settled(self._node, now_ms)
        if self._postponed:
            # The end of a batch may have made the broker append.
            self.run(self._postponed.popleft())
        if refusal is not None:
            raise refusal

    def fail(self, error: StoreError) -> None:
        """Nothing is said on the strength of what is not on disk; who waits is told that."""
        if self.failure is not None:
            return
        self.failure = error
        self._events.event("raft_failed", reason=str(error))
        self._node.storage_failed(str(error), self._clock.now_ms())
        ready = self._node.ready()
        with self._outboxes.batch():
            self._listener.on_failed(ready.soft_states if ready is not None else ())

    def _take_growth(self, now_ms: int) -> None:
        """What the broker has appended counts before anything else happens: it was the leader's
        when it was written."""
        end = self._log.end_offset
        if end != self._node.state.end_offset:
            self._node.appended(end, now_ms)
            self._do_ready(now_ms)
            self._flush.grown_nowait(urgent=True)

    def _do_ready(self, now_ms: int) -> None:
        """The fields of each `Ready`, top to bottom."""
        node = self._node
        written = False
        while (ready := node.ready()) is not None:
            controls = self._make_durable(ready)
            if ready.log or controls:
                written = written or bool(ready.log)
                self._flush.grown_nowait(urgent=True)
            # Both wait for the end of the batch. Answers leave first: somebody waits for them,
            # and nobody for what followers are told of the commit.
            self._listener.on_ready(ready)
            for message in ready.messages:
                self._send(message)
            node.advance(ready)
            for control, end in controls:
                node.control_appended(control, end, now_ms)
            if len(controls) < len(ready.controls):
                # Not ideal: whoever asked for a change hears that its outcome is unknown.
                node.set_writable(False, now_ms)
        if written:
            self._state_machine.on_log_written(node.state.end_offset)

    def _make_durable(self, ready: Ready) -> list[tuple[Control, int]]:
        """Votes and the log; returns the records of our own that were appended.

        Errors: StoreError.
        """
        if ready.hard_state is not None:
            self._votes.save(ready.hard_state)
        log = self._log
        for operation in ready.log:
            match operation:
                case LogWrite():
                    log.write(operation)
                case LogTruncate(phy_offset):
                    log.truncate(operation)
                    self._state_machine.on_log_cut(phy_offset)
                case LogReset(begin_offset):
                    log.reset(operation)
                    self._state_machine.on_log_cut(begin_offset)
        controls = []
        for control in ready.controls:
            addresses = self._listener.addresses()
            try:
                end = log.append_control(control, addresses, self._clock.wall_ms())
            except DiskFull:
                break
            controls.append((control, end))
            if control.configuration is not None:
                self._listener.on_change_appended(end)
        return controls
