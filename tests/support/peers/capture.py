"""Recording TCP proxies: what real peers say to each other, frame by frame.

A broker tells the name server its own address, and clients go there. To stand in between, the proxy
before the name server rewrites `127.0.0.1:PORT` in the broker's registrations to the port of the
proxy before the broker; both have five digits, so no length changes. Everything else passes
untouched, and what is recorded is what the sender wrote.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Literal

import attrs

Direction = Literal["request", "response"]
Way = Literal["up", "down"]


@attrs.frozen
class Chunk:
    """Bytes of one connection in one way: a remoting frame, or a read of a raw stream."""

    connection: int
    way: Way
    data: bytes


@attrs.define(eq=False)
class RecordingProxy:
    """Passes connections on to `target` and keeps what flows, in order of arrival.

    `framed` cuts at remoting frames; otherwise (HA) at reads. "up" is towards the target.
    """

    target: tuple[str, int]
    port: int = 0
    framed: bool = True
    rewrite: Mapping[bytes, bytes] = attrs.Factory(dict)
    # Cut a connection once, after so many bytes to the near end; None: never.
    cut_after: int | None = None
    chunks: list[Chunk] = attrs.Factory(list)
    _lock: threading.Lock = attrs.Factory(threading.Lock)
    _listener: socket.socket | None = None
    _open: set[socket.socket] = attrs.Factory(set)
    # Pairs one of whose pumps has ended.
    _half_open: set[frozenset[socket.socket]] = attrs.Factory(set)
    _pumps: list[threading.Thread] = attrs.Factory(list)

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"proxy[{self.port}]", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self.cut()
        for pump in list(self._pumps):
            pump.join(5.0)

    def cut(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _leave(self, ends: frozenset[socket.socket]) -> None:
        """Called by each pump as it ends; the second one closes both sockets."""
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= ends
            self._half_open ^= {ends}
            if ends in self._half_open:
                return
        for end in ends:
            end.close()

    def _accept(self) -> None:
        assert self._listener is not None
        number = 0
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {near, far}
            for source, sink, way in ((near, far, "up"), (far, near, "down")):
                pump = threading.Thread(
                    target=self._pump,
                    args=(number, source, sink, way),
                    name=f"proxy[{self.port}].{number}.{way}",
                    daemon=True,
                )
                self._pumps.append(pump)
                pump.start()
            number += 1

    def _pump(self, number: int, source: socket.socket, sink: socket.socket, way: Way) -> None:
        try:
            for data in self._frames(source) if self.framed else self._reads(source):
                with self._lock:
                    self.chunks.append(Chunk(number, way, data))
                for old, new in self.rewrite.items():
                    assert len(old) == len(new)
                    data = data.replace(old, new)
                if way == "down" and self.cut_after is not None:
                    if len(data) >= self.cut_after:
                        data, self.cut_after = data[: self.cut_after], None
                        sink.sendall(data)
                        return
                    self.cut_after -= len(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            self._leave(frozenset((source, sink)))

    @staticmethod
    def _reads(source: socket.socket) -> Iterator[bytes]:
        while data := source.recv(1 << 16):
            yield data

    @classmethod
    def _frames(cls, source: socket.socket) -> Iterator[bytes]:
        pending = b""
        for data in cls._reads(source):
            pending += data
            while len(pending) >= 4:
                end = 4 + struct.unpack_from(">I", pending)[0]
                if len(pending) < end:
                    break
                yield pending[:end]
                pending = pending[end:]


@contextlib.contextmanager
def recording(proxy: RecordingProxy) -> Iterator[RecordingProxy]:
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
