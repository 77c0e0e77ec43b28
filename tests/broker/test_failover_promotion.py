"""A ticket while a promotion is in progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgpack
from support.handlers.sending import FakeChannel, at

from trioha.broker.failover import FailoverProcessor
from trioha.broker.failover_audit import AuditTrail
from trioha.ha.promotion import Peer, Promotion
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

TICKET = "00112233aabbccdd"


class SlowControl:
    """A node whose promotion takes until the test says so."""

    log_end = 100
    metadata_position = 0

    def __init__(self) -> None:
        self.done: Callable[[str], None] | None = None
        self.left = 0
        self.suspended = ""

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        pass

    def facts(self) -> Mapping[str, object]:
        return {"max_phy_offset": self.log_end}

    def has_begun(self, nonce: bytes) -> bool:
        return False

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def take_back(self) -> bool:
        return False

    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None: ...

    def promise(self, epoch: int, nonce: bytes) -> None: ...

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        self.done = done

    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None: ...

    def suspend_following(self, reason: str) -> None:
        self.suspended = reason

    def follow_again(self) -> None:
        self.suspended = ""

    def left_alone(self) -> None:
        self.left += 1


def test_a_ticket_whose_time_passed_during_the_promotion_ends_after_it() -> None:
    """The ticket had no deadline meanwhile: the task that sleeps for it must hear the new one."""
    control = SlowControl()
    woken: list[int | None] = []
    processor = FailoverProcessor(
        "broker-a",
        control,
        control,
        AuditTrail(),
        RecordedEvents(),
        lambda: woken.append(processor.next_deadline_ms),
    )
    channel = FakeChannel()
    handlers = processor.handlers()

    def ask(code: RequestCode, now_ms: int, **fields: object) -> RemotingCommand | None:
        body = msgpack.packb({"ticket_id": TICKET, **fields})
        return handlers[code](channel, RemotingCommand(code, body=body), at(now_ms))

    def held() -> str | None:
        return processor.desk.ticket.ticket_id if processor.desk.ticket else None

    ask(
        *(RequestCode.FAILOVER_TICKET, 0),
        broker_name="broker-a",
        operator="anna@ops-1",
        ttl_ms=1000,
    )
    assert ask(RequestCode.PROMOTE, 10, epoch=2, sync=True) is None
    processor.on_time(at(5000))
    assert held() == TICKET
    assert processor.next_deadline_ms is None

    assert control.done is not None
    control.done("")
    assert [answer.code for answer in channel.sent] == [0]
    assert woken[-1] == 1000
    processor.on_time(at(5001))
    assert held() is None
    assert control.left == 1


def test_an_order_that_is_repeated_during_the_promotion_is_answered_with_the_first() -> None:
    control = SlowControl()
    processor = FailoverProcessor("broker-a", control, control, AuditTrail(), RecordedEvents())
    handlers = processor.handlers()
    body = {"ticket_id": TICKET, "broker_name": "broker-a", "operator": "anna", "ttl_ms": 1000}
    command = RemotingCommand(RequestCode.FAILOVER_TICKET, body=msgpack.packb(body))
    handlers[RequestCode.FAILOVER_TICKET](FakeChannel(), command, at(0))
    channels = FakeChannel(), FakeChannel()
    for channel in channels:
        order = msgpack.packb({"ticket_id": TICKET, "epoch": 2, "sync": True})
        command = RemotingCommand(RequestCode.PROMOTE, body=order)
        assert handlers[RequestCode.PROMOTE](channel, command, at(10)) is None
    assert control.done is not None
    control.done("")
    assert [[answer.code for answer in channel.sent] for channel in channels] == [[0], [0]]


def test_a_forced_ticket_suspends_a_node_until_the_master_it_promised_names_itself() -> None:
    control = SlowControl()
    processor = FailoverProcessor("broker-a", control, control, AuditTrail(), RecordedEvents())
    body = {"ticket_id": TICKET, "broker_name": "broker-a", "operator": "anna", "ttl_ms": 1000}
    command = RemotingCommand(
        RequestCode.FAILOVER_TICKET, body=msgpack.packb({**body, "forced": True})
    )
    processor.handlers()[RequestCode.FAILOVER_TICKET](FakeChannel(), command, at(0))
    for nonce in (b"", b"another!"):
        processor.master_announced(nonce)
        assert control.suspended == "anna fails this broker over"
    processor.master_announced(bytes.fromhex(TICKET))
    assert not control.suspended
