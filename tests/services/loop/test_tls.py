from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from support.memory.streams import StreamTransport
from support.stores.certificates import certificates, shake
from trio.testing import MockClock, memory_stream_pair

from trioha.config import BrokerConfig
from trioha.config.tls_files import client_context, server_context
from trioha.remoting.tls_session import PLAIN_PEER_ALERT, TlsSession
from trioha.services.loop.tls import (
    HANDSHAKE_S,
    PLAIN_AFTER_S,
    AcceptedTransport,
    TlsTransport,
    tls_connect,
)
from trioha.services.loop.transport import Listener, Transport, connect, open_listener
from trioha.wire.remoting_command import Buffer

CERTIFICATES = certificates()
SERVER = server_context(BrokerConfig(**CERTIFICATES.settings()))
CLIENT = client_context(CERTIFICATES.client())


def accepted(inner: Transport, *, enforcing: bool = False) -> AcceptedTransport:
    return AcceptedTransport(inner, SERVER, enforcing=enforcing)


def memory_pair() -> tuple[StreamTransport, StreamTransport]:
    ours, theirs = memory_stream_pair()
    return StreamTransport(ours), StreamTransport(theirs)


def client_of(inner: Transport) -> TlsTransport:
    return TlsTransport(inner, TlsSession(CLIENT(), server_hostname="127.0.0.1"))


@asynccontextmanager
async def listening(enforcing: bool) -> AsyncIterator[tuple[Listener, trio.Nursery]]:
    listener = open_listener("127.0.0.1", 0, lambda inner: accepted(inner, enforcing=enforcing))
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(10):
                yield listener, nursery
    finally:
        listener.close()


async def echo(listener: Listener, problems: list[str]) -> None:
    transport = await listener.accept()
    try:
        while data := await transport.receive_some():
            await transport.send_all([data])
    except trio.BrokenResourceError as error:
        problems.append(str(error))
    finally:
        transport.close()


async def read_all(transport: Transport) -> bytes:
    got = b""
    while data := await transport.receive_some():
        got += data
    return got


@pytest.mark.parametrize("enforcing", [False, True])
async def test_a_tls_client_is_served(enforcing: bool) -> None:
    async with listening(enforcing) as (listener, nursery):
        nursery.start_soon(echo, listener, [])
        client = await tls_connect(CLIENT)(listener.host, listener.port)
        await client.send_all([b"hello ", b"there"])
        assert await client.receive_some() == b"hello there"
        client.close()


async def test_a_permissive_port_serves_a_plain_client_too() -> None:
    async with listening(enforcing=False) as (listener, nursery):
        nursery.start_soon(echo, listener, [])
        client = await connect(listener.host, listener.port)
        await client.send_all([b"\0plain"])
        assert await client.receive_some() == b"\0plain"
        client.close()


async def test_an_enforcing_port_tells_a_plain_client_that_it_speaks_tls() -> None:
    problems: list[str] = []
    async with listening(enforcing=True) as (listener, nursery):
        nursery.start_soon(echo, listener, problems)
        client = await connect(listener.host, listener.port)
        await client.send_all([b"\0plain"])
        assert await client.receive_some() == PLAIN_PEER_ALERT
        assert await client.receive_some() == b""
        client.close()
    assert problems == [
        "it speaks no TLS, and tls.server.mode=enforcing; set tls.enable=true there"
    ]


