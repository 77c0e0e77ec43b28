"""One remoting connection on Trio: a read task, a write task and a lease around both.

`Turns` gets what one read has brought, mostly without the read task (`Transport.receive_each`). It
handles all its requests in one go, or 256 of them at a time (`trioha.remoting.requests`); the read
task goes on with the others. The answers of such a batch leave in one `try_send` at its end, those
of a long batch in several on the way. Only then comes what else the batch set off: the push to
slaves, parked pulls, timers.
The write task sleeps until the kernel rejected bytes, or until a frame is queued outside a batch.
The links of a node share `Outboxes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import attrs
import trio

from trioha.errors import RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import OnResponse, RemotingConnection
from trioha.remoting.fast_failure import WaitLimits
from trioha.remoting.outbox import Outbox
from trioha.remoting.outboxes import Outboxes
from trioha.remoting.requests import TURN_UNSENT_BYTES, Requests, not_supported
from trioha.remoting.traffic_budget import FrameLimits
from trioha.services.loop.clock import Clock, sleep_until_ms
from trioha.services.loop.transport import SocketTransport, Transport, parse_address
from trioha.services.remoting.link_sender import LinkSender
from trioha.services.remoting.turns import Turns
from trioha.wire.message_id import pack_host
from trioha.wire.remoting_command import RemotingCommand

_SLOW_LINK_BYTES_PER_S = 65_536  # a large frame gets its time at this rate beside the frame timeout
_SLOW_PEER_BYTES = 262_144  # answers of one full pull
_LEASE_STEP_MS = 1000  # moving a deadline costs a heap operation: once a second is enough


@attrs.frozen
class LinkLimits:
    """Limits of one connection."""

    idle_s: float = 120.0
    """Silence in both directions until it closes (serverChannelMaxIdleTimeSeconds)."""
    first_frame_s: float = math.inf
    """Seconds until the first frame; a peer that sends none is closed (firstFrameTimeout)."""
    frame_s: float = 10.0
    """Seconds that a frame may take once begun, beside its size at 64 KiB/s."""
    write_s: float = 30.0
    """Seconds that the peer may read nothing while bytes wait for it."""
    outbox_bytes_max: int = 33_554_432
    frames: FrameLimits | None = None
    """Limits of large frames, and the node's budget; None at the end that opened the connection."""
    waits: WaitLimits | None = None
    """Limits of the time that a request may wait; None: no limit."""


