"""A network in memory that can be cut, one way too, and that delivers late what it held back."""

from __future__ import annotations

import errno
from collections import deque
from random import Random

import trio

from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import Transport, take_each
from trioha.wire.remoting_command import Buffer

_PIPE_BYTES = 262_144
"""Bytes that the kernel buffers before the reader has read."""


class Pipe:
    """One direction of one connection."""

    def __init__(self, network: MemoryNetwork, source: str, target: str) -> None:
        self._network = network
        self._way = (source, target)
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._closed = False
        self._changed = trio.Event()

    def room(self) -> int:
        return 0 if self._closed else max(0, _PIPE_BYTES - self._size)

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, data: bytes) -> None:
        self._chunks.append((trio.current_time() + self._network.latency_s(*self._way), data))
        self._size += len(data)
        self.wake()

    def close(self) -> None:
        self._closed = True
        self.wake()

    def drop(self) -> None:
        """Forget what has not arrived."""
        self._chunks.clear()
        self._size = 0

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        await self._changed.wait()

    async def get(self) -> bytes:
        has_waited = False
        while True:
            if not self._network.is_cut(*self._way):
                if self._chunks:
                    due_s, data = self._chunks[0]
                    if due_s <= trio.current_time():
                        self._chunks.popleft()
                        self._size -= len(data)
                        self.wake()
                        if not has_waited:
                            await trio.lowlevel.checkpoint()
                        return data
                    await trio.sleep_until(due_s)
                    has_waited = True
                    continue
                if self._closed:
                    return b""
            await self._changed.wait()
            has_waited = True


class PipeTransport:
    """One end. `try_send` takes what fits, as a kernel does."""

    def __init__(self, peer: str, incoming: Pipe, outgoing: Pipe) -> None:
        self.peer = peer
        self.waited_ms = 0
        self.reads = True
        """False: the process behind it sleeps."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    async def receive_some(self) -> bytes:
        if self._closed:
            raise trio.ClosedResourceError("closed")
        data = await self._incoming.get()
        if self._closed:
            raise trio.ClosedResourceError("closed")
        return data

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        if self._closed or self._outgoing.closed:
            raise trio.BrokenResourceError("closed")
        data = b"".join(buffers)
        taken, rest = data[: self._outgoing.room()], data[self._outgoing.room() :]
        if taken:
            self._outgoing.put(taken)
        return [rest] if rest else []

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        while not self._closed and not self._outgoing.closed and not self._outgoing.room():
            await self._outgoing.wait_changed()
        await trio.lowlevel.checkpoint()
        return self.try_send(buffers)

    async def send_all(self, buffers: list[Buffer]) -> None:
        while buffers:
            buffers = await self.send_some(buffers)

    def finish(self) -> None:
        self._outgoing.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._outgoing.close()
            self._incoming.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def peer_has_gone(self) -> bool:
        return self._incoming.closed

    def abort(self) -> None:
        self._outgoing.drop()
        self.close()


class NetworkListener:
    """The port of one machine where it accepts connections."""

    def __init__(self, host: str = "", port: int = 0) -> None:
        self.host = host
        self.port = port
        self.send, self._receive = trio.open_memory_channel[Transport](1000)

    async def accept(self) -> Transport:
        return await self._receive.receive()

    def close(self) -> None:
        """Accept nothing more."""
        self._receive.close()


class MemoryNetwork:
    """Addresses are `name:port`; one without a listener refuses.

    Listeners are kept by name, or by `name:port` for machines that listen on several ports.
    """

    def __init__(self, rng: Random, latency_ms_max: float = 1.0) -> None:
        self.listeners: dict[str, NetworkListener] = {}
        self.latency_ms_max = latency_ms_max
        self.connects = 0
        self.connect_times_s: dict[tuple[str, str], float] = {}
        """Time that a connection takes from a source to a target, in seconds, as when its first
        packet was lost; 0 if there is no entry."""
        self._rng = rng
        self.latencies_s: dict[tuple[str, str], float] = {}
        """Additional delay from a source to a target, in seconds."""
        self._cuts: set[tuple[str, str]] = set()
        self._pipes: list[Pipe] = []
        self._ends: list[tuple[str, PipeTransport]] = []

    def latency_s(self, source: str, target: str) -> float:
        """Draw how long the next bytes take."""
        drawn_s = self._rng.uniform(0, self.latency_ms_max) / 1000
        return drawn_s + self.latencies_s.get((source, target), 0.0)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def set_cuts(self, *cuts: tuple[str, str]) -> None:
        """These ways carry nothing; all others do again, what waited first."""
        self._cuts = set(cuts)
        for pipe in self._pipes:
            pipe.wake()

    def isolate(self, name: str) -> None:
        others = self.listeners.keys() - {name}
        self.set_cuts(*((name, other) for other in others), *((other, name) for other in others))

    def end_process(self, name: str) -> None:
        """Close whatever a machine has open, as its kernel does when the process is killed."""
        for address in [one for one in self.listeners if one.partition(":")[0] == name]:
            del self.listeners[address]
        ends, self._ends = self._ends, []
        for owner, transport in ends:
            if owner == name:
                transport.close()
            else:
                self._ends.append((owner, transport))

    async def connect(self, source: str, target: str, port: int | None = None) -> Transport:
        self.connects += 1
        await trio.lowlevel.checkpoint()
        if self.is_cut(source, target) or self.is_cut(target, source):
            await trio.sleep_forever()
        await trio.sleep(self.connect_times_s.get((source, target), 0))
        listener = self.listeners.get(target if port is None else f"{target}:{port}")
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        there, back = Pipe(self, source, target), Pipe(self, target, source)
        self._pipes = [pipe for pipe in self._pipes if not pipe.closed] + [there, back]
        accepted = PipeTransport(f"{source}:{40000 + self.connects}", there, back)
        connected = PipeTransport(f"{target}:{port or 1}", back, there)
        try:
            listener.send.send_nowait(accepted)
        except (trio.BrokenResourceError, trio.WouldBlock):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens") from None
        self._ends = [end for end in self._ends if not end[1].is_closed]
        self._ends += [(target, accepted), (source, connected)]
        return connected
