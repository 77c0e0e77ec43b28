"""Trio's streams as transports."""

from __future__ import annotations

import trio

from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import take_each
from trioha.wire.remoting_command import Buffer


class StreamTransport:
    """Any Trio stream, memory streams above all. `try_send` takes nothing: the writer does."""

    def __init__(self, stream: trio.abc.Stream, peer: str = "127.0.0.1:1") -> None:
        self._stream = stream
        self.peer = peer
        self.waited_ms = 0

    async def receive_some(self) -> bytes:
        return bytes(await self._stream.receive_some())

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        return buffers

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        await self._stream.send_all(b"".join(buffers))
        return []

    async def send_all(self, buffers: list[Buffer]) -> None:
        await self.send_some(buffers)

    def finish(self) -> None:
        self._stream.send_stream.close()  # type: ignore[attr-defined]

    def close(self) -> None:
        # Memory streams close without blocking; aclose would have to be awaited.
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()
            return
        for half in (getattr(self._stream, name) for name in ("send_stream", "receive_stream")):
            half.close()

    def peer_has_gone(self) -> bool:
        return False

    def abort(self) -> None:
        self.close()
