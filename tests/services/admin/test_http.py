from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import h11
import trio
import trio.testing
from support.memory.streams import StreamTransport

from trioha.config import BrokerConfig
from trioha.services.admin.http import (
    CONNECTIONS_MAX,
    PATIENCE_S,
    Page,
    open_admin_listener,
    serve_http,
)
from trioha.services.loop.transport import Transport, open_listener
from trioha.testing.recorded_events import RecordedEvents

Stream = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


class MemoryListener:
    """Connections by memory streams."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Transport](CONNECTIONS_MAX + 1)

    async def accept(self) -> Transport:
        return await self._receive.receive()

    def connect(self) -> Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        self._send.send_nowait(StreamTransport(theirs))
        return ours


@attrs.frozen
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


@asynccontextmanager
async def serving() -> AsyncIterator[MemoryListener]:
    listener = MemoryListener()
    pages = {"/hello": lambda accept: Page(f"hello {accept}".encode())}
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_http, listener, pages)
            yield listener
            nursery.cancel_scope.cancel()


async def ask(stream: Stream, text: str, method: str = "GET") -> Answer:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    await stream.send_all(text.replace("\n", "\r\n").encode())
    head: h11.Response | None = None
    body = b""
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(bytes(await stream.receive_some()))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        else:
            assert isinstance(event, h11.EndOfMessage), event
            assert head is not None
            return Answer(head.status_code, dict(head.headers), body)


async def test_pages_are_made_when_asked_for_and_connections_are_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as listener:
        stream = listener.connect()
        for accept in ("text/plain", "application/json"):
            answer = await ask(stream, f"GET /hello?x=1 HTTP/1.1\nHost: x\nAccept: {accept}\n\n")
            assert (answer.status, answer.body) == (200, f"hello {accept}".encode())
            assert answer.headers[b"cache-control"] == b"no-store"


async def test_head_tells_the_length_and_sends_no_body(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as listener:
        answer = await ask(listener.connect(), "HEAD /hello HTTP/1.1\nHost: x\n\n", "HEAD")
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers[b"content-length"] == b"6"


async def test_an_unknown_page_is_answered_with_those_there_are(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as listener:
        answer = await ask(listener.connect(), "GET /metric HTTP/1.1\nHost: x\n\n")
        assert (answer.status, answer.body) == (404, b"no such page; there are: /hello\n")


async def test_only_reading_is_served(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as listener:
        text = "POST /hello HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc"
        answer = await ask(listener.connect(), text)
        assert (answer.status, answer.headers[b"allow"]) == (405, b"GET, HEAD")


async def test_what_is_no_http_is_told_so_and_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as listener:
        stream = listener.connect()
        answer = await ask(stream, "\x00\x00\x00\x10remoting\n\n")
        assert answer.status == 400
        assert await stream.receive_some() == b""


async def test_endless_headers_are_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as listener:
        stream = listener.connect()
        answer = await ask(stream, "GET /hello HTTP/1.1\nX: " + "x" * 40_000)
        assert answer.status == 431
        assert await stream.receive_some() == b""


async def test_who_says_nothing_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as listener:
        stream = listener.connect()
        await stream.send_all(b"GET /hello HT")
        began_s = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - began_s == PATIENCE_S


async def test_idle_connections_keep_nobody_out(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as listener:
        streams = [listener.connect() for _ in range(CONNECTIONS_MAX)]
        await trio.testing.wait_all_tasks_blocked()
        answer = await ask(listener.connect(), "GET /hello HTTP/1.1\nHost: x\n\n")
        assert answer.status == 200
        assert await streams[0].receive_some() == b""
        assert (await ask(streams[1], "GET /hello HTTP/1.1\nHost: x\n\n")).status == 200


async def test_a_peer_that_goes_away_ends_nothing_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as listener:
        stream = listener.connect()
        await stream.send_all(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        await stream.aclose()
        assert (await ask(listener.connect(), "GET /hello HTTP/1.1\nHost: x\n\n")).status == 200


async def test_the_port_lies_beside_the_remoting_port_and_may_be_missing() -> None:
    for _ in range(50):  # the port beside a free one may be in use
        events = RecordedEvents()
        remoting = open_listener("127.0.0.1", 0)
        config = BrokerConfig(bind_address="127.0.0.1", listen_port=remoting.port)
        first = open_admin_listener(config, remoting, events)
        if first is not None:
            break
        remoting.close()
    assert first is not None
    assert first.port == remoting.port + 3
    assert open_admin_listener(config, remoting, events) is None
    assert events.names() == ["admin_port_unavailable"]
    assert (
        open_admin_listener(attrs.evolve(config, admin_http_enable=False), remoting, events) is None
    )
    first.close()
    remoting.close()
