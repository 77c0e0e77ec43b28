"""The requests of a failover as one node answers them."""

from __future__ import annotations

from typing import Any

import attrs
import msgpack
import pytest
from support.handlers.sending import FakeChannel
from support.nodes.failover_set import BROKER, FakeNode, FakeSet

from trioha.broker.failover import WAITERS_MAX
from trioha.errors import CommandError, RemoteProtocolError
from trioha.ha.mastership import Standing
from trioha.remoting.channel import Instant
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

TICKET = "0123456789abcdef"
TARGET = {"home_id": 1, "address": "10.0.0.1:10911", "ha_address": "10.0.0.1:10912"}


@attrs.define(eq=False)
class Asked:
    """One node, asked as the engine asks it."""

    node: FakeNode
    now_ms: int = 0
    channel: FakeChannel = attrs.Factory(FakeChannel)

    def ask(self, code: RequestCode, **fields: object) -> dict[str, Any] | None:
        body = msgpack.packb({"ticket_id": TICKET, **fields})
        handler = self.node.processor.handlers()[code]
        request = RemotingCommand(code, body=body)
        response = handler(self.channel, request, Instant(self.now_ms, self.now_ms))
        return None if response is None else _fields(response)

    def take_ticket(self, **fields: object) -> dict[str, Any] | None:
        return self.ask(
            RequestCode.FAILOVER_TICKET,
            **{"broker_name": BROKER, "operator": "anna@ops", "ttl_ms": 30_000, **fields},
        )

    def pass_ms(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        deadline_ms = self.node.processor.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.node.processor.on_time(Instant(self.now_ms, self.now_ms))


def _fields(response: RemotingCommand) -> dict[str, Any]:
    assert response.code == ResponseCode.SUCCESS, response.remark
    fields: dict[str, Any] = msgpack.unpackb(response.body_bytes(), strict_map_key=False)
    return fields


@pytest.fixture
def master() -> Asked:
    return Asked(FakeSet().node(0))


@pytest.fixture
def slave() -> Asked:
    return Asked(FakeSet().node(1))


def test_a_pause_that_is_not_heard_of_again_ends_by_itself(master: Asked) -> None:
    master.take_ticket()
    told = master.ask(RequestCode.PAUSE_WRITES, pause_ms=5000)
    assert told is not None
    assert told["max_phy_offset"] == 1000
    assert master.node.set.masters == []
    master.pass_ms(5000)
    assert master.node.set.masters == [0]
    with pytest.raises(CommandError, match="nothing was changed"):
        master.ask(RequestCode.HAND_OVER, epoch=2, **TARGET)
    assert master.node.mastership.standing is Standing.MASTER


def test_who_has_not_paused_does_not_hand_over(master: Asked) -> None:
    master.take_ticket()
    with pytest.raises(CommandError, match="not paused here any more"):
        master.ask(RequestCode.HAND_OVER, epoch=2, **TARGET)


def test_each_step_asked_for_twice_answers_twice_and_happens_once(master: Asked) -> None:
    for _ in range(2):
        master.take_ticket()
    for _ in range(2):
        master.ask(RequestCode.PAUSE_WRITES, pause_ms=5000)
    for _ in range(2):
        told = master.ask(RequestCode.HAND_OVER, epoch=2, **TARGET)
        assert told is not None
        assert (told["standing"], told["epoch"], told["promised_epoch"]) == ("FENCED", 1, 2)
    with pytest.raises(CommandError, match="handed its mastership over already"):
        master.ask(RequestCode.PAUSE_WRITES, pause_ms=5000)


def test_a_promotion_under_a_used_ticket_is_answered_and_not_repeated(slave: Asked) -> None:
    slave.take_ticket()
    for _ in range(2):
        told = slave.ask(RequestCode.PROMOTE, epoch=2, log_offset=1000)
        told = told or _fields(slave.channel.sent.pop())
        assert (told["standing"], told["epoch"]) == ("MASTER", 2)
    slave.ask(RequestCode.RELEASE)
    told = slave.ask(RequestCode.PROMOTE, epoch=2, log_offset=1000)
    assert told is not None, "even when the ticket has ended"
    assert len(slave.node.mastership.history) == 2


def test_a_ticket_given_back_promotes_nobody_any_more(slave: Asked) -> None:
    slave.take_ticket()
    told = slave.ask(RequestCode.RELEASE)
    assert told is not None
    assert told["used"] is False
    with pytest.raises(CommandError, match="nothing was changed"):
        slave.ask(RequestCode.PROMOTE, epoch=2, log_offset=1000)
    with pytest.raises(CommandError, match="nothing was changed"):
        slave.take_ticket()


def test_a_promotion_that_fails_tells_why_and_can_be_tried_again(slave: Asked) -> None:
    slave.take_ticket()
    assert slave.ask(RequestCode.PROMOTE, epoch=2, log_offset=2000) is None
    failed = slave.channel.sent.pop()
    assert failed.remark == "the log ends at 1000, the old master's at 2000"
    slave.ask(RequestCode.PROMOTE, epoch=2, log_offset=1000)
    assert slave.channel.sent.pop().code == ResponseCode.SUCCESS


def test_an_answer_waits_until_the_log_is_there_or_for_so_long(slave: Asked) -> None:
    assert slave.take_ticket(log_offset=1500, wait_ms=3000) is None
    slave.node.log_end = 1500
    slave.node.processor.on_log_grown()
    assert _fields(slave.channel.sent.pop())["max_phy_offset"] == 1500
    assert slave.take_ticket(log_offset=1501, wait_ms=3000) is None
    slave.pass_ms(3000)
    assert _fields(slave.channel.sent.pop())["max_phy_offset"] == 1500


def test_a_oneway_request_that_has_waited_gets_no_answer(slave: Asked) -> None:
    fields = {"ticket_id": TICKET, "broker_name": BROKER, "operator": "anna@ops", "ttl_ms": 30_000}
    body = msgpack.packb({**fields, "log_offset": 1500, "wait_ms": 3000})
    request = RemotingCommand(RequestCode.FAILOVER_TICKET, body=body, flag=ONEWAY_FLAG)
    assert slave.node.processor.ticket(slave.channel, request, Instant(0, 0)) is None
    slave.pass_ms(3000)
    assert slave.channel.sent == []


def test_so_many_may_wait_and_no_more(slave: Asked) -> None:
    for _ in range(WAITERS_MAX):
        assert slave.take_ticket(log_offset=1500, wait_ms=3000) is None
    with pytest.raises(CommandError, match="too many"):
        slave.take_ticket(log_offset=1500, wait_ms=3000)


def test_what_was_handed_over_comes_back_when_the_target_says_that_it_is_void(
    master: Asked,
) -> None:
    master.take_ticket()
    master.ask(RequestCode.PAUSE_WRITES, pause_ms=5000)
    master.ask(RequestCode.HAND_OVER, epoch=2, **TARGET)
    told = master.ask(RequestCode.RELEASE, resume=True, audit={"result": "refused"})
    assert told is not None
    assert (told["standing"], told["epoch"]) == ("MASTER", 1)
    assert master.ask(RequestCode.FAILOVER_AUDIT) == {"records": [{"result": "refused"}]}


def test_who_handed_over_and_is_left_alone_has_to_ask(master: Asked) -> None:
    master.take_ticket()
    master.ask(RequestCode.PAUSE_WRITES, pause_ms=5000)
    master.ask(RequestCode.HAND_OVER, epoch=2, **TARGET)
    master.pass_ms(29_999)
    assert not master.node.unsettled, "before the deadline it would void a ticket in use"
    master.pass_ms(1)
    assert master.node.unsettled


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ticket_id": "xyz"}, "16 hexadecimal digits"),
        ({"operator": 5}, "operator is not text"),
        ({"ttl_ms": -1}, "ttl_ms is not a number"),
        ({"forced": "yes"}, "forced is not a boolean"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_the_field(
    slave: Asked, fields: dict[str, object], text: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        slave.take_ticket(**fields)


def test_a_request_with_a_wrong_field_changes_nothing(master: Asked) -> None:
    with pytest.raises(RemoteProtocolError, match="wait_ms"):
        master.take_ticket(forced=True, wait_ms="soon")
    assert master.node.processor.desk.ticket is None
    master.take_ticket()
    with pytest.raises(RemoteProtocolError, match="pause_ms"):
        master.ask(RequestCode.PAUSE_WRITES)
    assert master.node.set.masters == [0], "it takes writes"
    master.ask(RequestCode.PAUSE_WRITES, pause_ms=5000)
    for wrong in ({"epoch": 0}, {"epoch": 2, "address": 7}, {"epoch": 2, "log_offset": "all"}):
        with pytest.raises(RemoteProtocolError):
            master.ask(RequestCode.HAND_OVER, **{**TARGET, "log_offset": 1000, **wrong})
        assert master.node.held_by_target is None, "no waiting send was answered"
    master.ask(RequestCode.HAND_OVER, epoch=2, log_offset=1000, **TARGET)
    assert master.node.held_by_target == (1000, 0)
    with pytest.raises(RemoteProtocolError, match="resume"):
        master.ask(RequestCode.RELEASE, resume="yes")
    assert master.node.processor.desk.ticket is not None


def test_a_ticket_for_another_broker_is_refused(slave: Asked) -> None:
    with pytest.raises(CommandError, match="belongs to broker-a, not broker-b"):
        slave.take_ticket(broker_name="broker-b")


@pytest.mark.parametrize("body", [b"", b"\xc1", msgpack.packb([1]), b"x" * 200_000])
def test_a_body_that_is_no_map_is_refused(slave: Asked, body: bytes) -> None:
    handlers = slave.node.processor.handlers()
    request = RemotingCommand(RequestCode.PROMOTE, body=body)
    with pytest.raises(RemoteProtocolError):
        handlers[RequestCode.PROMOTE](slave.channel, request, Instant(0, 0))
