"""Either end of one remoting connection, without the socket.

Theory of operation. Both sides may send requests; `opaque` pairs a response with its request and
the flag's lowest bit tells them apart, so the two opaque spaces never meet. Bytes go in through
`receive_data`, commands come out of `next_command` until it says NEED_DATA. A frame's length is
checked before anything is kept for it, so a lying peer costs at most one frame of memory. What is
left of a read is kept as the chunks it came in and joined once, when the frame is whole.

A node judges a frame of more than 64 KiB as soon as its header is there: by the limit of its
request code, and by the budget of the node (`trioha.remoting.traffic_budget`). The body of a frame
that is rejected is not kept; its bytes are dropped as they arrive, and the next frame is read.

What is kept per connection: the unfinished frame (at most 16 MiB) and the table of our own
requests that wait for a response (`pending_max`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.remoting.traffic_budget import FrameLimits, TrafficBudget
from trioha.wire.codes import FRAME_BYTES_MAX, SENDS, ResponseCode
from trioha.wire.need_data import NEED_DATA, NeedData
from trioha.wire.remoting_command import RemotingCommand, decode_at
from trioha.wire.tls_errors import NEEDS_TLS, TLS_ALERT, TLS_HANDSHAKE

OnResponse = Callable[[RemotingCommand | None], None]

_OPAQUE_MASK: Final = 0x7FFFFFFF
SMALL_FRAME_BYTES: Final = 65_536
"""A smaller frame is not judged: no limit is below it, and it is one read at most. It counts in the
budget until it is whole."""
HEADER_BYTES_MAX: Final = 262_144
"""Properties of 32 KiB, each byte of them as \\u0001, and the other fields of a send."""
_SMALL_CHUNK_BYTES: Final = 4_096
_JOINED_CHUNK_BYTES: Final = 65_536


class FrameRejected(Exception):
    """A frame whose body is not read; `command` is its header."""

    def __init__(self, command: RemotingCommand, code: int, remark: str) -> None:
        super().__init__(remark)
        self.command = command
        self.code = code
        self.remark = remark


class RemotingConnection:
    """Frames in, commands out; and the callbacks of the requests that wait for a response."""

    def __init__(self, *, pending_max: int = 65_536, limits: FrameLimits | None = None) -> None:
        """Without `limits`, every frame of up to 16 MiB is read: at the end that asked for it."""
        self._data = b""
        self._position = 0
        self._chunks: list[bytes | bytearray] = []
        self._chunks_size = 0
        self._needed = 0
        self._frame_bytes = 0
        self._opaque = 0
        self._pending: dict[int, OnResponse] = {}
        self._pending_max = pending_max
        self._limits = limits
        self._is_admitted = False
        """The large frame that begins at `_position` has been judged."""
        self._budgeted_bytes = 0
        self._dropped_bytes = 0
        """Bytes yet to arrive of a frame that was rejected."""
        self.frames_received = 0
        self.was_served = False
        """A request of the peer was carried out, or waits: it was not rejected."""
        self.is_replication = False
        """The peer is a proven node that sends log bytes: they never wait for the budget."""

    @property
    def mid_frame(self) -> bool:
        """A frame has begun and is not whole: the peer owes us bytes."""
        return self._chunks_size > 0 or self._dropped_bytes > 0

    @property
    def has_data(self) -> bool:
        """Bytes of the last read are left: the next request, or a part of it."""
        return self._position < len(self._data)

    @property
    def is_full(self) -> bool:
        """The limit of waiting requests is reached: the peer gets no more until it answers."""
        return len(self._pending) >= self._pending_max

    @property
    def requests_pending(self) -> int:
        """Number of requests of ours that wait for their response."""
        return len(self._pending)

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that the unfinished frame still lacks, as far as known."""
        if self._dropped_bytes:
            return self._dropped_bytes
        return self._frame_bytes - self._chunks_size if self._chunks_size else 0

    def receive_data(self, data: bytes) -> None:
        """Take what one read brought. Call `next_command` until NEED_DATA before the next."""
        if self._chunks_size:
            self._add_chunk(data)
            if self._chunks_size < self._needed:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._chunks_size = 0
        elif self._dropped_bytes:
            size = min(self._dropped_bytes, len(data))
            data = data[size:]
            self._dropped_bytes -= size
            if not self._dropped_bytes:
                self.frames_received += 1
        self._data = data
        self._position = 0

    def next_command(self) -> RemotingCommand | NeedData:
        """The next whole frame, decoded.

        Errors: RemoteProtocolError for lengths that lie, frames over 16 MiB and broken headers;
        the connection cannot be used afterwards.
        """
        command = self.next_frame()
        return NEED_DATA if command is None else command

    def next_frame(self) -> RemotingCommand | None:
        """`next_command` with None for NEED_DATA. HOT.

        Errors: the same; FrameRejected for a frame that is not read, after which the next one is.
        """
        position = self._position
        available = len(self._data) - position
        if available < 4:
            self._keep_rest(position, available, 4)
            return None
        data = self._data
        total = (
            data[position] << 24
            | data[position + 1] << 16
            | data[position + 2] << 8
            | data[position + 3]
        )
        if total < 4 or total > FRAME_BYTES_MAX - 4:
            raise RemoteProtocolError(self._describe_length(total, position))
        size = total + 4
        if (
            size > SMALL_FRAME_BYTES
            and self._limits is not None
            and not self._is_admitted
            and not self._judge(self._limits, position, available, size)
        ):
            return None
        if available < size:
            self._keep_rest(position, available, size)
            return None
        if self._is_admitted or self._budgeted_bytes:
            self._release()
        end = position + size
        self._position = end
        self.frames_received += 1
        return decode_at(data, position, end)

    def expect_response(self, command: RemotingCommand, on_response: OnResponse) -> None:
        """Give `command` an opaque of ours and remember the callback for its response."""
        if self.is_full:
            raise LocalProtocolError(f"{self._pending_max} requests already wait for this peer")
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        while self._opaque in self._pending:
            self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = self._opaque
        self._pending[command.opaque] = on_response

    def response_received(self, command: RemotingCommand) -> None:
        """Pass a response to its callback; drop a late one, whose request was forgotten."""
        on_response = self._pending.pop(command.opaque, None)
        if on_response is not None:
            on_response(command)

    def forget(self, opaque: int) -> OnResponse | None:
        """Stop waiting for a response; return its callback, None if there is none."""
        return self._pending.pop(opaque, None)

    def fail_pending(self) -> None:
        """Call every waiting callback with None: the connection is gone."""
        self._release()
        waiters = list(self._pending.values())
        self._pending.clear()
        for on_response in waiters:
            on_response(None)

    def statistics(self) -> RemotingStatistics:
        return RemotingStatistics(self.frames_received, len(self._pending), self._chunks_size)

    def _judge(self, limits: FrameLimits, position: int, available: int, size: int) -> bool:
        """Admit a large frame; return False while its header is not there.

        Errors: FrameRejected; RemoteProtocolError for a broken header.
        """
        data = self._data
        header_end = 8
        if available >= 8:
            header_end += data[position + 5] << 16 | data[position + 6] << 8 | data[position + 7]
            if header_end > min(size, HEADER_BYTES_MAX):
                raise RemoteProtocolError(
                    f"lengths lie, or a header exceeds {HEADER_BYTES_MAX} bytes: "
                    f"frame {size}, header {header_end - 8}"
                )
        budget = limits.budget
        if available < header_end:
            if header_end > SMALL_FRAME_BYTES and not self._has_room(budget, header_end):
                raise RemoteProtocolError(f"no room for a header of {header_end - 8} bytes")
            self._keep_rest(position, available, header_end)
            self._frame_bytes = size
            return False
        command = decode_at(data, position, position + header_end)
        code = command.code
        if command.flag & 1:
            is_asked = command.opaque in self._pending
            limit = FRAME_BYTES_MAX if is_asked else SMALL_FRAME_BYTES
        else:
            limit = limits.body_bytes.get(code, SMALL_FRAME_BYTES)
        body_size = size - header_end
        if body_size > limit:
            budget.too_large_count += 1
            self._drop(position, available, size)
            raise FrameRejected(
                command,
                ResponseCode.MESSAGE_ILLEGAL if code in SENDS else ResponseCode.SYSTEM_ERROR,
                f"the body of a request {code} has at most {limit} bytes here, not {body_size}",
            )
        if available < size:
            if not self._has_room(budget, size):
                self._drop(position, available, size)
                raise FrameRejected(
                    command,
                    ResponseCode.SYSTEM_BUSY,
                    f"[REJECTREQUEST] no room for a frame of {size} bytes; "
                    f"{budget.used_bytes} of {budget.bytes_max} are taken (trafficBytesMax)",
                )
            self._count(budget, size)
        self._is_admitted = True
        return True

    def _has_room(self, budget: TrafficBudget, size: int) -> bool:
        """Return whether so many bytes may be kept in place of those that are counted."""
        return self.is_replication or budget.has_room(size - self._budgeted_bytes)

    def _count(self, budget: TrafficBudget, size: int) -> None:
        """Tell the node's budget what the frame that has begun may come to be."""
        budget.frames_bytes += size - self._budgeted_bytes
        self._budgeted_bytes = size

    def _release(self) -> None:
        """The frame is whole, or will not be kept, or the connection is gone."""
        self._is_admitted = False
        if self._limits is not None:
            self._count(self._limits.budget, 0)

    def _drop(self, position: int, available: int, size: int) -> None:
        """Go on behind a frame, of which so many bytes are there."""
        self._release()
        if available >= size:
            self._position = position + size
            self.frames_received += 1
        else:
            self._data = b""
            self._position = 0
            self._dropped_bytes = size - available

    def _keep_rest(self, position: int, available: int, needed: int) -> None:
        if available > 0:
            self._chunks_size = 0
            self._add_chunk(self._data[position:])
            self._needed = self._frame_bytes = needed
            if self._limits is not None and not self._is_admitted:
                self._count(self._limits.budget, needed)
        self._data = b""
        self._position = 0

    def _add_chunk(self, data: bytes) -> None:
        """Keep what one read brought. A peer that sends single bytes costs little more for them."""
        self._chunks_size += len(data)
        if len(data) < _SMALL_CHUNK_BYTES:
            last = self._chunks[-1] if self._chunks else b""
            if isinstance(last, bytearray) and len(last) < _JOINED_CHUNK_BYTES:
                last += data
                return
            self._chunks.append(bytearray(data))
        else:
            self._chunks.append(data)

    def _describe_length(self, total: int, position: int) -> str:
        if self.frames_received == 0:
            first = self._data[position]
            if first == TLS_HANDSHAKE:
                return "it speaks TLS and this port does not (tls.server.mode); name a certificate"
            if first == TLS_ALERT:
                return NEEDS_TLS
        return f"frame length {total} is not within 4..{FRAME_BYTES_MAX - 4}"


@attrs.frozen
class RemotingStatistics:
    frames_received: int
    requests_pending: int
    unfinished_bytes: int
