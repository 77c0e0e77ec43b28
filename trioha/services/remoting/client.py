"""The client's end of a remoting connection: opens it, awaits responses, handles pushes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from trioha.errors import Unreachable
from trioha.journal import EventSink, NullSink
from trioha.remoting.channel import Handler
from trioha.remoting.node_proofs import NONCE_BYTES, is_answer_proven, is_challenge, proven
from trioha.remoting.requests import RequestTable
from trioha.security.node_signer import Sign, unsigned
from trioha.services.loop.background import open_background_nursery
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import random_source
from trioha.services.loop.transport import (
    Connect,
    Transport,
    connect,
    format_address,
    parse_address,
)
from trioha.services.remoting.link import LinkLimits, RemotingLink
from trioha.wire.codes import ONEWAY_FLAG
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand

__all__ = ["RemotingClient", "open_remoting_client", "parse_address"]


class RemotingClient:
    """One connection to a node."""

    def __init__(
        self, link: RemotingLink, sign: Sign = unsigned, keyring: Keyring | None = None
    ) -> None:
        """`keyring`: proves requests to nodes that ask for it (`trioha.remoting.node_proofs`)."""
        self.link = link
        self.sign = sign
        """Signs what `request` and `oneway_nowait` send; callers of `link` call it themselves."""
        self._keyring = keyring or Keyring()

    @property
    def closed(self) -> bool:
        return self.link.closed

    async def request(self, command: RemotingCommand) -> RemotingCommand:
        """Send and await the response; prove the request if the node asks for that and we can.

        The caller owns patience.
        Cancellation: the request may have been carried out.
        Errors: Unreachable when the connection is or goes down.
        """
        response, _ = await self.ask(command)
        return response

    async def ask(self, command: RemotingCommand) -> tuple[RemotingCommand, bool]:
        """Do the same as `request`; return also whether the answer is believed.

        It is believed if its sender has proven that it knows our secret, or if we have none.
        """
        response = await self._request(command)
        if not self._keyring:
            return response, True
        if not is_challenge(response):
            return response, False
        nonce = random_source().randbytes(NONCE_BYTES)
        request = proven(self._keyring, response, command, nonce)
        response = await self._request(request)
        return response, is_answer_proven(self._keyring, request, response)

    async def _request(self, command: RemotingCommand) -> RemotingCommand:
        if self.link.closed:
            raise Unreachable(f"{self.link.peer}: {self.link.close_reason or 'connection closed'}")
        self.sign(command)
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
        self.sign(command)
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
    sign: Sign = unsigned,
    keyring: Keyring | None = None,
) -> AsyncIterator[RemotingClient]:
    """Connect and serve the connection while the block runs.

    `keyring`: as `RemotingClient`.

    `handlers` answer what the server asks or tells us (codes 40, 220, 307…). An idle connection of
    ours never closes by itself unless `limits` say so. `sign` signs our requests.
    Errors: Unreachable when no server listens there. What the block raises comes out as it is.
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
            yield RemotingClient(link, sign, keyring)
        finally:
            nursery.cancel_scope.cancel()
