"""Transports without a network: memory streams behind a listener, and one that tests steer."""

from __future__ import annotations

import errno

import trio
import trio.testing

from support.memory.streams import StreamTransport
from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import Transport, take_each
from trioha.wire.remoting_command import Buffer


class MemoryListener:
    """Accepts what `connect` opens; addresses are only for show."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Transport](1000)
        self._serial = 0
        self.connects: list[float] = []
        """Trio times of every attempt."""
        self.refusing = False
        self.from_host = "127.0.0.1"
        """Host that connections come from, as the accepting end sees it."""

    async def accept(self) -> Transport:
        return await self._receive.receive()

    async def connect(self, host: str, port: int) -> Transport:
        """The connecting end; its peer is `host:port`."""
        self.connects.append(trio.current_time())
        if self.refusing:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        ours, theirs = trio.testing.memory_stream_pair()
        self._serial += 1
        await self._send.send(StreamTransport(ours, f"{self.from_host}:{40000 + self._serial}"))
        return StreamTransport(theirs, f"{host}:{port}")


class SteeredTransport:
    """Takes as many bytes at once as `room` says, reads what `feed` brings."""

    def __init__(self, room: int = 1 << 30, peer: str = "127.0.0.1:40000") -> None:
        self.peer = peer
        self.waited_ms = 0
        self.room = room
        self.sent = bytearray()
        self.closed = False
        self._send, self._receive = trio.open_memory_channel[bytes](1000)
        self._writable = trio.Event()

    def feed(self, data: bytes) -> None:
        """Let the other side read `data`; b"" is the end."""
        self._send.send_nowait(data)

    def grant(self, room: int) -> None:
        """Take `room` bytes more."""
        self.room += room
        self._writable.set()

    async def receive_some(self) -> bytes:
        return await self._receive.receive()

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        if self.closed:
            raise trio.BrokenResourceError("closed")
        data = b"".join(buffers)
        taken, rest = data[: self.room], data[self.room :]
        self.sent += taken
        self.room -= len(taken)
        return [rest] if rest else []

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        while not self.room:
            self._writable = trio.Event()
            await self._writable.wait()
        return self.try_send(buffers)

    async def send_all(self, buffers: list[Buffer]) -> None:
        while buffers:
            buffers = await self.send_some(buffers)

    def finish(self) -> None:
        self.room = 0

    def close(self) -> None:
        self.closed = True

    def peer_has_gone(self) -> bool:
        return False

    def abort(self) -> None:
        self.close()
