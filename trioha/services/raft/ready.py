"""The pass of a Raft member: gives the core one input, then does all the work that it asks for.

`Ready` tells the work and its order; the pass does it, on a real log and a real disk. There is no
inbox and no task. The code that has an input (a message, the end of an fsync, an alarm, a batch of
puts) runs the pass itself. The messages of a pass leave with the batch that it is part of.

When the broker learns of a commit or a role, it may call back (it delivers a delayed message, or
saves a table in the log). Such an input waits until the pass is finished.

Errors: a vote that cannot be saved, or a log that cannot be written or read, makes the core step
down and ends the node. Waiting requests get the answer "outcome unknown".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from trioha.dledger.messages import RaftMessage
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite, Ready, SoftState
from trioha.errors import DiskFull, RemoteProtocolError, StoreError
from trioha.services.raft.bootstrap import VoteFile
from trioha.services.raft.interfaces import Flusher, MemberContext, MemberLog, StateMachine

Action = Callable[[RaftNode, int], object]
"""One input of the core, at the given millisecond."""


class PassListener(Protocol):
    """The part of a `RaftMember` that a pass calls."""

    def addresses(self) -> Mapping[str, str]: ...
    def on_change_appended(self, end_offset: int) -> None: ...
    def on_ready(self, ready: Ready) -> None:
        """The hard state and log operations of `ready` are done; the hard state is durable."""

    def on_failed(self, soft_states: tuple[SoftState, ...]) -> None:
        """The disk has failed. This is the last call."""

    def on_settled(self, node: RaftNode, now_ms: int) -> None: ...


class ReadyLoop:
    """The passes of one member, from the start of its core to the end of its process."""

    def __init__(
        self,
        node: RaftNode,
        log: MemberLog,
        votes: VoteFile,
        flush: Flusher,
        send: Callable[[RaftMessage], None],
        state_machine: StateMachine,
        listener: PassListener,
        context: MemberContext,
    ) -> None:
        self.failure: StoreError | None = None
        self.is_busy = False
        """A pass is in progress: inputs wait until it ends."""
        self._node = node
        self._log = log
        self._votes = votes
        self._flush = flush
        self._send = send
        self._state_machine = state_machine
        self._listener = listener
        self._context = context
        self._clock = context.clock
        self._outboxes = context.outboxes
        self._postponed: deque[Action] = deque()
        # A group that replicates in memory counts bytes when they are appended: no put waits.
        self._waits_for_disk = not node.state.settings.replicated_in_memory

    def run(self, action: Action) -> None:
        """Give the core an input, then do all the work that it asks for. HOT.

        Errors: RemoteProtocolError that `action` raised; StoreError if the disk fails.
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
            with self._outboxes:
                if self._flush.is_quiet:
                    # If it has ended meanwhile, it counts in this pass, behind the input.
                    self._flush.collect_nowait()
                self._take_growth(now_ms)
                try:
                    action(self._node, now_ms)
                except RemoteProtocolError as error:
                    # The core may have adopted the message's term: finish the pass first.
                    refusal = error
                self._do_ready(now_ms)
                while self._postponed:
                    self._take_growth(now_ms)
                    self._postponed.popleft()(self._node, now_ms)
                    self._do_ready(now_ms)
        except StoreError as error:
            # The vote record or the log failed, also in a read for a follower.
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
        """Step down and drop all messages; waiting requests are answered as unknown."""
        if self.failure is not None:
            return
        self.failure = error
        self._context.events.event("raft_failed", reason=str(error))
        self._node.storage_failed(str(error), self._clock.now_ms())
        ready = self._node.ready()
        with self._outboxes:
            self._listener.on_failed(ready.soft_states if ready is not None else ())

    def _take_growth(self, now_ms: int) -> None:
        """Tell the core what the broker has appended, before the next input.

        This member led when the bytes were written; the next input may end that.
        """
        end = self._log.end_offset
        if end != self._node.state.end_offset:
            self._node.appended(end, now_ms)
            self._do_ready(now_ms)
            self._flush.grown_nowait(urgent=self._waits_for_disk, quiet=not self._node.awaits_flush)

    def _do_ready(self, now_ms: int) -> None:
        """Do the fields of each `Ready` from top to bottom."""
        node = self._node
        written = False
        while (ready := node.ready()) is not None:
            controls = self._make_durable(ready)
            if ready.log or controls:
                written = written or bool(ready.log)
                self._flush.grown_nowait(urgent=self._waits_for_disk)
            # Both leave at the end of the batch. Clients' answers come first: a client waits for
            # them, while no request waits for the commit that followers learn.
            self._listener.on_ready(ready)
            for message in ready.messages:
                self._send(message)
            node.advance(ready)
            for control, end in controls:
                node.control_appended(control, end, now_ms)
            if len(controls) < len(ready.controls):
                # Not ideal: an operator's change is answered with "outcome unknown".
                node.set_writable(False, now_ms)
        if written:
            self._state_machine.on_log_written(node.state.end_offset)

    def _make_durable(self, ready: Ready) -> list[tuple[Control, int]]:
        """Save the vote, write the log and append control records; return those with their ends.

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