def _no_handler(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    return not_supported(request)


class RemotingLink:
    """One connection. Implements `trioha.remoting.channel.Channel`."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        handle: Handler = _no_handler,
        limits: LinkLimits | None = None,
        outboxes: Outboxes | None = None,
        on_batch: Callable[[], None] | None = None,
        on_late: Callable[[int], None] | None = None,
    ) -> None:
        self.peer = transport.peer
        self._transport = transport
        self._clock = clock
        self._limits = limits or LinkLimits()
        self._outboxes = outboxes or Outboxes()
        self._machine = RemotingConnection(limits=self._limits.frames)
        self._outbox = Outbox(self._limits.outbox_bytes_max)
        self._requests = Requests(
            self._machine,
            self._outbox,
            handle,
            clock.now_ms,
            self._answer_early,
            self._limits.waits,
        )
        self._sender = LinkSender(
            transport.try_send, self._outbox, self._outboxes, self.close_nowait, self._count_unsent
        )
        # No call between: both are HOT.
        self.send_nowait = self._sender.send_nowait
        self.flush_nowait = self._sender.flush_nowait
        self._turns = Turns(
            self,
            self._sender,
            transport.stream if isinstance(transport, SocketTransport) else transport,
            self._machine,
            self._outbox,
            self._outboxes,
            self._requests,
            clock,
            on_batch,
            on_late,
        )
        self._drained = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._frame_serial = -1
        self._drops_unsent = False
        self._counted_bytes = 0
        """Unsent bytes of this connection in the node's budget."""
        self._unfinished_bytes = 0
        """Bytes of its unfinished requests there."""
        self.close_reason = ""
        """Reason why the connection ended; empty when the peer closed it."""

    @cached_property
    def peer_host(self) -> bytes:
        return pack_host(*parse_address(self.peer))

    @property
    def sender(self) -> LinkSender:
        """The half of this connection that sends."""
        return self._sender

    @property
    def closed(self) -> bool:
        return self._sender.closed

    @property
    def outbox_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return self._outbox.size

    @property
    def is_silent(self) -> bool:
        """No request of the peer was served so far: there was none, or it was rejected."""
        return not self._machine.was_served

    def go_on_nowait(self, request: RemotingCommand) -> None:
        self._requests.unfinished.append(request)
        if not self._turns.is_running and self._nursery is not None and not self.closed:
            # It was parked: no read of this connection goes on with it.
            self._nursery.start_soon(self._go_on, name=f"remoting.go_on[{self.peer}]")

    def mark_replication(self) -> None:
        self._machine.is_replication = True
        if isinstance(self._transport, SocketTransport):
            self._transport.stream.is_one_way = True

    async def serve(self) -> None:
        """Serve until either side ends the connection. Expected failures do not raise.

        Errors: whatever a handler's broken invariant raises; it ends the node.
        """
        read_ended = False
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self.closed:
                    nursery.cancel_scope.cancel()
                self._set_deadline(
                    trio.current_time() + min(self._limits.idle_s, self._limits.first_frame_s)
                )
                nursery.start_soon(self._write, name=f"remoting.write[{self.peer}]")
                await self._read()
                read_ended = True
                nursery.cancel_scope.cancel()
            if not read_ended and not self.closed:
                self.close_reason = self._silence()
        finally:
            self._sender.closed = True
            if self._drops_unsent and self._machine.requests_pending:
                self._transport.abort()
            else:
                self._transport.close()
            self._outbox.clear()
            self._count_unsent()
            self._requests.unfinished.clear()
            self._count_unfinished()
            with self._outboxes.batch():
                self._machine.fail_pending()

    def request_nowait(
        self, command: RemotingCommand, deadline_ms: int, on_response: OnResponse
    ) -> None:
        if self.closed or self._nursery is None or self._machine.is_full:
            on_response(None)
            return
        self.expect_response(command, on_response)
        try:
            self._nursery.start_soon(
                self._expire,
                command.opaque,
                deadline_ms,
                name=f"remoting.request[{command.opaque}]",
            )
        except RuntimeError:
            # Our last task has ended in this very pass, and `serve` has not run since.
            if (unanswered := self._machine.forget(command.opaque)) is not None:
                unanswered(None)

    def expect_response(self, command: RemotingCommand, on_response: OnResponse) -> None:
        """Send a request; the response, or None when the connection ends, goes to `on_response`."""
        is_alone = not self._machine.requests_pending
        self._machine.expect_response(command, on_response)
        if is_alone:
            # No other frame shares this write, so send now, without a switch to the write task.
            with self._outboxes.batch():
                self.send_nowait(command)
        else:
            self.send_nowait(command)

    def forget(self, opaque: int) -> None:
        """Forget a request: its caller does not wait for the response any more."""
        self._machine.forget(opaque)

    def close_nowait(self, reason: str) -> None:
        if not self.closed:
            self._sender.closed = True
            self.close_reason = reason
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    def finish_nowait(self) -> None:
        """Send what is queued and nothing more; what the peer still sends is read and dropped."""
        self._turns.drops = True
        self.flush_nowait()
        if not self._outbox.size and not self.closed:
            self._transport.finish()

    def drop_unsent(self) -> None:
        """Drop what has not left this machine if this connection ends before all requests of ours
        are answered: then no client waits for their effect."""
        self._drops_unsent = True

    def _answer_early(self) -> None:
        """Send the answers of a part of a read, so that the peer works while the rest is done."""
        if not self._sender.wake.is_set():  # else the kernel has just rejected bytes
            self._outboxes.before_answers()
            self.flush_nowait()

    async def _read(self) -> None:
        try:
            while await self._transport.receive_each(self._turns.take):
                await self._finish_read()
        except (trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError) as error:
            self.close_reason = str(error)
            return
        if self._machine.mid_frame and not self._turns.drops:
            self.close_reason = "it closed in the middle of a frame"

    async def _finish_read(self) -> None:
        """Do what a turn has left: more turns, and a wait for a peer that does not read."""
        turns = self._turns
        while True:
            if turns.has_more:
                self._count_unfinished()
            if self._outbox.size > TURN_UNSENT_BYTES:
                await self._wait_drained()
            elif turns.has_more:
                # Let the other connections have their turn.
                await trio.lowlevel.checkpoint()
            if not turns.has_more:
                return
            turns.next()

    async def _go_on(self) -> None:
        """Finish the requests that go on while nothing is read."""
        while self._requests.unfinished and not self.closed:
            self._count_unfinished()
            await trio.lowlevel.checkpoint()
            if not self._requests.unfinished:
                break
            self._turns.go_on()
        self._count_unfinished()

    async def _wait_drained(self) -> None:
        """Wait until the peer has read, before we read on.

        What the peer sends meanwhile waits in the kernel, so half a frame is no fault of the peer:
        only the write task's patience counts.
        """
        self._set_deadline(math.inf)
        while self._outbox.size > TURN_UNSENT_BYTES and not self.closed:
            self._drained = trio.Event()
            await self._drained.wait()
        self._frame_serial = -1
        self._turns.lease_due_ms = 0
        self.renew_lease(self._clock.now_ms())

    async def _write(self) -> None:
        outbox, sender = self._outbox, self._sender
        while True:
            await sender.wake.wait()
            sender.wake = trio.Event()
            outbox.is_queued = False
            sender.is_writing = True
            while outbox.size:
                with trio.move_on_after(self._limits.write_s) as patience:
                    try:
                        rest = await self._transport.send_some(outbox.take())
                    except (trio.BrokenResourceError, trio.ClosedResourceError):
                        outbox.clear()
                        return  # the read task meets the same end and reports it
                if patience.cancelled_caught:
                    self.close_nowait(f"it has read nothing for {self._limits.write_s:g} s")
                    return
                outbox.sent(rest)
                self._count_unsent()
                if outbox.size <= TURN_UNSENT_BYTES:
                    self._drained.set()
                self.renew_lease(self._clock.now_ms())
            sender.is_writing = False
            if self._turns.drops:
                self._transport.finish()

    def _count_unsent(self) -> None:
        """Count unread bytes in the node's budget; close a slow peer if the budget is used up.

        A peer that reads what it asks for never has many unread bytes.
        """
        frames = self._limits.frames
        if frames is None:
            return
        size, budget = self._outbox.size, frames.budget
        grows = size > self._counted_bytes
        budget.unsent_bytes += size - self._counted_bytes
        self._counted_bytes = size
        if size > _SLOW_PEER_BYTES and not (
            not grows or self._machine.is_replication or budget.has_room(0)
        ):
            self.close_nowait(
                f"{size} bytes wait for it, and the node's budget is used up (trafficBytesMax)"
            )

    def _count_unfinished(self) -> None:
        """Count the bytes of unfinished requests in the node's budget."""
        size = self._requests.unfinished_bytes
        if size != self._unfinished_bytes and self._limits.frames is not None:
            self._limits.frames.budget.frames_bytes += size - self._unfinished_bytes
            self._unfinished_bytes = size

    async def _expire(self, opaque: int, deadline_ms: int) -> None:
        await sleep_until_ms(deadline_ms)
        on_response = self._machine.forget(opaque)
        if on_response is not None:
            with self._outboxes.batch():
                on_response(None)

    def renew_lease(self, now_ms: int) -> None:
        """Move the deadline: the peer is alive, or has begun a frame."""
        machine = self._machine
        now_s = trio.current_time()
        if machine.mid_frame:
            # Measured from the frame's first byte: a byte now and then does not keep it alive.
            if self._frame_serial != machine.frames_received:
                self._frame_serial = machine.frames_received
                self._turns.lease_due_ms = 0
                self._set_deadline(
                    now_s + self._limits.frame_s + machine.missing_bytes / _SLOW_LINK_BYTES_PER_S
                )
        elif now_ms >= self._turns.lease_due_ms:
            self._turns.lease_due_ms = now_ms + _LEASE_STEP_MS
            self._frame_serial = -1
            self._set_deadline(now_s + self._limits.idle_s)

    def _set_deadline(self, deadline_s: float) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.deadline = deadline_s

    def _silence(self) -> str:
        if self._machine.mid_frame:
            return f"half a frame, then silence for {self._limits.frame_s:g} s"
        if not self._machine.frames_received and self._limits.first_frame_s < self._limits.idle_s:
            return f"no request for {self._limits.first_frame_s:g} s"
        return f"idle for {self._limits.idle_s:g} s"
