from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from support.memory.streams import StreamTransport
from support.suite.ports import deaf_port
from trio.testing import MockClock, memory_stream_pair

from trioha.errors import CommandError, RemoteProtocolError, Unreachable
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.outboxes import Outboxes
from trioha.remoting.requests import EARLY_ANSWERS_BYTES, TURN_REQUESTS, RequestTable
from trioha.remoting.traffic_budget import FrameLimits, TrafficBudget
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import connect, open_listener
from trioha.services.remoting.client import open_remoting_client
from trioha.services.remoting.link import LinkLimits, RemotingLink
from trioha.services.remoting.server import RemotingServer
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, RequestCode, ResponseCode
from trioha.wire.need_data import NEED_DATA
from trioha.wire.progress import Progress
from trioha.wire.remoting_command import Buffer, RemotingCommand, encode

ECHO = 901
REFUSE = 902
BREAK = 903
PARK = 904
BUG = 905
LONG = 906
KERNEL_S = 0.05
"""Real time in which the kernel moves bytes between two sockets: time jumps only after that."""


class Peer:
    """The other end of a connection under test: writes frames, reads commands."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._machine = RemotingConnection()

    async def send(self, *commands: RemotingCommand) -> None:
        await self.stream.send_all(b"".join(encode(command) for command in commands))

    async def receive(self) -> RemotingCommand:
        while True:
            if (command := self._machine.next_command()) is not NEED_DATA:
                return command
            data = await self.stream.receive_some(65536)
            if not data:
                raise EOFError
            self._machine.receive_data(bytes(data))


class Node:
    """A server with a handful of handlers and one connection served on a memory stream."""

    def __init__(self, limits: LinkLimits) -> None:
        self.events = RecordedEvents()
        self.parked: list[tuple[Channel, RemotingCommand]] = []
        self.closed: list[Channel] = []
        self.batches = 0
        self.turns: list[tuple[str, int]] = []
        self.server = RemotingServer(
            RequestTable(self.handlers(), self.events).handle,
            Clock.virtual(),
            self.events,
            limits=limits,
            on_closed=self.closed.append,
            on_batch=self.count_batch,
        )

    def handlers(self) -> Mapping[int, Handler]:
        return {
            ECHO: self.echo,
            REFUSE: self.refuse,
            BREAK: self.missing_field,
            PARK: self.park,
            RequestCode.SEND_MESSAGE_V2: self.park,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.park,
            BUG: self.bug,
            LONG: self.take_turns,
        }

    def count_batch(self) -> None:
        self.batches += 1

    def echo(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        return request.response(body=request.body)

    def refuse(self, _: Channel, __: RemotingCommand, ___: Instant) -> RemotingCommand:
        raise CommandError(ResponseCode.NO_PERMISSION, "not here")

    def missing_field(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        return request.response(remark=request.ext_str("topic"))

    def park(self, channel: Channel, request: RemotingCommand, _: Instant) -> None:
        self.parked.append((channel, request))

    def take_turns(
        self, channel: Channel, request: RemotingCommand, _: Instant
    ) -> RemotingCommand | None:
        """Answer in the third turn."""
        self.turns.append((channel.peer, request.opaque))
        if self.turns.count((channel.peer, request.opaque)) == 3:
            return request.response()
        request.progress = request.progress or Progress(1000)
        channel.go_on_nowait(request)
        return None

    def bug(self, _: Channel, __: RemotingCommand, ___: Instant) -> RemotingCommand:
        raise KeyError("a fault of ours")


@asynccontextmanager
async def open_node(limits: LinkLimits | None = None) -> AsyncIterator[tuple[Node, Peer]]:
    node = Node(limits or LinkLimits())
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.server.serve_connection, StreamTransport(ours))
        yield node, Peer(theirs)
        nursery.cancel_scope.cancel()


async def test_requests_of_one_read_are_answered_together(autojump_clock: MockClock) -> None:
    async with open_node() as (node, peer):
        await peer.send(*(RemotingCommand(ECHO, body=b"x", opaque=n) for n in range(50)))
        answers = [await peer.receive() for _ in range(50)]
        assert [answer.opaque for answer in answers] == list(range(50))
        assert all(answer.flag == RESPONSE_FLAG for answer in answers)
        assert node.batches == 1


def budgeted() -> tuple[TrafficBudget, LinkLimits]:
    budget = TrafficBudget(1 << 20)
    return budget, LinkLimits(frames=FrameLimits({}, budget))


async def test_a_request_of_several_turns_is_done_before_the_next_one(
    autojump_clock: MockClock,
) -> None:
    budget, limits = budgeted()
    async with open_node(limits) as (node, peer):
        await peer.send(*(RemotingCommand(code, opaque=code) for code in (ECHO, LONG, REFUSE)))
        assert [(await peer.receive()).opaque for _ in range(3)] == [ECHO, LONG, REFUSE]
        assert len(node.turns) == 3
        assert budget.used_bytes == 0


async def test_other_connections_have_their_turn_meanwhile(autojump_clock: MockClock) -> None:
    node = Node(LinkLimits())
    async with trio.open_nursery() as nursery:
        peers = []
        for _ in range(2):
            ours, theirs = memory_stream_pair()
            peers.append(Peer(theirs))
            nursery.start_soon(node.server.serve_connection, StreamTransport(ours))
        for number, peer in enumerate(peers):
            await peer.send(RemotingCommand(LONG, opaque=number))
        for peer in peers:
            await peer.receive()
        order = [opaque for _, opaque in node.turns]
        assert sorted(order) == [0, 0, 0, 1, 1, 1]
        assert order != sorted(order)
        assert order != sorted(order, reverse=True)
        nursery.cancel_scope.cancel()


async def test_a_connection_that_ends_meanwhile_leaves_nothing_in_the_budget(
    autojump_clock: MockClock,
) -> None:
    budget, limits = budgeted()
    async with open_node(limits) as (node, peer):

        async def close() -> None:
            while not budget.used_bytes:
                await trio.lowlevel.checkpoint()
            node.turns.clear()  # it never ends by itself
            await peer.stream.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            await peer.send(RemotingCommand(LONG, body=bytes(100)))
            while not budget.used_bytes:
                await trio.lowlevel.checkpoint()
            assert budget.used_bytes == 1100
        while not node.closed:
            await trio.lowlevel.checkpoint()
        assert budget.used_bytes == 0


async def test_a_request_that_was_parked_goes_on_while_nothing_is_read(
    autojump_clock: MockClock,
) -> None:
    budget, limits = budgeted()
    async with open_node(limits) as (node, peer):
        await peer.send(*(RemotingCommand(PARK, opaque=number) for number in range(2)))
        while len(node.parked) < 2:
            await trio.lowlevel.checkpoint()
        for channel, request in node.parked:
            assert node.take_turns(channel, request, Instant(0, 0)) is None
            request.code = LONG
        assert [(await peer.receive()).opaque for _ in range(2)] == [0, 1]
        await peer.send(RemotingCommand(ECHO, opaque=7))
        assert (await peer.receive()).opaque == 7
        assert budget.used_bytes == 0


async def test_refusals_become_responses_and_the_connection_stays(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as (node, peer):
        await peer.send(
            RemotingCommand(REFUSE, opaque=1),
            RemotingCommand(BREAK, opaque=2),
            RemotingCommand(12345, opaque=3),
            RemotingCommand(BUG, opaque=4),
            RemotingCommand(ECHO, opaque=5),
        )
        answers = {answer.opaque: answer for answer in [await peer.receive() for _ in range(5)]}
        assert (answers[1].code, answers[1].remark) == (ResponseCode.NO_PERMISSION, "not here")
        assert answers[2].code == ResponseCode.SYSTEM_ERROR
        assert "topic" in str(answers[2].remark)
        assert answers[3].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answers[4].code == ResponseCode.SYSTEM_ERROR
        assert answers[5].code == ResponseCode.SUCCESS
        assert node.events.names() == ["handler_failed"]


async def test_a_oneway_request_is_never_answered(autojump_clock: MockClock) -> None:
    async with open_node() as (_, peer):
        await peer.send(
            RemotingCommand(ECHO, opaque=1, flag=ONEWAY_FLAG), RemotingCommand(ECHO, opaque=2)
        )
        assert (await peer.receive()).opaque == 2


async def test_an_idle_connection_closes_after_its_lease(autojump_clock: MockClock) -> None:
    async with open_node(LinkLimits(idle_s=120)) as (node, peer):
        await trio.sleep(100)
        await peer.send(RemotingCommand(ECHO))
        await peer.receive()
        started = trio.current_time()
        with pytest.raises(EOFError):
            await peer.receive()
        assert 119 <= trio.current_time() - started <= 121
        assert node.events.of("connection_closed")[0]["reason"] == "idle for 120 s"
        assert len(node.closed) == 1


async def test_half_a_frame_then_silence_closes_the_connection(autojump_clock: MockClock) -> None:
    async with open_node(LinkLimits(frame_s=10)) as (node, peer):
        frame = encode(RemotingCommand(ECHO, body=b"x" * 100))
        await peer.stream.send_all(frame[:50])
        with pytest.raises(EOFError):
            await peer.receive()
        assert 9 <= trio.current_time() <= 12
        assert "half a frame" in str(node.events.of("connection_closed")[0]["reason"])


async def test_a_byte_now_and_then_does_not_keep_half_a_frame_alive(
    autojump_clock: MockClock,
) -> None:
    async with open_node(LinkLimits(frame_s=10)) as (node, peer):
        frame = encode(RemotingCommand(ECHO, body=b"x" * 100))
        with pytest.raises(trio.BrokenResourceError):
            for index in range(len(frame)):
                await peer.stream.send_all(frame[index : index + 1])
                await trio.sleep(1)
        assert 10 <= trio.current_time() <= 13
        assert node.closed


async def test_a_client_that_never_reads_is_closed_and_costs_a_bounded_outbox(
    autojump_clock: MockClock,
) -> None:
    autojump_clock.autojump_threshold = KERNEL_S
    sent = 0
    with trio.fail_after(600):
        listener = open_listener("127.0.0.1", 0)
        node = Node(LinkLimits(write_s=5, outbox_bytes_max=8_000_000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.server.accept, listener, nursery)
            stream = await trio.open_tcp_stream("127.0.0.1", listener.port)
            frame = encode(RemotingCommand(ECHO, body=bytes(1_000_000)))
            async with stream:
                with (
                    pytest.raises((trio.BrokenResourceError, trio.TooSlowError)),
                    trio.fail_after(60),
                ):
                    while sent < 200:
                        await stream.send_all(frame)
                        sent += 1
            nursery.cancel_scope.cancel()
        listener.close()
    assert sent < 100, f"{sent} MB were taken from a client that reads nothing"
    reasons = [str(fields["reason"]) for fields in node.events.of("connection_closed")]
    assert reasons == ["it has read nothing for 5 s"]


async def test_a_client_that_reads_late_is_not_blamed_for_the_half_frame_we_left_unread(
    autojump_clock: MockClock,
) -> None:
    autojump_clock.autojump_threshold = KERNEL_S
    count, body = 60, bytes(300_000)
    frame = encode(RemotingCommand(ECHO, body=body))
    with trio.fail_after(600):
        listener = open_listener("127.0.0.1", 0)
        node = Node(LinkLimits(frame_s=10, write_s=60))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.server.accept, listener, nursery)
            stream = await trio.open_tcp_stream("127.0.0.1", listener.port)

            async def send() -> None:
                for _ in range(count):
                    await stream.send_all(frame)

            async with stream:
                nursery.start_soon(send)
                await trio.sleep(30)
                left = count * len(body)
                while left > 0 and (data := await stream.receive_some()):
                    left -= len(data)
            nursery.cancel_scope.cancel()
        listener.close()
    assert left <= 0, f"closed with {left} bytes to come: {node.events.of('connection_closed')}"


async def test_a_broken_frame_closes_its_connection_with_one_journal_line(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as (node, peer):
        await peer.send(RemotingCommand(ECHO, opaque=1))
        assert (await peer.receive()).opaque == 1
        await peer.stream.send_all(b"\xff\xff\xff\xff nonsense")
        with pytest.raises(EOFError):
            await peer.receive()
        assert node.events.names() == ["connection_closed"]


async def test_a_late_answer_leaves_by_itself(autojump_clock: MockClock) -> None:
    async with open_node() as (node, peer):
        await peer.send(RemotingCommand(PARK, opaque=9))
        await trio.testing.wait_all_tasks_blocked()
        ((channel, request),) = node.parked
        channel.send_nowait(request.response())
        assert (await peer.receive()).opaque == 9


async def test_a_request_of_ours_ends_by_response_deadline_or_close(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as (node, peer):
        await peer.send(RemotingCommand(PARK, opaque=1))
        await trio.testing.wait_all_tasks_blocked()
        channel = node.parked[0][0]
        answers: list[tuple[str, RemotingCommand | None]] = []

        def ask(name: str) -> None:
            channel.request_nowait(
                RemotingCommand(ECHO, {"name": name}),
                int(trio.current_time() * 1000) + 5000,
                lambda response: answers.append((name, response)),
            )

        ask("answered")
        asked = await peer.receive()
        await peer.send(asked.response(body=b"yes"))
        await trio.testing.wait_all_tasks_blocked()
        assert [(name, response is not None) for name, response in answers] == [("answered", True)]
        ask("too late")
        await trio.sleep(6)
        assert answers[1] == ("too late", None)
        ask("closed")
        await peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert answers[2] == ("closed", None)
        assert channel.closed
        ask("after the end")
        assert answers[3] == ("after the end", None)


async def test_a_request_between_the_last_task_and_the_end_of_a_connection_is_unanswered() -> None:
    """Trio closes a nursery when its last task ends; `serve` learns of it in the next pass."""
    _, theirs = memory_stream_pair()
    link = RemotingLink(StreamTransport(theirs), Clock.virtual())
    async with trio.open_nursery() as nursery:
        link._nursery = nursery
    answers: list[RemotingCommand | None] = []
    link.request_nowait(RemotingCommand(ECHO), 5000, answers.append)
    assert answers == [None]
    assert not link._machine.requests_pending


async def test_the_client_gets_answers_and_learns_of_the_end(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    peer = Peer(theirs)
    async with open_remoting_client(
        "127.0.0.1", 1, Clock.virtual(), transport=StreamTransport(ours)
    ) as client:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                response = await client.request(RemotingCommand(ECHO, {"a": 1}))
                assert response.ext_str("b") == "2"

            nursery.start_soon(ask)
            request = await peer.receive()
            await peer.send(request.response(ext_fields={"b": "2"}))
        await peer.stream.aclose()
        with pytest.raises(Unreachable):
            await client.request(RemotingCommand(ECHO))


async def test_nobody_listening_is_unreachable() -> None:
    with deaf_port() as port, pytest.raises(Unreachable):
        async with open_remoting_client("127.0.0.1", port, Clock()):
            pass


async def test_a_server_that_hangs_up_is_unreachable_outside_the_block_too() -> None:
    ours, theirs = memory_stream_pair()
    with pytest.raises(Unreachable):
        async with open_remoting_client(
            "127.0.0.1", 1, Clock.virtual(), transport=StreamTransport(ours)
        ) as client:
            await theirs.aclose()
            await client.request(RemotingCommand(ECHO))


async def test_sends_whose_sender_has_gone_by_the_time_they_are_read_are_not_carried_out() -> None:
    """The process stood still: a client has sent, waited, given up and closed.

    A consumer's last commit is carried out: Go's client closes without waiting for the answer.
    """
    node = Node(LinkLimits())
    listener = open_listener("127.0.0.1", 0)
    client = await connect("127.0.0.1", listener.port)
    send = RequestCode.SEND_MESSAGE_V2
    await client.send_all(
        [
            encode(RemotingCommand(send, body=b"two-way")),
            encode(RemotingCommand(send, body=b"oneway", flag=ONEWAY_FLAG)),
            encode(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, body=b"commit")),
        ]
    )
    client.close()
    await node.server.serve_connection(await listener.accept())
    listener.close()
    assert [request.body_bytes() for _, request in node.parked] == [b"oneway", b"commit"]


def test_a_missing_field_is_a_remote_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError, match="queueId"):
        RemotingCommand(11).ext_int("queueId")


class SocketOfOneRead(StreamTransport):
    """Takes whatever it is given, as a socket does, and notes it."""

    def __init__(self, stream: trio.abc.Stream, steps: list[str]) -> None:
        super().__init__(stream, "peer:1")
        self._steps = steps

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        self._steps.append("sent")
        return []


async def test_first_answers_leave_before_the_last_request_of_a_long_read_is_handled(
    autojump_clock: MockClock,
) -> None:
    steps: list[str] = []

    def answer(_: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        steps.append("handled")
        return request.response(body=bytes(EARLY_ANSWERS_BYTES))

    ours, theirs = memory_stream_pair()
    link = RemotingLink(
        SocketOfOneRead(ours, steps),
        Clock.virtual(),
        handle=answer,
        outboxes=Outboxes(lambda: steps.append("kept")),
    )
    await theirs.send_all(encode(RemotingCommand(ECHO)) * 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.serve)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # The changes of a request are kept before its answer leaves.
    told = " ".join(steps)
    assert re.fullmatch("(handled( kept)+ sent( kept)* ?){3}", told), told


async def test_a_connection_with_many_requests_in_one_read_lets_others_have_their_turn(
    autojump_clock: MockClock,
) -> None:
    node = Node(LinkLimits())
    order: list[str] = []
    streams = [memory_stream_pair() for _ in range(2)]
    node.server = RemotingServer(
        lambda channel, request, _: order.append(channel.peer), Clock.virtual(), node.events
    )
    for count, (_, theirs) in zip((3 * TURN_REQUESTS, 1), streams, strict=True):
        await theirs.send_all(encode(RemotingCommand(ECHO)) * count)
    async with trio.open_nursery() as nursery:
        for name, (ours, _) in zip(("greedy:1", "other:1"), streams, strict=True):
            nursery.start_soon(node.server.serve_connection, StreamTransport(ours, name))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(order) == 3 * TURN_REQUESTS + 1
    assert order.index("other:1") <= TURN_REQUESTS


async def test_a_connection_on_which_nothing_is_asked_is_closed(autojump_clock: MockClock) -> None:
    async with open_node(LinkLimits(first_frame_s=30)) as (node, peer):
        with pytest.raises(EOFError):
            await peer.receive()
        assert 29 <= trio.current_time() <= 31
        assert node.events.of("connection_closed")[0]["reason"] == "no request for 30 s"
    async with open_node(LinkLimits(first_frame_s=30)) as (_, peer):
        await peer.send(RemotingCommand(ECHO))
        await peer.receive()
        await trio.sleep(100)
        await peer.send(RemotingCommand(ECHO))
        await peer.receive()
