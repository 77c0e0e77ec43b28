"""One end of a TLS connection, without the socket: ciphertext in, plaintext out, and back.

Theory of operation. OpenSSL works on two buffers in memory. Everything that one read of the socket
brought goes in at once and comes out as one chunk of plaintext, and everything that one write takes
comes out as one chunk of ciphertext: so a batch of frames costs as few system calls as it does
without TLS. What OpenSSL itself has to say (handshake, alerts, new keys) lies in `take_ciphertext`
after any call.

A peer may end its stream with TLS's own close or by closing the connection. Frames know their own
length, so an end between two TLS records is an end like any other; within one it is an error.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

from trioha.errors import RemoteProtocolError
from trioha.wire.remoting_command import Buffer
from trioha.wire.tls_errors import SPEAKS_NO_TLS, TLS_ALERT, tls_reason

PLAIN_PEER_ALERT = bytes([TLS_ALERT, 3, 3, 0, 2, 2, 70])
"""A TLS alert, fatal, protocol_version: the answer to a peer that does not speak TLS."""
_READ_BYTES = 16_384  # the plaintext of one record, at most
_JOIN_BYTES_MAX = 65_536  # below this one copy is cheaper than a record per buffer


class TlsSession:
    """One end of one TLS connection."""

    def __init__(self, context: ssl.SSLContext, *, server_hostname: str | None = None) -> None:
        """The accepting end without a `server_hostname`, else the connecting end."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self.accepting = server_hostname is None
        self.ended = False
        """The peer has closed its end by TLS's own close."""

    def handshake(self) -> bool:
        """Go on with the handshake; return whether it is complete.

        Errors: RemoteProtocolError in words; an alert for the peer is then in `take_ciphertext`.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            reason = tls_reason(error)
            if self.accepting and reason == SPEAKS_NO_TLS:
                reason = "its bytes are no TLS"
            raise RemoteProtocolError(reason) from error
        except ValueError as error:  # a host name that cannot be in a certificate
            raise RemoteProtocolError(str(error)) from error
        return True

    def feed(self, data: bytes) -> None:
        """Take ciphertext that the peer sent."""
        self._incoming.write(data)

    def open_fed(self) -> bytes:
        """Return the plaintext of all whole records that were fed; b"" for none. HOT.

        Errors: RemoteProtocolError in words.
        """
        incoming, ssl_object = self._incoming, self._object
        parts: list[bytes] = []
        try:
            while incoming.pending or ssl_object.pending():
                part = ssl_object.read(_READ_BYTES)
                if not part:
                    self.ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise RemoteProtocolError(tls_reason(error, is_shaken=True)) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def seal(self, buffers: list[Buffer]) -> None:
        """Encrypt these bytes; they come out of `take_ciphertext`. HOT.

        Errors: RemoteProtocolError in words.
        """
        if sum(map(len, buffers)) <= _JOIN_BYTES_MAX:
            buffers = [b"".join(buffers)]
        write = self._object.write
        try:
            for buffer in buffers:
                view = memoryview(buffer)
                while view:
                    view = view[write(view) :]  # a record holds 16 KiB
        except ssl.SSLError as error:
            raise RemoteProtocolError(tls_reason(error)) from error

    def take_ciphertext(self) -> bytes:
        """Return the bytes for the peer since the last call; b"" for none. HOT."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """Return TLS's own close, to be sent last."""
        with suppress(ssl.SSLError, ValueError):  # the peer's close is not waited for
            self._object.unwrap()
        return self._outgoing.read()
