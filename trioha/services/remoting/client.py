"""The asking end of a remoting connection: open it, await responses, get what the server pushes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from trioha.errors import Unreachable
from trioha.journal import EventSink, NullSink
from trioha.remoting.channel import Handler
from trioha.remoting.requests import RequestTable
from trioha.services.loop.background import open_background_nursery
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import (
    Connect,
    Transport,
    connect,
    format_address,
    parse_address,
)
from trioha.services.remoting.link import LinkLimits, RemotingLink
from trioha.wire.codes import ONEWAY_FLAG
from trioha.wire.remoting_command import RemotingCommand

__all__ = ["RemotingClient", "open_remoting_client", "parse_address"]


class RemotingClient:
    """One connection to a node."""

    def __init__(self, link: RemotingLink) -> None:
        self.link = link

    @property
    def closed(self) -> bool:
        return self.link.closed

    async def request(self, command: RemotingCommand) -> RemotingCommand:
        """Send and await the response. The caller owns patience.

        Cancellation: the request may have been carried out.
        Errors: Unreachable when the connection is or goes down.
        """
        if self.link.closed:
            raise Unreachable(f"{self.link.peer}: {self.link.close_reason or 'connection closed'}")
        answered = trio.Event()
        answer: RemotingCommand | None = None

        def on_response(response: RemotingCommand | None) -> None:
            nonlocal answer
            answer = response
            answered.set()

        self.link.expect_response(command, on_response)
        try:
            await answered.wait()
        except trio.Cancelled:
            self.link.forget(command.opaque)
            raise
        if answer is None:
            raise Unreachable(f"{self.link.peer}: {self.link.close_reason or 'connection closed'}")
        return answer

    def oneway_nowait(self, command: RemotingCommand) -> None:
        """Send and expect no response."""
        command.flag |= ONEWAY_FLAG
        self.link.send_nowait(command)


@asynccontextmanager
async def open_remoting_client(
    host: str,
    port: int,
    clock: Clock,
    *,
    handlers: Mapping[int, Handler] | None = None,
    on_closed: Callable[[], None] | None = None,
    events: EventSink | None = None,
    limits: LinkLimits | None = None,
    transport: Transport | None = None,
    connect_to: Connect = connect,
) -> AsyncIterator[RemotingClient]:
    """Connect and serve the connection while the block runs.

    `handlers` answer what the server asks or tells us (codes 40, 220, 307…). An idle connection of
    ours never closes by itself unless `limits` say so.
    Errors: Unreachable when nobody listens. What the block raises comes out as it is.
    """
    if transport is None:
        try:
            transport = await connect_to(host, port)
        except OSError as error:
            raise Unreachable(f"{format_address(host, port)}: {error.strerror or error}") from error
    link = RemotingLink(
        transport,
        clock,
        handle=RequestTable(handlers or {}, events or NullSink()).handle,
        limits=limits or LinkLimits(idle_s=float("inf")),
    )

    async def serve() -> None:
        await link.serve()
        if on_closed is not None:
            on_closed()

    async with open_background_nursery() as nursery:
        nursery.start_soon(serve, name=f"remoting.client[{link.peer}]")
        try:
            yield RemotingClient(link)
        finally:
            nursery.cancel_scope.cancel()
