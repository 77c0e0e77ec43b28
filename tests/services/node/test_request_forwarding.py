"""A demoted node between its clients and the new master, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing
from support.handlers.sending import FakeChannel
from support.memory.streams import StreamTransport
from support.suite.ports import deaf_port

from trioha.remoting.channel import Channel, Instant
from trioha.remoting.requests import RequestTable
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect, Transport, connect, open_listener
from trioha.services.node.request_forwarding import (
    ANSWER_S,
    FORWARD_MS,
    LEAVE_S,
    PATIENCE_S,
    WAITING_MAX,
    RequestForwarding,
)
from trioha.services.remoting.server import RemotingServer
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

NOW = Instant(0, 0)
MemoryEnd = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


@attrs.define(eq=False)
class Master:
    """The new master: answers sends with a number that grows, commits not at all."""

    address: str = ""
    heard: list[RemotingCommand] = attrs.Factory(list)
    channels: list[Channel] = attrs.Factory(list)
    heard_more: trio.Event = attrs.Factory(trio.Event)

    def handle(
        self, channel: Channel, request: RemotingCommand, _: Instant
    ) -> RemotingCommand | None:
        self.heard.append(request)
        if channel not in self.channels:
            self.channels.append(channel)
        self.heard_more.set()
        self.heard_more = trio.Event()
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return None
        return request.response(ext_fields={"number": str(len(self.heard))})

    async def wait_heard(self, count: int) -> None:
        while len(self.heard) < count:
            await self.heard_more.wait()


class Client(FakeChannel):
    """A client's connection to the demoted node."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = trio.Event()
        self.on_send = self._note

    def _note(self, _: RemotingCommand) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def mark_replication(self) -> None:
        pass

    def close_nowait(self, reason: str) -> None:
        super().close_nowait(reason)
        self.changed.set()
        self.changed = trio.Event()

    async def wait_sent(self, count: int) -> list[RemotingCommand]:
        while len(self.sent) < count:
            await self.changed.wait()
        return self.sent

    async def wait_closed(self) -> None:
        while not self.closed:
            await self.changed.wait()


@asynccontextmanager
async def forwarding_to_master(
    connect_to: Connect = connect,
    *,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[tuple[RequestForwarding, Master]]:
    master = Master()
    codes = (*RequestCode,)
    server = RemotingServer(
        RequestTable(dict.fromkeys(codes, master.handle), RecordedEvents()).handle,
        *(Clock(), RecordedEvents()),
    )
    listener = open_listener("127.0.0.1", 0)
    master.address = f"127.0.0.1:{listener.port}"
    routes = RequestForwarding(
        Clock(), RecordedEvents(), patience_s=patience_s, connect_to=connect_to
    )
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.accept, listener, nursery)
            nursery.start_soon(routes.run)
            await trio.testing.wait_all_tasks_blocked()
            routes.open(master.address, 0)
            yield routes, master
            nursery.cancel_scope.cancel()
    listener.close()


def send(opaque: int, body: bytes = b"x") -> RemotingCommand:
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, {"b": "T"}, body, opaque)


async def test_answers_come_back_in_order_under_the_client_s_own_numbers() -> None:
    async with forwarding_to_master() as (routes, master):
        client = Client()
        for opaque in (70, 71, 72):
            routes.forward(client, send(opaque))
        answers = await client.wait_sent(3)
        assert [answer.opaque for answer in answers] == [70, 71, 72]
        assert [answer.ext_int("number") for answer in answers] == [1, 2, 3]
        assert all(answer.is_response for answer in answers)
        assert master.heard[0].body_bytes() == b"x"
        assert routes.statistics(0).forwarded_total == 3


async def test_each_client_has_a_connection_of_its_own() -> None:
    async with forwarding_to_master() as (routes, master):
        first, second = Client(), Client()
        routes.forward(first, send(1))
        routes.forward(second, send(1))
        await first.wait_sent(1)
        await second.wait_sent(1)
        assert len(master.channels) == 2
        assert routes.statistics(0).clients == 2
        routes.channel_closed(first)
        while routes.statistics(0).clients == 2:
            await trio.lowlevel.checkpoint()


async def test_what_the_master_tells_a_client_comes_through() -> None:
    async with forwarding_to_master() as (routes, master):
        client = Client()
        routes.forward(client, send(1))
        await client.wait_sent(1)
        notice = RemotingCommand(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"}, flag=ONEWAY_FLAG
        )
        master.channels[0].send_nowait(notice)
        told = (await client.wait_sent(2))[1]
        assert (told.code, told.ext_str("consumerGroup")) == (notice.code, "G")


async def test_an_answer_that_is_lost_is_no_refusal_but_the_end_of_the_connection() -> None:
    async with forwarding_to_master() as (routes, master):
        client = Client()
        commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, opaque=5)
        routes.forward(client, commit)
        await master.wait_heard(1)
        master.channels[0].close_nowait("the test says so")
        await client.wait_closed()
        assert client.sent == []


async def test_what_never_left_is_refused_so_that_the_client_asks_for_the_route() -> None:
    async with forwarding_to_master() as (routes, _):
        with deaf_port() as port:
            routes.open(f"127.0.0.1:{port}", 0)
            client = Client()
            routes.forward(client, send(4))
            (answer,) = await client.wait_sent(1)
        assert (answer.code, answer.opaque) == (ResponseCode.SERVICE_NOT_AVAILABLE, 4)


