"""The HTTP port for machines: GET of a few pages, each made when it is asked for.

h11 does the protocol; here are only the tasks around it. It is imported with the first connection,
so that a node without a scraper pays nothing for it. Connections are few and bounded: the oldest
idle one makes room for the next, so a scraper that never closes keeps no other one out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from trioha import __version__
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.errors import TriohaError
from trioha.journal import EventSink
from trioha.services.loop.descriptors import are_scarce
from trioha.services.loop.transport import (
    Listener,
    OnTop,
    Transport,
    nothing_on_top,
    open_listener,
)

if TYPE_CHECKING:
    import h11

_DISTANCE = 3  # from the remoting port: behind a broker's HA port, before the next name server's
CONNECTIONS_MAX = 64
CONNECTIONS_SCARCE_MAX = 4
"""Limit while clients have taken nearly all descriptors."""
REQUEST_BYTES_MAX = 16_384
PATIENCE_S = 15.0
"""Limit for a request to arrive whole, and for the peer to read an answer."""

TEXT = "text/plain; charset=utf-8"


@attrs.frozen
class Page:
    """An answer."""

    body: bytes
    content_type: str = TEXT
    status: int = 200


OnGet = Callable[[str], Page]
"""Makes a page; gets the request's Accept header, "" without one."""


class HttpListener(Protocol):
    async def accept(self) -> Transport: ...


def open_admin_listener(
    config: BrokerConfig | NamesrvConfig,
    remoting: Listener,
    events: EventSink,
    on_top: OnTop = nothing_on_top,
) -> Listener | None:
    """Listen for HTTP; return None if the configuration forbids it, or the port is taken.

    No message depends on this port, so a node starts without it, and the journal says so.
    """
    if not config.admin_http_enable:
        return None
    port = config.admin_http_port
    if port < 0:
        # If the remoting port was picked freely, no fixed port beside it is known to be free.
        port = remoting.port + _DISTANCE if config.listen_port else 0
    try:
        return open_listener(config.bind_address, port, on_top)
    except TriohaError as error:
        events.event("admin_port_unavailable", reason=str(error))
        return None


async def serve_http(listener: HttpListener, pages: Mapping[str, OnGet]) -> None:
    """Serve `pages`, by path, until cancelled.

    Errors: none that a peer can cause. A page that raises is our own fault and ends the node.
    """
    open_connections: dict[Transport, trio.CancelScope] = {}
    async with trio.open_nursery() as nursery:
        while True:
            transport = await listener.accept()
            room = CONNECTIONS_SCARCE_MAX if are_scarce() else CONNECTIONS_MAX
            while len(open_connections) >= room:
                open_connections.pop(next(iter(open_connections))).cancel()
            scope = open_connections[transport] = trio.CancelScope()
            nursery.start_soon(
                _serve_connection,
                transport,
                pages,
                scope,
                open_connections,
                name=f"admin.conn[{transport.peer}]",
            )


async def _serve_connection(
    transport: Transport,
    pages: Mapping[str, OnGet],
    scope: trio.CancelScope,
    open_connections: dict[Transport, trio.CancelScope],
) -> None:
    import h11

    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
    try:
        with scope:
            while True:
                scope.deadline = trio.current_time() + PATIENCE_S
                try:
                    request = await _next_request(connection, transport)
                except h11.RemoteProtocolError as error:
                    if connection.our_state is h11.IDLE:
                        page = Page(f"{error}\n".encode(), status=error.error_status_hint)
                        await _send(connection, transport, page, None)
                    return
                if request is None:
                    return
                await _send(connection, transport, _page_of(request, pages), request)
                if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                    return
                connection.start_next_cycle()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client has closed the connection
    finally:
        open_connections.pop(transport, None)
        transport.close()


async def _next_request(connection: h11.Connection, transport: Transport) -> h11.Request | None:
    """The next request, its body read and dropped; None when the peer has finished.

    Errors: h11.RemoteProtocolError for what is no HTTP.
    """
    import h11

    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await transport.receive_some())
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif not isinstance(event, h11.Data):
            return None


def _page_of(request: h11.Request, pages: Mapping[str, OnGet]) -> Page:
    if request.method not in (b"GET", b"HEAD"):
        return Page(b"only GET and HEAD are served here\n", status=405)
    path = request.target.partition(b"?")[0].decode("ascii", "replace")
    on_get = pages.get(path)
    if on_get is None:
        known = " ".join(pages)
        return Page(f"no such page; there are: {known}\n".encode(), status=404)
    accept = next((value for name, value in request.headers if name == b"accept"), b"")
    return on_get(accept.decode("ascii", "replace"))


async def _send(
    connection: h11.Connection, transport: Transport, page: Page, request: h11.Request | None
) -> None:
    import h11

    headers = [
        ("content-type", page.content_type),
        ("content-length", str(len(page.body))),
        ("cache-control", "no-store"),
        ("server", f"trioha/{__version__}"),
    ]
    if page.status == 405:
        headers.append(("allow", "GET, HEAD"))
    if request is None:
        headers.append(("connection", "close"))
    reason = HTTPStatus(page.status).phrase.encode()
    response = h11.Response(status_code=page.status, headers=headers, reason=reason)
    parts = [connection.send(response)]
    if request is None or request.method != b"HEAD":
        parts.append(connection.send(h11.Data(data=page.body)))
    parts.append(connection.send(h11.EndOfMessage()))
    await transport.send_all([part for part in parts if part])
