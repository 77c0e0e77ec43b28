"""The console's end of the network: the pure remoting machine as a protocol of asyncio.

A protocol takes what came in the loop's own turn: with streams each answer would wake a task first,
and a console of a hundred brokers reads more than a hundred answers a second.

One connection per node, opened when something is asked of it and forgotten when it ends; nobody is
reconnected to in the background. A node that stops answering costs its own questions their
patience and nothing else: questions to others go their own way.
"""

from __future__ import annotations

import asyncio
import os
import ssl

import attrs

from trioha.config.secret_files import operator_keyring
from trioha.config.tls_files import ClientTls, FileContext, client_context
from trioha.credentials import current_tls
from trioha.errors import RemoteProtocolError, Unreachable
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.node_proofs import is_challenge, proven
from trioha.security.signature import Credentials
from trioha.wire.address import parse_address
from trioha.wire.codes import RESPONSE_FLAG
from trioha.wire.keyring import Keyring
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import RemotingCommand, encode
from trioha.wire.tls_errors import SPEAKS_NO_TLS, tls_reason

CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 3.0


class NotConnected(Unreachable):
    """No connection could be made: what was to be asked surely did not happen."""


class NodeLink(asyncio.Protocol):
    """One open connection."""

    def __init__(
        self,
        address: str,
        keyring: Keyring | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._keyring = keyring or Keyring()
        self._transport: asyncio.Transport | None = None
        self._connection = RemotingConnection()
        self._reason = ""

    @property
    def closed(self) -> bool:
        return bool(self._reason)

    async def request(self, command: RemotingCommand) -> RemotingCommand:
        """Send and await the answer; prove the request if the node asks for that and we can.

        The caller owns patience.

        Errors: Unreachable when the connection is or goes down.
        """
        response = await self._request(command)
        if self._keyring and is_challenge(response):
            response = await self._request(proven(self._keyring, response, command))
        return response

    async def _request(self, command: RemotingCommand) -> RemotingCommand:
        if self._transport is None or self.closed:
            raise Unreachable(f"{self.address}: {self._reason}")
        if self._credentials is not None:
            # A proof adds fields, and an account's signature covers them.
            self._credentials.sign(command)
        answer: asyncio.Future[RemotingCommand | None] = asyncio.get_running_loop().create_future()

        def on_response(response: RemotingCommand | None) -> None:
            if not answer.done():
                answer.set_result(response)

        self._connection.expect_response(command, on_response)
        self._transport.write(encode(command))
        try:
            response = await answer
        finally:
            self._connection.forget(command.opaque)
        if response is None:
            raise Unreachable(f"{self.address}: {self._reason}")
        return response

    def close(self) -> None:
        self._end("closed by us")

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._connection.receive_data(data)
            while (command := self._connection.next_command()) is not NEED_DATA:
                # A node may ask us things as it asks clients; a console has no answers.
                if command.flag & RESPONSE_FLAG:
                    self._connection.response_received(command)
        except RemoteProtocolError as error:
            self._end(f"it does not speak our protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, OSError):
            self._end(_in_words(exc))
        else:
            self._end("connection closed by the node")

    def _end(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            if self._transport is not None:
                self._transport.close()
            self._connection.fail_pending()


@attrs.define(eq=False, kw_only=True)
class Links:
    """Connections by address, on demand."""

    _connect_timeout_s: float = CONNECT_TIMEOUT_S
    _request_timeout_s: float = REQUEST_TIMEOUT_S
    _keyring: Keyring = attrs.field(factory=operator_keyring)
    """Proves what only operators may ask; without one, as the environment says."""
    _credentials: Credentials | None = None
    """Sign every request; without them none is signed."""
    _tls: ClientTls | None = attrs.field(factory=current_tls)
    """Certificates of connections over TLS; None: plain connections."""
    _context: FileContext | None = attrs.field(init=False)
    _links: dict[str, NodeLink] = attrs.field(factory=dict, init=False)
    _locks: dict[str, asyncio.Lock] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._context = None if self._tls is None else client_context(self._tls)

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Ask a node and await its answer, whatever its code.

        Errors: Unreachable, in words; TriohaError for what is no address.
        """
        link = self._links.get(address)
        if link is None or link.closed:
            link = await self._open(address)
        patience_s = self._request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(patience_s):
                return await link.request(command)
        except TimeoutError:
            raise Unreachable(f"{address} did not answer within {patience_s:g} s") from None

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()
        # Their sockets are closed by the loop's next turn.
        await asyncio.sleep(0)

    async def _open(self, address: str) -> NodeLink:
        async with self._locks.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            if link is None or link.closed:
                link = self._links[address] = await self._connect(address)
            return link

    async def _connect(self, address: str) -> NodeLink:
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: NodeLink(address, self._keyring, self._credentials),
                    host,
                    port,
                    ssl=None if self._context is None else self._context.fresh(),
                )
        except TimeoutError:
            raise NotConnected(
                f"{address}: no connection in {self._connect_timeout_s:g} s"
            ) from None
        except OSError as error:
            reason = _in_words(error)
            if self._context and isinstance(error, ConnectionResetError | ConnectionAbortedError):
                reason = f"it closed during the TLS handshake; {SPEAKS_NO_TLS}"
            raise NotConnected(f"{address}: {reason}") from error
        return link


def _in_words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {tls_reason(error)}"
    # asyncio puts its own sentence, with our address in it, before the reason.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
