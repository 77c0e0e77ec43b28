"""TLS between a connection and its frames: a transport on top of a transport.

Theory of operation. An accepted connection is *undecided* until its first byte: 0x16 begins a TLS
handshake, anything else is a plain peer, as in RocketMQ (its class HandshakeHandler).
The read task of the connection decides, and does the handshake within its own first read: so no
handshake holds up the accept loop, and a failed one ends its connection with one journal line. The
write task waits until that is done.

A master speaks first on the HA port if it has a secret. So in permissive mode a write to an
undecided peer waits `PLAIN_AFTER_S`: a TLS client says hello at once.

`try_send` encrypts in pieces, and reports a piece as sent once the kernel has all of its
ciphertext. The rest that it returns begins with that piece. The next call has to pass it again, as
every caller does, and does not encrypt it a second time.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress

import trio

from trioha.errors import RemoteProtocolError
from trioha.remoting.tls_session import PLAIN_PEER_ALERT, TlsSession
from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import Connect, Transport, connect, take_each
from trioha.wire.remoting_command import Buffer
from trioha.wire.tls_errors import SPEAKS_NO_TLS, TLS_HANDSHAKE

HANDSHAKE_S = 10.0
"""Limit on the time of a whole handshake; an honest peer needs two round trips."""
PLAIN_AFTER_S = 0.5
"""A slave without TLS expects the master's challenge within a second."""
PIECE_BYTES_MAX = 262_144
"""Bytes that are encrypted and given to the kernel at a time: 0.1 ms of work."""

TLS_READ_BYTES_MAX = 131_072
"""Longer reads cost the reader twice the CPU for a byte (measured): they leave the cache."""

MakeContext = Callable[[], ssl.SSLContext]
"""Returns the context of the next handshake: a certificate may be replaced while a node runs."""
OnFailed = Callable[[str, str], None]
"""Takes the peer and the reason."""


class TlsTransport:
    """A connection over TLS. Implements `trioha.services.loop.transport.Transport`."""

    def __init__(self, inner: Transport, session: TlsSession | None = None) -> None:
        """Without a `session`, bytes pass as they are. With one, `handshake` comes first."""
        self.peer = inner.peer
        self._inner = inner
        self._session = session
        self._ciphertext: list[Buffer] = []
        """Encrypted bytes that the kernel has not taken."""
        self._sealed_bytes = 0
        """Bytes at the head of the next send that are in `_ciphertext` already."""
        self._sending = False

    @property
    def waited_ms(self) -> int:
        return self._inner.waited_ms

    async def handshake(self) -> None:
        """Do the handshake. Errors: trio.BrokenResourceError in words."""
        session, inner = self._session, self._inner
        assert session is not None, "a plain connection has no handshake"
        try:
            while not session.handshake():
                await inner.send_all([session.take_ciphertext()])
                received = await inner.receive_some()
                if not received:
                    hint = "" if session.accepting else f"; {SPEAKS_NO_TLS}"
                    raise trio.BrokenResourceError(f"it closed during the TLS handshake{hint}")
                session.feed(received)
            await inner.send_all([session.take_ciphertext()])
        except RemoteProtocolError as error:
            inner.try_send([session.take_ciphertext()])  # the alert
            raise trio.BrokenResourceError(f"TLS handshake: {error}") from error

    async def receive_each(self, take: Take) -> bool:
        if self._session is None:
            return await self._inner.receive_each(take)
        return await take_each(self, take)

    async def receive_some(self) -> bytes:
        session = self._session
        if session is None:
            return await self._inner.receive_some()
        while True:
            # The read that completed the handshake may have brought whole records too.
            try:
                data = session.open_fed()
            except RemoteProtocolError as error:
                raise trio.BrokenResourceError(f"TLS: {error}") from error
            finally:
                if own := session.take_ciphertext():
                    self._send_behind(own)
            if data or session.ended:
                return data
            received = await self._inner.receive_some()
            if not received:
                return b""
            session.feed(received)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        session = self._session
        if session is None:
            return self._inner.try_send(buffers)
        if self._ciphertext:
            self._ciphertext = self._inner.try_send(self._ciphertext)
            if self._ciphertext:
                return buffers
        if self._sealed_bytes:
            buffers = _split(buffers, self._sealed_bytes)[1]
            self._sealed_bytes = 0
        while buffers:
            piece, rest = _split(buffers, PIECE_BYTES_MAX)
            try:
                session.seal(piece)
            except RemoteProtocolError as error:
                raise trio.BrokenResourceError(f"TLS: {error}") from error
            self._ciphertext = self._inner.try_send([session.take_ciphertext()])
            if self._ciphertext:
                self._sealed_bytes = sum(map(len, piece))
                return buffers
            buffers = rest
        return []

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        if self._session is None:
            return await self._inner.send_some(buffers)
        if self._ciphertext:
            waiting, self._ciphertext, self._sending = self._ciphertext, [], True
            try:
                waiting = await self._inner.send_some(waiting)
            finally:
                self._sending = False
            self._ciphertext = waiting + self._ciphertext
        else:
            await trio.lowlevel.checkpoint()
        return self.try_send(buffers)

    async def send_all(self, buffers: list[Buffer]) -> None:
        rest = self.try_send(buffers)
        while rest:
            rest = await self.send_some(rest)

    def finish(self) -> None:
        """Send nothing more; what is received from here on is not decrypted."""
        self._say_last()
        self._inner.finish()

    def close(self) -> None:
        self._say_last()
        self._inner.close()

    def _say_last(self) -> None:
        session, self._session = self._session, None
        if session is not None and not self._ciphertext and (last := session.close()):
            with suppress(trio.BrokenResourceError):  # the peer has gone first
                self._inner.try_send([last])

    def peer_has_gone(self) -> bool:
        session = self._session
        return (session is not None and session.ended) or self._inner.peer_has_gone()

    def abort(self) -> None:
        self._inner.abort()

    def _send_behind(self, own: bytes) -> None:
        """Send what TLS itself has to say, behind ciphertext that waits."""
        self._ciphertext.append(own)
        if len(self._ciphertext) == 1 and not self._sending:
            self._ciphertext = self._inner.try_send(self._ciphertext)


