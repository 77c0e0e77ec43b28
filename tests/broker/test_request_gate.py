"""The gate: which requests it serves, parks, forwards, rejects, and what its transitions do."""

from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import FakeChannel, at

from trioha.broker.offset_requests import FORWARDED_FIELD
from trioha.broker.request_gate import NO_ERROR_FOR, RequestGate
from trioha.broker.set_modes import COPIED, DEMOTED, PAUSED, SERVING
from trioha.errors import CommandError, StoreError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.mode import Mode
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode, SerializeType
from trioha.wire.remoting_command import RemotingCommand

SEND = RequestCode.SEND_MESSAGE_V2
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


@attrs.define(eq=False)
class FakeForwarding:
    """Implements `Forwarding`."""

    master: str = ""
    log: list[str] = attrs.Factory(list)
    forwarded: list[RemotingCommand] = attrs.Factory(list)

    def open(self, master: str, now_ms: int) -> None:
        self.master = master

    def close(self) -> None:
        self.master = ""

    def forward(self, channel: Channel, request: RemotingCommand) -> None:
        assert self.master
        self.log.append(f"forward {request.opaque}")
        self.forwarded.append(request)

    def tell(self, channel: Channel, command: RemotingCommand) -> None:
        assert self.master
        assert command.is_oneway
        self.log.append(f"tell {RequestCode(command.code).name}")


