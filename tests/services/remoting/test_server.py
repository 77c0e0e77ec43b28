"""Too many connections: silent ones make room, and files keep their descriptors."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast

import pytest
import trio
from support.memory.links import MemoryListener
from support.stores.certificates import certificates
from trio.testing import MockClock, wait_all_tasks_blocked

from trioha.config import BrokerConfig
from trioha.config.tls_files import client_context, server_context
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.requests import RequestTable
from trioha.services.loop import descriptors
from trioha.services.loop.clock import Clock
from trioha.services.loop.tls import AcceptedTransport, tls_connect
from trioha.services.loop.transport import Listener, Transport, connect, open_listener
from trioha.services.remoting import server as server_module
from trioha.services.remoting.server import RemotingServer
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand, encode

ASK = encode(RemotingCommand(901))
REJECTED = encode(RemotingCommand(902))
UNKNOWN = encode(RemotingCommand(903))
CERTIFICATES = certificates()
SERVER = server_context(BrokerConfig(**CERTIFICATES.settings()))
CLIENT = client_context(CERTIFICATES.client())


def answer(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    return request.response()


def reject(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    raise CommandError(ResponseCode.NO_PERMISSION, "no account")


class Door:
    """A server that accepts connections from memory."""

    def __init__(self, connections_max: int) -> None:
        self.events = RecordedEvents()
        self.listener = MemoryListener()
        self.server = RemotingServer(
            RequestTable({901: answer, 902: reject}, self.events).handle,
            Clock.virtual(),
            self.events,
            connections_max=connections_max,
        )

    async def connect(
        self, *, asks: bool, host: str = "127.0.0.1", request: bytes = ASK
    ) -> Transport:
        self.listener.from_host = host
        transport = await self.listener.connect("127.0.0.1", 1)
        if asks:
            with suppress(trio.BrokenResourceError):
                await transport.send_all([request])
        await wait_all_tasks_blocked()
        return transport


@asynccontextmanager
async def open_door(connections_max: int = 1000) -> AsyncIterator[Door]:
    door = Door(connections_max)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.server.accept, cast("Listener", door.listener), nursery)
        yield door
        nursery.cancel_scope.cancel()


async def is_served(transport: Transport) -> bool:
    """Return whether a request on it is answered."""
    machine = RemotingConnection()
    try:
        await transport.send_all([ASK])
        while data := await transport.receive_some():
            machine.receive_data(data)
            if machine.next_frame() is not None:
                return True
    except trio.BrokenResourceError:
        pass
    return False


async def test_silent_connections_make_room_and_those_that_ask_stay(
    autojump_clock: MockClock,
) -> None:
    async with open_door(connections_max=4) as door:
        asking = await door.connect(asks=True)
        silent = [await door.connect(asks=False) for _ in range(3)]
        newest = await door.connect(asks=True)
        assert [await is_served(one) for one in (asking, newest)] == [True, True]
        assert [await is_served(one) for one in silent] == [False] * 3
        assert door.server.refused_count == 1
        (noted,) = door.events.of("connection_refused")
        assert "silent, made room" in str(noted["reason"])


async def test_without_silent_ones_the_newest_is_closed_with_one_line_a_minute(
    autojump_clock: MockClock,
) -> None:
    async with open_door(connections_max=2) as door:
        old = [await door.connect(asks=True) for _ in range(2)]
        new = [await door.connect(asks=False) for _ in range(50)]
        assert all([await is_served(one) for one in old])
        assert not any([await is_served(one) for one in new])
        assert door.server.refused_count == 50
        assert len(door.events.of("connection_refused")) == 1


@pytest.mark.parametrize("request_of_stranger", [REJECTED, UNKNOWN])
async def test_rejected_requests_are_no_sign_of_life(
    autojump_clock: MockClock, request_of_stranger: bytes
) -> None:
    async with open_door(connections_max=4) as door:
        served = await door.connect(asks=True)
        strangers = [await door.connect(asks=True, request=request_of_stranger) for _ in range(3)]
        newest = await door.connect(asks=True)
        assert [await is_served(one) for one in (served, newest)] == [True, True]
        assert [await is_served(one) for one in strangers] == [False] * 3


async def test_one_host_shuts_out_no_other(autojump_clock: MockClock) -> None:
    async with open_door(connections_max=20) as door:
        first = await door.connect(asks=True, host="10.0.0.1")
        for _ in range(100):
            await door.connect(asks=True, host="10.6.6.6")
        others = [await door.connect(asks=True, host="10.0.0.2") for _ in range(9)]
        assert all([await is_served(one) for one in (first, *others)])
        assert door.server.connection_count <= 20
        closed = door.events.of("connection_closed")
        assert {str(line["peer"]).partition(":")[0] for line in closed} == {"10.6.6.6"}
        assert "made room for other hosts" in str(closed[0]["reason"])


async def test_connections_leave_descriptors_to_the_files_of_the_store(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_door() as door:
        old = await door.connect(asks=True)
        monkeypatch.setattr(server_module, "are_scarce", lambda share=1.0: True)
        assert not await is_served(await door.connect(asks=False))
        assert await is_served(old)
        assert "ulimit -n" in str(door.events.of("connection_refused")[0]["reason"])


@pytest.mark.parametrize(
    ("limit", "reserve"), [(100, 50), (300, 64), (1024, 128), (65_536, 1024), (1 << 30, 1024)]
)
def test_the_reserve_grows_with_the_limit(limit: int, reserve: int) -> None:
    assert descriptors.reserve_of(limit) == reserve


def test_descriptors_are_scarce_when_the_next_number_is_in_the_reserve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 1 << 20)
    assert not descriptors.are_scarce()
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 3)
    assert descriptors.are_scarce()


@pytest.mark.parametrize("over_tls", [False, True])
async def test_who_still_sends_to_a_server_that_stops_reads_all_its_answers_and_an_end(
    monkeypatch: pytest.MonkeyPatch, over_tls: bool
) -> None:
    monkeypatch.setattr(server_module, "_PART_S", math.inf)  # only the peer's end ends the wait
    events = RecordedEvents()
    server = RemotingServer(RequestTable({901: answer}, events).handle, Clock(), events)
    on_top = partial(AcceptedTransport, make_context=SERVER, enforcing=True)
    listener = open_listener("127.0.0.1", 0, *([on_top] if over_tls else []))
    connect_to = tls_connect(CLIENT) if over_tls else connect
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.accept, listener, nursery)
            client = await connect_to("127.0.0.1", listener.port)
            await client.send_all([ASK * 100])
            first = await client.receive_some()
            async with trio.open_nursery() as stopping:
                stopping.start_soon(server.part)
                await wait_all_tasks_blocked()
                for _ in range(100):
                    await client.send_all([ASK])
                    await trio.lowlevel.checkpoint()
                machine = RemotingConnection()
                machine.receive_data(first)
                while data := await client.receive_some():
                    machine.receive_data(data)
                assert sum(1 for _ in iter(machine.next_frame, None)) == 100
                await client.send_all([ASK])  # it still may
                assert server.connection_count == 1
                client.close()
            assert server.connection_count == 0
            nursery.cancel_scope.cancel()
    listener.close()


async def test_a_peer_that_does_not_close_holds_up_a_stop_for_a_second(
    autojump_clock: MockClock,
) -> None:
    async with open_door() as door:
        await door.connect(asks=True)
        begin_s = trio.current_time()
        await door.server.part()
        assert trio.current_time() - begin_s == 1.0
        assert door.server.connection_count == 1


async def test_half_a_frame_that_a_stop_drops_is_no_fault_of_its_sender(
    autojump_clock: MockClock,
) -> None:
    async with open_door() as door:
        peer = await door.connect(asks=True, request=ASK + ASK[:10])
        async with trio.open_nursery() as stopping:
            stopping.start_soon(door.server.part)
            await wait_all_tasks_blocked()
            await peer.send_all([ASK[10:]])
            peer.close()
        assert door.server.connection_count == 0
        assert door.events.of("connection_closed") == []
