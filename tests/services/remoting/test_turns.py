"""Connections whose requests are handled inside Trio's wait, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest
import trio
import trio.testing
from support.suite.skips import skip_unless

from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.requests import TURN_REQUESTS
from trioha.services.loop.clock import Clock
from trioha.services.loop.ready_reads import start_ready_reads
from trioha.services.loop.transport import SocketTransport, connect, open_listener
from trioha.services.remoting.link import LinkLimits
from trioha.services.remoting.server import RemotingServer
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import RemotingCommand, encode

PATIENCE_S = 60.0
ECHO = 901


class Passes(trio.abc.Instrument):
    """Counts Trio's scheduler passes."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


class Client:
    """A client that writes frames and reads answers."""

    def __init__(self, transport: SocketTransport) -> None:
        self.transport = transport
        self._machine = RemotingConnection()

    def send(self, *commands: RemotingCommand) -> None:
        assert not self.transport.try_send([encode(command) for command in commands])

    async def read(self) -> RemotingCommand | None:
        """Return the next answer; None when the server has closed the connection."""
        while (command := self._machine.next_command()) is NEED_DATA:
            data = await self.transport.receive_some()
            if not data:
                return None
            self._machine.receive_data(data)
        assert isinstance(command, RemotingCommand)
        return command


@asynccontextmanager
async def serving(
    handle: Handler, events: RecordedEvents, limits: LinkLimits | None = None
) -> AsyncIterator[Client]:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    listener = open_listener("127.0.0.1", 0)
    server = RemotingServer(handle, Clock(), events, limits=limits)
    with closing(listener), trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.accept, listener, nursery)
            with closing(await connect("127.0.0.1", listener.port)) as transport:
                yield Client(transport)
            nursery.cancel_scope.cancel()


def echo(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    return request.response(0)


async def test_requests_of_one_read_are_handled_in_turns_and_answered_in_order() -> None:
    count = 3 * TURN_REQUESTS + 1
    async with serving(echo, RecordedEvents()) as client:
        client.send(*(RemotingCommand(ECHO, opaque=number) for number in range(count)))
        for number in range(count):
            answer = await client.read()
            assert answer is not None
            assert answer.opaque == number


async def test_an_answer_costs_no_scheduler_pass() -> None:
    """The client of this test is a task; the server's side has to add no pass to its own."""
    passes, count = Passes(), 100
    async with serving(echo, RecordedEvents()) as client:
        client.send(RemotingCommand(ECHO))
        await client.read()
        trio.lowlevel.add_instrument(passes)
        for number in range(count):
            client.send(RemotingCommand(ECHO, opaque=number))
            await client.read()
        trio.lowlevel.remove_instrument(passes)
    assert passes.count <= count + 10


async def test_half_a_frame_is_not_waited_for_longer_than_its_lease() -> None:
    """The deadline is set inside the wait, and lies before the one that was waited for."""
    events = RecordedEvents()
    async with serving(echo, events, LinkLimits(idle_s=3600, frame_s=0.05)) as client:
        client.send(RemotingCommand(ECHO))
        await client.read()
        frame = encode(RemotingCommand(ECHO))
        client.transport.try_send([frame[: len(frame) // 2]])
        assert await client.read() is None
        (closed,) = events.of("connection_closed")
    assert "half a frame" in str(closed["reason"])


async def test_a_handler_closes_its_own_connection() -> None:
    events = RecordedEvents()

    def close(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        channel.close_nowait("it was asked to")

    async with serving(close, events) as client:
        client.send(RemotingCommand(ECHO), RemotingCommand(ECHO))
        assert await client.read() is None
        (closed,) = events.of("connection_closed")
    assert closed["reason"] == "it was asked to"


async def test_a_broken_invariant_ends_the_node() -> None:
    def broken(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        raise AssertionError("two masters")

    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True, allow_unwrapped=True):
        async with serving(broken, RecordedEvents()) as client:
            client.send(RemotingCommand(ECHO))
            await client.read()
