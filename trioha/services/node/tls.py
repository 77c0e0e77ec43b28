"""TLS of one node: its ports, its connections to others, and its certificates while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import trio

from trioha.config.tls import TlsSettings
from trioha.config.tls_files import (
    FileContext,
    certificate_end,
    client_context,
    node_client_tls,
    server_context,
)
from trioha.errors import ConfigError
from trioha.journal import EventSink
from trioha.journal.line_limits import LineLimits
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking
from trioha.services.loop.tls import AcceptedTransport, OnFailed, tls_connect
from trioha.services.loop.transport import READ_BYTES_MAX, Connect, Transport, connect

LOOK_S = 1.0
WARN_DAYS = 14
"""A certificate that expires within so many days is a journal line, once a day."""
_DAY_S = 86_400
_LINK_READ_BYTES_MAX = 139_264
"""Holds more than FULL_READ_BYTES of plaintext, by which a slave notices that more follows."""


class NodeTls:
    """TLS by the node's settings; without TLS, connections stay as they are."""

    def __init__(self, config: TlsSettings, events: EventSink, clock: Clock) -> None:
        """Read the files. Blocks. Errors: ConfigError with file and cure."""
        self._config = config
        self._events = events
        self._lines = LineLimits(events)
        self._clock = clock
        self._ports: FileContext | None = None
        self._http: FileContext | None = None
        self._dialled: FileContext | None = None
        self._ends_s: dict[str, float] = {}
        self._warned_day = -1.0
        self._rejected = ""
        if config.tls_mode != "disabled":
            self._ports = server_context(config)
            self._http = server_context(config, client_auth=False)
        if config.dials_tls:
            self._dialled = client_context(node_client_tls(config))
        for context in self._contexts():
            self._loaded(context)

    def accepted(self, transport: Transport) -> Transport:
        """Return a connection to a port of nodes and clients, with TLS on top."""
        return self._on_top(self._ports, transport)

    def accepted_ha(self, transport: Transport) -> Transport:
        """Return a connection to the HA port, with TLS on top."""
        return self._on_top(self._ports, transport, self._failed)

    def accepted_http(self, transport: Transport) -> Transport:
        """Return a connection to the HTTP port, with TLS on top; it needs no certificate."""
        return self._on_top(self._http, transport, self._failed)

    def connect_to(self, *, ha: bool = False, read_bytes_max: int = READ_BYTES_MAX) -> Connect:
        """Return what opens connections to other nodes; `ha`: to the HA port of a master."""
        if self._dialled is None or (ha and not self._config.tls_ha_enable):
            return partial(connect, read_bytes_max=read_bytes_max)
        if ha:
            return tls_connect(self._dialled, read_bytes_max=_LINK_READ_BYTES_MAX)
        return tls_connect(self._dialled)

    def end_s(self) -> float | None:
        """Return when the first of this node's certificates expires, in seconds since 1970."""
        return min(self._ends_s.values(), default=None)

    async def run(self) -> None:
        """Look at the files until cancelled; without TLS there are none."""
        while any(self._contexts()):
            self._warn()
            await trio.sleep(LOOK_S)
            await run_blocking(self.look)

    def look(self) -> None:
        """Read files that have changed. Blocks."""
        for context in self._contexts():
            try:
                if context.look():
                    self._rejected = ""
                    self._loaded(context)
            except ConfigError as error:
                if str(error) != self._rejected:  # several contexts use one file
                    self._rejected = str(error)
                    self._events.event("certificate_rejected", reason=f"{error}; the old one stays")

    def _contexts(self) -> Iterator[FileContext]:
        return filter(None, (self._ports, self._http, self._dialled))

    def _on_top(
        self, context: FileContext | None, transport: Transport, on_failed: OnFailed | None = None
    ) -> Transport:
        if context is None:
            return transport
        enforcing = self._config.tls_mode == "enforcing"
        return AcceptedTransport(transport, context, enforcing=enforcing, on_failed=on_failed)

    def _failed(self, peer: str, reason: str) -> None:
        host = peer.rpartition(":")[0]
        self._lines.event("connection_closed", host, self._clock.now_ms(), peer=peer, reason=reason)

    def _loaded(self, context: FileContext) -> None:
        file = context.files.cert
        if file and context is not self._http:
            end = certificate_end(file)
            if self._ends_s.get(file) != end.timestamp():
                self._ends_s[file] = end.timestamp()
                self._warned_day = -1.0
                self._events.event("certificate_loaded", file=file, expires=end.isoformat())

    def _warn(self) -> None:
        now_s = self._clock.wall_ms() / 1000
        if now_s // _DAY_S == self._warned_day:
            return
        self._warned_day = now_s // _DAY_S
        for file, end_s in self._ends_s.items():
            days = (end_s - now_s) / _DAY_S
            if days < WARN_DAYS:
                state = f"expires in {days:.1f} days" if days > 0 else "has expired"
                reason = f"{file} {state}; replace it, the node reads the new one without a restart"
                self._events.event("certificate_expires", file=file, reason=reason)