async def test_more_than_may_wait_is_refused_at_once() -> None:
    async with forwarding_to_master() as (routes, _):
        client = Client()
        for opaque in range(WAITING_MAX + 1):
            routes.forward(client, send(opaque))
        assert [answer.opaque for answer in client.sent] == [WAITING_MAX]
        assert routes.statistics(0).rejected_total == 1


async def test_when_it_ends_what_is_under_way_is_still_answered() -> None:
    async with forwarding_to_master() as (routes, _):
        client = Client()
        routes.forward(client, send(1))
        assert routes.statistics(0).left_s == FORWARD_MS / 1000
        routes.close()
        assert routes.statistics(0).left_s == 0
        (answer,) = await client.wait_sent(1)
        assert answer.code == ResponseCode.SUCCESS
        routes.forward(client, send(2))
        assert client.sent[1].code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_when_it_ends_an_answer_that_does_not_come_ends_the_connection() -> None:
    async with forwarding_to_master(patience_s=0.01) as (routes, master):
        client = Client()
        routes.forward(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, opaque=5))
        await master.wait_heard(1)
        routes.close()
        await client.wait_closed()
        assert client.sent == []


async def test_a_node_that_ends_waits_until_forwarded_requests_are_answered() -> None:
    async with forwarding_to_master() as (routes, _):
        await routes.wait_idle()
        client = Client()
        for opaque in (1, 2):
            routes.forward(client, send(opaque))
        assert client.sent == []
        await routes.wait_idle()
        assert len(client.sent) == 2


@attrs.define(eq=False)
class SlowConnect:
    """A network in which connections come about when the test says so."""

    open: trio.Event = attrs.Factory(trio.Event)
    asked: trio.Event = attrs.Factory(trio.Event)

    async def connect(self, host: str, port: int) -> Transport:
        self.asked.set()
        await self.open.wait()
        return await connect(host, port)


async def test_what_has_not_left_is_dropped_when_its_client_goes() -> None:
    network = SlowConnect()
    async with forwarding_to_master(network.connect) as (routes, master):
        gone, there = Client(), Client()
        routes.forward(gone, send(1, b"gone"))
        routes.forward(there, send(1, b"there"))
        await network.asked.wait()
        gone.closed = True
        routes.channel_closed(gone)
        network.open.set()
        await there.wait_sent(1)
        assert [request.body_bytes() for request in master.heard] == [b"there"]


async def test_it_is_dropped_even_if_forwarding_has_ended_meanwhile() -> None:
    network = SlowConnect()
    async with forwarding_to_master(network.connect) as (routes, master):
        gone, there = Client(), Client()
        routes.forward(gone, send(1, b"gone"))
        routes.forward(there, send(1, b"there"))
        await network.asked.wait()
        routes.close()
        gone.closed = True
        routes.channel_closed(gone)
        network.open.set()
        await there.wait_sent(1)
        assert [request.body_bytes() for request in master.heard] == [b"there"]


async def test_what_does_not_leave_in_time_is_rejected_and_never_leaves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = SlowConnect()
    routes = RequestForwarding(Clock.virtual(), RecordedEvents(), connect_to=network.connect)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(routes.run)
        await trio.testing.wait_all_tasks_blocked()
        routes.open("127.0.0.1:1", 0)
        client = Client()
        routes.forward(client, send(1))
        await trio.sleep(LEAVE_S - 0.1)
        assert client.sent == []
        await trio.sleep(0.2)
        (answer,) = client.sent
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert routes.statistics(0).clients == 0
        nursery.cancel_scope.cancel()


async def test_bytes_that_are_still_in_the_kernel_go_with_their_client() -> None:
    """A connection that is closed delivers what was written to it, if it takes a minute."""
    async with forwarding_to_master() as (routes, _):
        listener = open_listener("127.0.0.1", 0)
        routes.open(listener.address, 0)
        client = Client()
        routes.forward(client, send(1))
        transport = await listener.accept()
        assert await transport.receive_some()
        client.closed = True
        routes.channel_closed(client)
        with pytest.raises(trio.BrokenResourceError):
            await transport.receive_some()
        transport.close()
        listener.close()


async def test_an_answer_that_never_comes_ends_both_connections(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pair: list[MemoryEnd] = []

    async def connect_to(host: str, port: int) -> Transport:
        here, there = trio.testing.memory_stream_pair()
        pair.append(there)
        return StreamTransport(here)

    routes = RequestForwarding(Clock.virtual(), RecordedEvents(), connect_to=connect_to)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(routes.run)
        await trio.testing.wait_all_tasks_blocked()
        routes.open("127.0.0.1:1", 0)
        client = Client()
        routes.forward(client, send(1))
        await trio.sleep(ANSWER_S - 0.1)
        assert routes.statistics(0).clients == 1
        await trio.sleep(0.2)
        assert routes.statistics(0).clients == 0
        assert client.closed
        assert client.sent == []
        assert await pair[0].receive_some()
        assert not await pair[0].receive_some()
        nursery.cancel_scope.cancel()


async def test_a_master_without_an_address_rejects_requests_and_ends_nothing() -> None:
    async with forwarding_to_master() as (routes, _):
        routes.open("TAG", 0)
        client = Client()
        routes.forward(client, send(1))
        (answer,) = await client.wait_sent(1)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