def never(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
    """Handle a request that is to be confirmed: there is none here."""
    raise AssertionError(request.code)


class Bench:
    """A gate whose handlers remember what they served."""

    def __init__(self, *, codes: tuple[int, ...] = tuple(REQUIREMENTS[Port.BROKER])) -> None:
        self.forwarding = FakeForwarding()
        self.events = RecordedEvents()
        self.channel = FakeChannel()
        self.served: list[int] = []
        self.confirmed: list[int] = []
        self.gate = RequestGate(
            [dict.fromkeys(codes, self._serve)], self.forwarding, self.events, self._confirm
        )

    def ask(self, code: int = SEND, opaque: int = 0, flag: int = 0) -> int | None:
        """Ask one request; the code of its answer, if there is one now."""
        before = len(self.channel.sent)
        request = RemotingCommand(code, opaque=opaque, flag=flag)
        response = self.gate.handle(self.channel, request, at())
        if response is not None:
            return response.code
        return self.channel.sent[before].code if len(self.channel.sent) > before else None

    def _serve(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        self.served.append(request.opaque)
        return request.response()

    def _confirm(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        self.confirmed.append(request.opaque)


def test_a_new_gate_serves_what_it_has_a_handler_for() -> None:
    bench = Bench(codes=(SEND,))
    assert bench.ask(SEND, 1) == ResponseCode.SUCCESS
    assert bench.ask(PULL) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert bench.served == [1]


def test_no_code_has_two_handlers() -> None:
    bench = Bench()
    table = bench.gate.handlers
    with pytest.raises(AssertionError):
        RequestGate([table, table], bench.forwarding, bench.events, never)


def test_the_table_of_handlers_cannot_be_changed() -> None:
    bench = Bench()
    with pytest.raises(TypeError):
        bench.gate.handlers[SEND] = bench.gate.handlers[PULL]  # type: ignore[index]


def test_what_is_parked_is_served_in_order_once_this_node_serves_again() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    for opaque in (3, 1, 2):
        assert bench.ask(SEND, opaque) is None
    assert bench.ask(PULL, 9) == ResponseCode.SUCCESS
    assert bench.gate.parked_count == 3
    bench.gate.serve(SERVING, at())
    assert bench.served == [9, 3, 1, 2]
    assert [(answer.opaque, answer.code) for answer in bench.channel.sent] == [
        (opaque, ResponseCode.SUCCESS) for opaque in (3, 1, 2)
    ]
    assert bench.gate.parked_count == 0


def test_a_oneway_request_that_was_parked_gets_no_answer() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    bench.ask(SEND, 1, ONEWAY_FLAG)
    bench.gate.serve(SERVING, at())
    assert (bench.served, bench.channel.sent) == ([1], [])


def test_what_is_parked_goes_to_the_new_master_behind_the_clients_registrations() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    bench.ask(SEND, 1)
    heartbeat = RemotingCommand(RequestCode.HEART_BEAT, flag=ONEWAY_FLAG)
    bench.gate.forward(DEMOTED, "new:1", 0, [(bench.channel, heartbeat)])
    bench.ask(SEND, 2)
    assert bench.forwarding.log == ["tell HEART_BEAT", "forward 1", "forward 2"]
    assert bench.served == []


@pytest.mark.parametrize("parked", [True, False])
def test_a_commit_that_is_forwarded_says_so_and_a_send_is_left_alone(parked: bool) -> None:
    bench = Bench()
    if parked:
        bench.gate.park(PAUSED)
        bench.ask(COMMIT, 1)
        bench.ask(SEND, 2)
    bench.gate.forward(DEMOTED, "new:1", 0)
    if not parked:
        bench.ask(COMMIT, 1)
        bench.ask(SEND, 2)
    assert [dict(one.ext_fields) for one in bench.forwarding.forwarded] == [
        {FORWARDED_FIELD: "true"},
        {},
    ]


def test_a_parked_commit_whose_fields_cannot_be_read_is_answered_with_the_error() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    broken = RemotingCommand(
        COMMIT, opaque=1, serialize_type=SerializeType.ROCKETMQ, encoded_fields=b"\x00"
    )
    assert bench.gate.handle(bench.channel, broken, at()) is None
    bench.ask(SEND, 2)
    bench.gate.forward(DEMOTED, "new:1", 0)
    assert bench.forwarding.log == ["forward 2"]
    (answer,) = bench.channel.sent
    assert (answer.opaque, answer.code) == (1, ResponseCode.SYSTEM_ERROR)


def test_a_demoted_node_answers_pulls_and_heartbeats_and_copies_heartbeats() -> None:
    bench = Bench()
    bench.gate.forward(DEMOTED, "new:1", 0)
    assert bench.ask(PULL) == ResponseCode.SUCCESS
    assert bench.ask(RequestCode.HEART_BEAT) == ResponseCode.SUCCESS
    assert bench.forwarding.log == ["tell HEART_BEAT"]


def test_a_heartbeat_of_several_turns_is_copied_once() -> None:
    forwarding, answers = FakeForwarding(), [None, RemotingCommand(0)]
    handlers: dict[int, Handler] = {RequestCode.HEART_BEAT: lambda *_: answers.pop(0)}
    gate = RequestGate([handlers], forwarding, RecordedEvents(), never)
    gate.forward(DEMOTED, "new:1", 0)
    request = RemotingCommand(RequestCode.HEART_BEAT)
    assert gate.handle(FakeChannel(), request, at()) is None
    assert forwarding.log == []
    assert gate.handle(FakeChannel(), request, at()) is not None
    assert forwarding.log == ["tell HEART_BEAT"]


@pytest.mark.parametrize("transition", ["serve", "park"])
def test_nothing_is_forwarded_any_more_once_this_node_serves_or_parks(transition: str) -> None:
    bench = Bench()
    bench.gate.forward(DEMOTED, "new:1", 0)
    if transition == "serve":
        bench.gate.serve(SERVING, at())
    else:
        bench.gate.park(PAUSED)
    assert bench.forwarding.master == ""
    bench.ask(SEND)
    bench.ask(RequestCode.HEART_BEAT)
    assert bench.forwarding.log == []


def test_what_is_parked_is_rejected_if_no_node_is_master() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    bench.ask(SEND, 1)
    bench.gate.reject(SERVING, "no master")
    (answer,) = bench.channel.sent
    assert (answer.code, answer.remark) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "no master; try again",
    )
    assert bench.served == []


def test_a_code_can_be_rejected_with_the_reason_of_the_transition() -> None:
    bench = Bench()
    bench.gate.reject({SEND: Mode.REJECT}, "no leader")
    assert bench.ask(SEND) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert bench.channel.sent[0].remark == "no leader; try again"
    assert bench.ask(PULL) == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", NO_ERROR_FOR)
def test_a_consumer_that_would_begin_anew_loses_its_connection_instead(code: int) -> None:
    bench = Bench()
    bench.gate.reject({code: Mode.REJECT}, "no leader")
    assert bench.ask(code) is None
    assert bench.channel.closed


def test_where_the_group_is_asked_first_the_handler_waits_for_its_word() -> None:
    bench = Bench()
    bench.gate.serve({QUERY: Mode.CONFIRM}, at())
    assert bench.ask(QUERY, 7) is None
    assert (bench.confirmed, bench.served) == ([7], [])


@pytest.mark.parametrize("transition", ["serve", "reject", "park and serve"])
def test_a_node_that_stops_takes_no_sends_whatever_its_role_becomes(transition: str) -> None:
    """A role that changed during a shutdown once took sends again."""
    bench = Bench()
    bench.gate.stop("the broker is shutting down")
    if transition == "reject":
        bench.gate.reject(SERVING, "no master")
    else:
        if transition == "park and serve":
            bench.gate.park(PAUSED)
            bench.ask(SEND)
        bench.gate.serve(SERVING, at())
    assert bench.ask(SEND) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert bench.channel.sent[-1].remark == "the broker is shutting down; try again"
    assert bench.served == []
    assert bench.ask(PULL) == ResponseCode.SUCCESS


def test_a_node_that_stops_still_forwards() -> None:
    bench = Bench()
    bench.gate.stop("the broker is shutting down")
    bench.gate.forward(DEMOTED, "new:1", 0)
    bench.ask(SEND, 1)
    assert bench.forwarding.log == ["forward 1"]


def test_what_a_handler_raises_is_an_answer_unless_it_ends_the_node() -> None:
    def refuse(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        raise CommandError(ResponseCode.NO_PERMISSION, "no")

    def break_disk(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        raise StoreError("the disk is gone")

    def bug(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        raise KeyError("x")

    events, channel = RecordedEvents(), FakeChannel()
    gate = RequestGate([{10: refuse, 11: break_disk, 12: bug}], FakeForwarding(), events, never)
    refused = gate.handle(channel, RemotingCommand(10), at())
    assert refused is not None
    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(StoreError):
        gate.handle(channel, RemotingCommand(11), at())
    failed = gate.handle(channel, RemotingCommand(12), at())
    assert failed is not None
    assert failed.code == ResponseCode.SYSTEM_ERROR
    (told,) = events.of("handler_failed")
    assert "KeyError" in str(told["traceback"])


def test_codes_that_are_copied_are_served_and_never_parked() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    for code in COPIED:
        assert bench.gate.mode_of(code) is Mode.SERVE
        assert bench.ask(code) == ResponseCode.SUCCESS