class AcceptedTransport(TlsTransport):
    """A connection to a port with TLS, whose peer speaks first and so tells whether it does."""

    def __init__(
        self,
        inner: Transport,
        make_context: MakeContext,
        *,
        enforcing: bool,
        on_failed: OnFailed | None = None,
    ) -> None:
        """`on_failed` is called before the error of a peer without a complete handshake is raised:
        for ports whose users do not report such errors themselves."""
        super().__init__(inner)
        self._on_failed = on_failed
        self._make_context = make_context
        self._enforcing = enforcing
        self._hello_seen = False
        self._decided = trio.Event()

    async def receive_each(self, take: Take) -> bool:
        if not self._decided.is_set():
            data = await self.receive_some()
            if not data or not take(data):
                return bool(data)
        return await super().receive_each(take)

    async def receive_some(self) -> bytes:
        if not self._decided.is_set():
            first = await self._inner.receive_some()
            if not self._decided.is_set():
                if not first:
                    return b""
                try:
                    if first[0] != TLS_HANDSHAKE:
                        return self._plain(first)
                    await self._accept(first)
                except trio.BrokenResourceError as error:
                    if self._on_failed is not None:
                        self._on_failed(self.peer, str(error))
                    raise
            else:
                return first
        return await super().receive_some()

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        return super().try_send(buffers) if self._decided.is_set() else buffers

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        if not self._decided.is_set():
            if not self._enforcing:
                with trio.move_on_after(PLAIN_AFTER_S):
                    await self._decided.wait()
                if not self._hello_seen:
                    self._decided.set()
            await self._decided.wait()
        return await super().send_some(buffers)

    def _plain(self, first: bytes) -> bytes:
        if self._enforcing:
            self._inner.try_send([PLAIN_PEER_ALERT])
            raise trio.BrokenResourceError(
                "it speaks no TLS, and tls.server.mode=enforcing; set tls.enable=true there"
            )
        self._decided.set()
        return first

    async def _accept(self, first: bytes) -> None:
        self._hello_seen = True
        self._session = TlsSession(self._make_context())
        self._session.feed(first)
        with trio.move_on_after(HANDSHAKE_S) as patience:
            await self.handshake()
        if patience.cancelled_caught:
            raise trio.BrokenResourceError(f"no TLS handshake within {HANDSHAKE_S:g} s")
        self._decided.set()


def tls_connect(make_context: MakeContext, *, read_bytes_max: int = TLS_READ_BYTES_MAX) -> Connect:
    """Return what opens TLS connections and checks the certificate of the host.

    Errors of what it returns: OSError in words. The caller owns patience.
    """

    async def open_connection(host: str, port: int) -> Transport:
        inner = await connect(host, port, read_bytes_max=read_bytes_max)
        try:
            transport = TlsTransport(inner, TlsSession(make_context(), server_hostname=host))
            await transport.handshake()
        except (trio.BrokenResourceError, ValueError) as error:
            inner.close()
            raise OSError(str(error)) from error
        except BaseException:
            inner.close()
            raise
        return transport

    return open_connection


def _split(buffers: list[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """Return the first `size` bytes, and the rest."""
    for index, buffer in enumerate(buffers):
        if len(buffer) > size:
            view = memoryview(buffer)
            return [*buffers[:index], view[:size]], [view[size:], *buffers[index + 1 :]]
        size -= len(buffer)
    return buffers, []
