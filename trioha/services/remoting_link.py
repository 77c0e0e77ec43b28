"""One remoting connection on Trio: a read task, a write task and a lease around both.

The read task handles all the requests of one read in one go; the answers of that batch leave in one
`try_send` at its end, in the same scheduler pass. The write task sleeps until the kernel refused
bytes or somebody outside a batch has queued some. `Outboxes` is what the links of a node share: it
knows which of them have something queued, so that an ack that frees fifty puts of one client makes
one write, not fifty.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs
import trio

from trioha.errors import (
    CommandError,
    DiskFull,
    LocalProtocolError,
    RemoteProtocolError,
    StoreError,
)
from trioha.journal import EventSink
from trioha.remoting.channel import Handler, Instant
from trioha.remoting.connection import NEED_DATA, OnResponse, RemotingConnection
from trioha.services.clock import Clock, sleep_until_ms
from trioha.services.transport import Transport, parse_address
from trioha.wire.codes import ResponseCode
from trioha.wire.message_id import pack_host
from trioha.wire.remoting_command import Buffer, RemotingCommand, encode_buffers

_SLOW_LINK_BYTES_PER_S = 65_536  # a large frame gets its time at this rate beside the frame timeout
_OUTBOX_HIGH_BYTES = 1_048_576  # above this we stop reading from the client until it has read
_LEASE_STEP_S = 1.0  # moving a deadline costs a heap operation: once a second is enough


@attrs.frozen
class LinkLimits:
    """What one connection may cost us."""

    idle_s: float = 120.0
    """Silence in both directions until it closes (serverChannelMaxIdleTimeSeconds)."""
    frame_s: float = 10.0
    """How long a frame that has begun may take, beside its size at 64 KiB/s."""
    write_s: float = 30.0
    """How long the peer may read nothing while we have something for it."""
    outbox_bytes_max: int = 33_554_432


class Outboxes:
    """The links of one node that have something queued, and the batch that will send it."""

    def __init__(self) -> None:
        self._dirty: list[RemotingLink] = []
        self._depth = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What is queued inside leaves at the end of the outermost block, one write per link."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._dirty:
                dirty, self._dirty = self._dirty, []
                for link in dirty:
                    link.flush_nowait()

    def add(self, link: RemotingLink) -> None:
        if self._depth:
            self._dirty.append(link)
        else:
            link.wake_writer()


class RemotingLink:
    """One connection. Implements `trioha.remoting.channel.Channel`."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        events: EventSink,
        *,
        handlers: Mapping[int, Handler] | None = None,
        limits: LinkLimits | None = None,
        outboxes: Outboxes | None = None,
        on_batch: Callable[[], None] | None = None,
    ) -> None:
        self.peer = transport.peer
        self._transport = transport
        self._clock = clock
        self._events = events
        self._handlers: Mapping[int, Handler] = handlers or {}
        self._limits = limits or LinkLimits()
        self._outboxes = outboxes or Outboxes()
        self._on_batch = on_batch
        self._machine = RemotingConnection()
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._queued = False
        self._writing = False
        self._wake = trio.Event()
        self._drained = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._lease_renewed_s = -math.inf
        self._frame_serial = -1
        self._closed = False
        self._peer_host: bytes | None = None
        self.close_reason = ""
        """Why it ended; empty when the peer just went."""

    @property
    def peer_host(self) -> bytes:
        if self._peer_host is None:
            self._peer_host = pack_host(*parse_address(self.peer))
        return self._peer_host

    @property
    def closed(self) -> bool:
        return self._closed

    async def serve(self) -> None:
        """Serve until either side ends the connection. Expected failures do not raise.

        Errors: whatever a handler's broken invariant raises; it ends the node.
        """
        read_ended = False
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self._closed:
                    nursery.cancel_scope.cancel()
                self._renew_lease()
                nursery.start_soon(self._write, name=f"remoting.write[{self.peer}]")
                await self._read()
                read_ended = True
                nursery.cancel_scope.cancel()
            if not read_ended and not self._closed:
                self.close_reason = self._silence()
        finally:
            self._closed = True
            self._transport.close()
            self._outbox.clear()
            self._outbox_bytes = 0
            with self._outboxes.batch():
                self._machine.fail_pending()

    def send_nowait(self, command: RemotingCommand) -> None:
        if self._closed:
            return
        try:
            buffers = encode_buffers(command)
        except LocalProtocolError as error:
            if not command.is_response:
                raise
            buffers = encode_buffers(
                RemotingCommand(
                    ResponseCode.SYSTEM_ERROR,
                    opaque=command.opaque,
                    flag=command.flag,
                    remark=f"the answer is too large: {error}",
                    serialize_type=command.serialize_type,
                )
            )
        outbox = self._outbox
        for buffer in buffers:
            outbox.append(buffer)
            self._outbox_bytes += len(buffer)
        if self._outbox_bytes > self._limits.outbox_bytes_max:
            self.close_nowait(f"it does not read: {self._outbox_bytes} bytes wait for it")
            return
        if not self._queued:
            self._queued = True
            self._outboxes.add(self)

    def request_nowait(
        self, command: RemotingCommand, deadline_ms: int, on_response: OnResponse
    ) -> None:
        if self._closed or self._nursery is None or self._machine.is_full:
            on_response(None)
            return
        self.expect_response(command, on_response)
        self._nursery.start_soon(
            self._expire, command.opaque, deadline_ms, name=f"remoting.request[{command.opaque}]"
        )

    def expect_response(self, command: RemotingCommand, on_response: OnResponse) -> None:
        """Send a request; the response, or None when the connection ends, goes to `on_response`."""
        self._machine.expect_response(command, on_response)
        self.send_nowait(command)

    def forget(self, opaque: int) -> None:
        """The caller has lost patience with this request."""
        self._machine.forget(opaque)

    def close_nowait(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self.close_reason = reason
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    def flush_nowait(self) -> None:
        """Give the kernel what is queued; wake the write task for what it does not take."""
        self._queued = False
        if self._writing or self._closed or not self._outbox:
            return
        try:
            rest = self._transport.try_send(self._outbox)
        except trio.BrokenResourceError:
            # The read task meets the same end and says so.
            self._outbox = []
            self._outbox_bytes = 0
            return
        self._outbox = rest
        if rest:
            self._outbox_bytes = sum(map(len, rest))
            self._wake.set()
        else:
            self._outbox_bytes = 0

    def wake_writer(self) -> None:
        self._queued = False
        self._wake.set()

    async def _read(self) -> None:
        machine = self._machine
        while True:
            try:
                data = await self._transport.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self.close_reason = str(error)
                return
            if not data:
                if machine.mid_frame:
                    self.close_reason = "it closed in the middle of a frame"
                return
            machine.receive_data(data)
            with self._outboxes.batch():
                try:
                    self._handle_batch()
                except RemoteProtocolError as error:
                    self.close_reason = str(error)
                    return
                finally:
                    if self._on_batch is not None:
                        self._on_batch()
            self._renew_lease()
            if self._outbox_bytes > _OUTBOX_HIGH_BYTES:
                await self._wait_drained()

    async def _wait_drained(self) -> None:
        """Read on only when the peer has read.

        What it sends meanwhile waits in the kernel, so half a frame is no fault of its own: only
        the write task's patience counts.
        """
        self._set_deadline(math.inf)
        while self._outbox_bytes > _OUTBOX_HIGH_BYTES and not self._closed:
            self._drained = trio.Event()
            await self._drained.wait()
        self._frame_serial = -1
        self._lease_renewed_s = -math.inf
        self._renew_lease()

    def _handle_batch(self) -> None:
        instant = self._clock.instant()
        next_command = self._machine.next_command
        while (command := next_command()) is not NEED_DATA:
            if command.flag & 1:
                self._machine.response_received(command)
            else:
                self._handle(command, instant)

    def _handle(self, command: RemotingCommand, instant: Instant) -> None:
        handler = self._handlers.get(command.code)
        response: RemotingCommand | None
        if handler is None:
            response = command.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        else:
            try:
                response = handler(self, command, instant)
            except CommandError as error:
                response = command.response(error.code, error.remark)
            except RemoteProtocolError as error:
                response = command.response(ResponseCode.SYSTEM_ERROR, str(error))
            except DiskFull as error:
                response = command.response(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
            except (AssertionError, LocalProtocolError, StoreError):
                raise  # an invariant or the disk is broken: the node ends
            except Exception as error:
                # A fault of ours that one request met: it is told, and the others go on.
                self._events.event(
                    "handler_failed",
                    peer=self.peer,
                    code=command.code,
                    error=repr(error),
                    traceback=traceback.format_exc(),
                )
                response = command.response(
                    ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
                )
        if response is not None and not command.flag & 2:
            self.send_nowait(response)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            self._queued = False
            self._writing = True
            while self._outbox:
                buffers, self._outbox = self._outbox, []
                size = self._outbox_bytes
                with trio.move_on_after(self._limits.write_s) as patience:
                    try:
                        rest = await self._transport.send_some(buffers)
                    except (trio.BrokenResourceError, trio.ClosedResourceError):
                        self._outbox_bytes = 0
                        return  # the read task meets the same end and says so
                if patience.cancelled_caught:
                    self.close_nowait(f"it has read nothing for {self._limits.write_s:g} s")
                    return
                taken = sum(map(len, buffers)) - sum(map(len, rest))
                assert taken <= size, f"sent {taken} of {size} bytes queued"
                self._outbox = rest + self._outbox
                self._outbox_bytes -= taken
                if self._outbox_bytes <= _OUTBOX_HIGH_BYTES:
                    self._drained.set()
                self._renew_lease()
            self._writing = False

    async def _expire(self, opaque: int, deadline_ms: int) -> None:
        await sleep_until_ms(deadline_ms)
        on_response = self._machine.forget(opaque)
        if on_response is not None:
            with self._outboxes.batch():
                on_response(None)

    def _renew_lease(self) -> None:
        now_s = trio.current_time()
        machine = self._machine
        if machine.mid_frame:
            # Measured from the frame's first byte: a byte now and then does not keep it alive.
            if self._frame_serial != machine.frames_received:
                self._frame_serial = machine.frames_received
                self._lease_renewed_s = -math.inf
                self._set_deadline(
                    now_s + self._limits.frame_s + machine.missing_bytes / _SLOW_LINK_BYTES_PER_S
                )
        elif now_s - self._lease_renewed_s >= _LEASE_STEP_S:
            self._lease_renewed_s = now_s
            self._frame_serial = -1
            self._set_deadline(now_s + self._limits.idle_s)

    def _set_deadline(self, deadline_s: float) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.deadline = deadline_s

    def _silence(self) -> str:
        if self._machine.mid_frame:
            return f"half a frame, then silence for {self._limits.frame_s:g} s"
        return f"idle for {self._limits.idle_s:g} s"
