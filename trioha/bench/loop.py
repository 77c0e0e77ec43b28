"""A select loop over a few blocking-free sockets.

Not Trio, on purpose: a wake-up here costs three system calls and a few microseconds, a task switch
several times that, and every one of them would be taken from the broker under test.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from trioha.config.tls_files import client_context
from trioha.credentials import current_tls
from trioha.errors import RemoteProtocolError, Unreachable
from trioha.remoting.tls_session import TlsSession
from trioha.services.loop.tls import TLS_READ_BYTES_MAX
from trioha.services.loop.transport import parse_address

READ_BYTES = 262_144
_CONNECT_S = 3.0
_NS = 1_000_000_000


class LoadConnection:
    """One connection of the load generator."""

    def __init__(self, address: str, on_data: Callable[[bytes, int], None]) -> None:
        self.address = address
        self.on_data = on_data
        """Gets what one read brought, and when."""
        try:
            self.socket = socket.create_connection(parse_address(address), _CONNECT_S)
        except OSError as error:
            raise Unreachable(f"{address}: {error.strerror or error}") from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = self._shake_hands()
        self.read_bytes = READ_BYTES if self._tls is None else TLS_READ_BYTES_MAX
        self.socket.setblocking(False)
        self.unsent = b""

    def send(self, data: bytes) -> None:
        """Send now what the kernel takes; the loop sends the rest."""
        if self._tls is not None:
            self._tls.seal([data])
            data = self._tls.take_ciphertext()
        self.send_bytes(data)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self.unsent:
            self.unsent += data
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise Unreachable(f"{self.address} is gone: {error.strerror or error}") from error
        if sent < len(data):
            self.unsent = data[sent:]

    def received(self, data: bytes) -> bytes:
        """Return what the peer said in the bytes of one read."""
        if self._tls is None:
            return data
        self._tls.feed(data)
        return self._tls.open_fed()

    def _shake_hands(self) -> TlsSession | None:
        """Errors: Unreachable."""
        tls = current_tls()
        if tls is None:
            return None
        session = TlsSession(client_context(tls)(), server_hostname=parse_address(self.address)[0])
        try:
            while not session.handshake():
                self.socket.sendall(session.take_ciphertext())
                session.feed(self.socket.recv(READ_BYTES))
            self.socket.sendall(session.take_ciphertext())
        except (OSError, RemoteProtocolError) as error:
            raise Unreachable(f"{self.address}: {error}") from error
        return session


class LoadLoop:
    """Runs callbacks for readable connections and for one timer until stopped."""

    def __init__(self) -> None:
        self._connections: dict[socket.socket, LoadConnection] = {}
        self._due_ns = 0
        self.stopped = False

    def connect(self, address: str, on_data: Callable[[bytes, int], None]) -> LoadConnection:
        """Open a connection of this loop. Errors: Unreachable."""
        connection = LoadConnection(address, on_data)
        self._connections[connection.socket] = connection
        return connection

    def run(self, on_time: Callable[[int], int]) -> None:
        """Serve until `stopped`.

        `on_time(now_ns)` is called whenever the time it last returned has come.
        Errors: Unreachable when a peer closes.
        """
        sockets = list(self._connections)
        self.hurry()
        while True:
            now_ns = time.perf_counter_ns()
            if now_ns >= self._due_ns:
                self._due_ns = on_time(now_ns)
            if self.stopped:
                return
            # Even with the next time already come: answers are read in every turn.
            patience_s = max(0, self._due_ns - now_ns) / _NS
            unsent = [sock for sock, peer in self._connections.items() if peer.unsent]
            readable, writable, _ = select.select(sockets, unsent, (), patience_s)
            for sock in writable:
                connection = self._connections[sock]
                data, connection.unsent = connection.unsent, b""
                connection.send_bytes(data)
            for sock in readable:
                connection = self._connections[sock]
                try:
                    data = sock.recv(connection.read_bytes)
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise Unreachable(f"{connection.address}: {error.strerror}") from error
                if not data:
                    raise Unreachable(f"{connection.address} closed the connection")
                if data := connection.received(data):
                    connection.on_data(data, time.perf_counter_ns())

    def hurry(self) -> None:
        """Call `on_time` in the next turn."""
        self._due_ns = 0

    def close(self) -> None:
        for sock in self._connections:
            sock.close()
        self._connections.clear()
