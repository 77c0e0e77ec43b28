"""Either end of one remoting connection, without the socket.

Theory of operation. Both sides may send requests; `opaque` pairs a response with its request and
the flag's lowest bit tells them apart, so the two opaque spaces never meet. Bytes go in through
`receive_data`, commands come out of `next_command` until it says NEED_DATA. A frame's length is
checked before anything is kept for it, so a lying peer costs at most one frame of memory. What is
left of a read is kept as the chunks it came in and joined once, when the frame is whole.

What is kept per connection: the unfinished frame (at most 16 MiB) and the table of our own
requests that wait for a response (`pending_max`).
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.wire.codes import FRAME_BYTES_MAX
from trioha.wire.need_data import NEED_DATA, NeedData
from trioha.wire.remoting_command import RemotingCommand, decode_at
from trioha.wire.tls_errors import NEEDS_TLS, TLS_ALERT, TLS_HANDSHAKE

OnResponse = Callable[[RemotingCommand | None], None]

_OPAQUE_MASK = 0x7FFFFFFF


class RemotingConnection:
    """Frames in, commands out; and who waits for which response."""

    def __init__(self, *, pending_max: int = 65_536) -> None:
        self._data = b""
        self._position = 0
        self._chunks: list[bytes] = []
        self._chunks_size = 0
        self._needed = 0
        self._opaque = 0
        self._pending: dict[int, OnResponse] = {}
        self._pending_max = pending_max
        self.frames_received = 0

    @property
    def mid_frame(self) -> bool:
        """A frame has begun and is not whole: the peer owes us bytes."""
        return self._chunks_size > 0

    @property
    def is_full(self) -> bool:
        """So many requests wait for this peer that it gets no more until it answers."""
        return len(self._pending) >= self._pending_max

    @property
    def requests_pending(self) -> int:
        """How many requests of ours wait for their response."""
        return len(self._pending)

    @property
    def missing_bytes(self) -> int:
        """How many bytes the unfinished frame still lacks, as far as known."""
        return self._needed - self._chunks_size if self._chunks_size else 0

    def receive_data(self, data: bytes) -> None:
        """Take what one read brought. Call `next_command` until NEED_DATA before the next."""
        if self._chunks_size:
            self._chunks.append(data)
            self._chunks_size += len(data)
            if self._chunks_size < self._needed:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._chunks_size = 0
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
        """`next_command` with None for NEED_DATA. HOT. Errors: the same."""
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
        if available < size:
            self._keep_rest(position, available, size)
            return None
        end = position + size
        self._position = end
        self.frames_received += 1
        return decode_at(data, position, end)

    def expect_response(self, command: RemotingCommand, on_response: OnResponse) -> None:
        """Give `command` an opaque of ours and remember who waits for its response."""
        if self.is_full:
            raise LocalProtocolError(f"{self._pending_max} requests already wait for this peer")
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        while self._opaque in self._pending:
            self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = self._opaque
        self._pending[command.opaque] = on_response

    def response_received(self, command: RemotingCommand) -> None:
        """Hand a response to who waits for it; a late one, nobody waits for, is dropped."""
        on_response = self._pending.pop(command.opaque, None)
        if on_response is not None:
            on_response(command)

    def forget(self, opaque: int) -> OnResponse | None:
        """Nobody waits for this response any more."""
        return self._pending.pop(opaque, None)

    def fail_pending(self) -> None:
        """The connection is gone: everybody who waits gets None."""
        waiters = list(self._pending.values())
        self._pending.clear()
        for on_response in waiters:
            on_response(None)

    def statistics(self) -> RemotingStatistics:
        return RemotingStatistics(self.frames_received, len(self._pending), self._chunks_size)

    def _keep_rest(self, position: int, available: int, needed: int) -> None:
        if available > 0:
            self._chunks.append(self._data[position:])
            self._chunks_size = available
            self._needed = needed
        self._data = b""
        self._position = 0

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
