"""Reads and writes of one socket that do not wait."""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from typing import Final

import trio

from trioha.wire.remoting_command import Buffer

READ_BYTES_MIN: Final = 65_536
"""Beyond 128 KiB malloc maps and unmaps, unless told not to: 15 us a read."""
_JOIN_BYTES_MAX: Final = 65_536  # below this one copy is cheaper than an iovec per buffer
_IOV_MAX: Final = 1024
SO_TIMESTAMPNS: Final = 35  # Linux; Python has no name for it
_STAMP: Final = struct.Struct("qq")
_STAMP_SPACE: Final = socket.CMSG_SPACE(_STAMP.size)
_STAMP_STEP_S: Final = 0.02
"""Least time between reads that ask for the stamp, which costs a read 1.6 us."""


class SocketStream:
    """A connected TCP socket. HOT."""

    def __init__(self, sock: socket.socket, read_bytes_max: int, has_stamps: bool) -> None:
        """`has_stamps`: the kernel notes when bytes arrive."""
        self.sock = sock
        self.closed = False
        self.waited_ms = 0
        self.is_one_way = False
        """Hardly any answer goes back by this connection."""
        self._read_bytes_max = read_bytes_max
        self._read_bytes = min(READ_BYTES_MIN, read_bytes_max)
        self._stamp_due_s: float = 0.0 if has_stamps else math.inf

    def read_now(self) -> bytes | None:
        """Read without waiting. b"": the peer has finished. None: nothing is there.

        Errors: trio.BrokenResourceError.
        """
        try:
            if time.monotonic() < self._stamp_due_s:
                data = self.sock.recv(self._read_bytes)
            else:
                data = self._receive_stamped()
        except BlockingIOError:
            return None
        except OSError as error:
            raise trio.BrokenResourceError(reason_of(error)) from error
        size = len(data)
        if size == self._read_bytes:
            self._read_bytes = min(size * 2, self._read_bytes_max)
        elif size < self._read_bytes // 4 and self._read_bytes > READ_BYTES_MIN:
            self._read_bytes //= 2
        return data

    def _receive_stamped(self) -> bytes:
        """Read, and note how long ago the last of the bytes have arrived."""
        data, ancillary, _, _ = self.sock.recvmsg(self._read_bytes, _STAMP_SPACE)
        self.waited_ms = 0
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) == _STAMP.size:
                arrived_s, arrived_ns = _STAMP.unpack(value)
                waited_ns = time.time_ns() - arrived_s * 1_000_000_000 - arrived_ns
                self.waited_ms = max(0, waited_ns // 1_000_000)
        if self.waited_ms < _STAMP_STEP_S * 1000:
            self._stamp_due_s = time.monotonic() + _STAMP_STEP_S
        if self.is_one_way:
            # No answer carries the acknowledgement of TCP, so each read would send one by itself.
            # The kernel may wait for more bytes instead. It forgets that after 40 ms.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        return data

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        """Give the kernel what it takes now; return what is left.

        Errors: trio.BrokenResourceError.
        """
        if self.closed:
            raise trio.BrokenResourceError("closed")
        size = sum([len(buffer) for buffer in buffers])
        try:
            if size <= _JOIN_BYTES_MAX and len(buffers) > 1:
                buffers = [b"".join(buffers)]
            if len(buffers) == 1:
                sent = self.sock.send(buffers[0])
            else:
                sent = self.sock.sendmsg(buffers[:_IOV_MAX])
        except BlockingIOError:
            return buffers
        except OSError as error:
            raise trio.BrokenResourceError(reason_of(error)) from error
        return [] if sent == size else _rest(buffers, sent)

    def peer_has_gone(self) -> bool:
        """Return whether the peer has finished, and nothing is left to read."""
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _rest(buffers: list[Buffer], sent: int) -> list[Buffer]:
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []


def reason_of(error: BaseException) -> str:
    """Return an error in words, without its number."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error)