async def test_a_client_of_a_port_without_tls_is_told_so() -> None:
    async def hang_up(listener: Listener) -> None:
        transport = await listener.accept()
        await transport.receive_some()
        transport.close()

    listener = open_listener("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hang_up, listener)
        with pytest.raises(OSError, match=r"closed during the TLS handshake; it may not speak TLS"):
            await tls_connect(CLIENT)(listener.host, listener.port)
    listener.close()


async def test_a_probe_that_leaves_without_a_byte_is_no_error() -> None:
    ours, theirs = memory_pair()
    theirs.close()
    assert await accepted(ours, enforcing=True).receive_some() == b""


async def test_a_handshake_has_a_time_limit(autojump_clock: MockClock) -> None:
    ours, theirs = memory_pair()
    await theirs.send_all([b"\x16\x03\x01"])
    began_s = trio.current_time()
    with pytest.raises(trio.BrokenResourceError, match="no TLS handshake within 10 s"):
        await accepted(ours).receive_some()
    assert trio.current_time() - began_s == HANDSHAKE_S


async def test_garbage_in_place_of_a_handshake_is_one_error() -> None:
    ours, theirs = memory_pair()
    await theirs.send_all([b"\x16" + bytes(100)])
    with pytest.raises(trio.BrokenResourceError, match="TLS handshake: its bytes are no TLS"):
        await accepted(ours).receive_some()


async def test_who_speaks_first_on_a_permissive_port_waits_for_a_hello(
    autojump_clock: MockClock,
) -> None:
    """A master with a secret; a slave without TLS waits for its challenge."""
    ours, theirs = memory_pair()
    server = accepted(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.receive_some)
        await server.send_all([b"challenge"])
        assert trio.current_time() == PLAIN_AFTER_S
        assert await theirs.receive_some() == b"challenge"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("enforcing", [False, True])
async def test_what_is_said_first_goes_through_tls(
    autojump_clock: MockClock, enforcing: bool
) -> None:
    ours, theirs = memory_pair()
    server, client = accepted(ours, enforcing=enforcing), client_of(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.receive_some)
        nursery.start_soon(server.send_all, list[Buffer]([b"challenge"]))
        await client.handshake()
        assert await client.receive_some() == b"challenge"
        assert trio.current_time() == 0
        nursery.cancel_scope.cancel()


class Trickle:
    """A transport whose kernel takes a drawn number of bytes at a time, often none."""

    peer = "127.0.0.1:1"

    def __init__(self, rng: Random) -> None:
        self.taken = bytearray()
        self._rng = rng

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        data = b"".join(buffers)
        room = self._rng.choice([0, 0, 1, 100, 20_000, 1 << 20])
        self.taken += data[:room]
        return [data[room:]] if room < len(data) else []

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        await trio.lowlevel.checkpoint()
        return self.try_send(buffers)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(20))
async def test_no_byte_is_lost_or_doubled_when_the_kernel_takes_a_part(seed: int) -> None:
    rng = Random(seed)
    server, client = TlsSession(SERVER()), TlsSession(CLIENT(), server_hostname="127.0.0.1")
    shake(server, client)
    kernel = Trickle(rng)
    transport = TlsTransport(kernel, client)  # type: ignore[arg-type]
    sent, waiting = b"", list[Buffer]()
    for _ in range(30):
        for _ in range(rng.randrange(4)):
            data = os.urandom(rng.choice([1, 300, 16_384, 300_000]))
            sent += data
            waiting.append(data)
        step: Callable[[list[Buffer]], list[Buffer]] = transport.try_send
        waiting = step(waiting) if rng.random() < 0.5 else await transport.send_some(waiting)
    while waiting:
        waiting = await transport.send_some(waiting)
    server.feed(bytes(kernel.taken))
    assert server.open_fed() == sent


async def test_close_tells_the_peer_and_both_ends_read_to_the_end() -> None:
    async with listening(enforcing=True) as (listener, nursery):
        got: list[bytes] = []

        async def serve() -> None:
            transport = await listener.accept()
            got.append(await read_all(transport))
            transport.close()

        nursery.start_soon(serve)
        client = await tls_connect(CLIENT)(listener.host, listener.port)
        body = os.urandom(500_000)
        await client.send_all([body])
        client.close()
        while not got:
            await trio.lowlevel.checkpoint()
    assert got == [body]


async def test_an_end_without_a_close_of_tls_is_an_end() -> None:
    ours, theirs = memory_pair()
    server, client = accepted(ours), client_of(theirs)
    async with trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def serve() -> None:
            got.append(await read_all(server))

        nursery.start_soon(serve)
        await client.handshake()
        await client.send_all([b"words"])
        theirs.close()
    assert got == [b"words"]
