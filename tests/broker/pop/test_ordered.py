from __future__ import annotations

import pytest
from support.handlers.popping import GROUP, TOPIC, Popped, PopSide, bodies_of, popped

from trioha.broker.pop.order import OrderBatch, OrderKey
from trioha.wire.codes import RequestCode, ResponseCode


def ordered(side: PopSide, **fields: object) -> list[Popped]:
    return side.pop(**{"order": "true", "invisibleTime": 10_000, **fields})


def test_a_queue_is_blocked_until_its_batch_is_acknowledged() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    a, b = ordered(side, maxMsgNums=2)
    assert (a.handle.split()[3], side.committed()) == ("999", 0)
    assert ordered(side) == []
    assert side.ack(a) == 0
    assert side.committed() == 1
    assert ordered(side) == []
    assert side.ack(b) == 0
    assert side.ack(b) == 0
    (c,) = ordered(side)
    assert (c.body, side.committed()) == ("c", 2)


def test_a_batch_behind_messages_that_its_filter_rejects_blocks_and_is_acknowledged() -> None:
    side = PopSide(queues=1)
    for body in ("b", "a", "b2", "a2"):
        side.put(body, tags=body[0])
    a, a2 = ordered(side, exp="a")
    assert ordered(side, exp="a") == []
    assert [side.ack(a), side.committed()] == [0, 3]
    assert ordered(side) == []
    assert [side.ack(a2), side.committed()] == [0, 4]


def test_other_queues_are_popped_while_one_is_blocked() -> None:
    side = PopSide(queues=2)
    for i in range(4):
        side.put(str(i), i % 2)
    first = ordered(side, maxMsgNums=1)
    assert len(ordered(side)) == 2
    assert ordered(side) == []
    side.ack(first[0])
    assert len(ordered(side)) == 1


def test_a_batch_comes_again_in_order_and_says_how_often() -> None:
    side = PopSide(queues=1)
    for body in "ab":
        side.put(body)
    ordered(side)
    for times in (1, 2):
        side.wait(10_000)
        response = side.ask_pop(order="true", invisibleTime=10_000)
        assert response is not None
        assert bodies_of(popped(response)) == ["a", "b"]
        counts = response.ext_str("orderCountInfo").split(";")
        assert counts == [f"0 qo0%0 {times}", f"0 qo0%1 {times}", f"0 0 {times}"]


def test_what_is_acknowledged_of_a_batch_does_not_come_again() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    messages = ordered(side, maxMsgNums=2)
    side.ack(messages[0])
    side.wait(10_000)
    response = side.ask_pop(order="true", invisibleTime=10_000)
    assert response is not None
    assert bodies_of(popped(response)) == ["b", "c"]
    assert response.ext_str("orderCountInfo") == "0 qo0%1 1;0 0 0"
    assert side.ack(messages[1]) == ResponseCode.NO_MESSAGE


def test_the_same_attempt_is_told_the_counts_of_what_it_brings() -> None:
    side = PopSide(queues=1)
    for body in "abcd":
        side.put(body)

    def attempt(count: int) -> tuple[list[Popped], str]:
        response = side.ask_pop(order="true", maxMsgNums=count, attemptId="x")
        assert response is not None
        return popped(response), response.ext_str("orderCountInfo")

    ordered(side, maxMsgNums=3)
    side.wait(10_000)
    attempt(3)
    (a, b), counts = attempt(2)
    assert counts == "0 qo0%0 1;0 qo0%1 1;0 0 1"
    side.ack(a)
    (b, c), counts = attempt(2)
    assert counts == "0 qo0%1 1;0 qo0%2 1;0 0 1"
    side.ack(b)
    side.ack(c)
    (d,), counts = attempt(2)
    assert (d.body, counts) == ("d", "0 0 0")


def test_the_same_attempt_gets_its_batch_once_more_at_once() -> None:
    side = PopSide(queues=1)
    side.put("a")
    assert bodies_of(ordered(side, attemptId="x")) == ["a"]
    assert ordered(side, attemptId="y") == []
    response = side.ask_pop(order="true", attemptId="x")
    assert response is not None
    assert bodies_of(popped(response)) == ["a"]
    assert response.ext_str("orderCountInfo") == "0 0 0"


def test_a_parked_pop_gets_the_queue_when_it_is_free() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.put("b")
    (a,) = ordered(side, maxMsgNums=1)
    assert side.ask_pop(order="true", pollTime=15_000) is None
    side.ack(a)
    side.core.after_batch(side.instant)
    (answer,) = side.answers()
    assert bodies_of(popped(answer)) == ["b"]
    assert side.ask_pop(order="true", pollTime=120_000) is None
    side.wait(60_000)
    (answer,) = side.answers()
    assert bodies_of(popped(answer)) == ["b"]


def test_the_invisible_time_of_an_ordered_message_can_be_changed() -> None:
    side = PopSide(queues=1)
    side.put("a")
    (a,) = ordered(side)
    a = side.hide(a, 20_000)
    side.wait(19_999)
    assert ordered(side) == []
    side.hide(a, 0)
    assert bodies_of(ordered(side)) == ["a"]
    code = side.code_of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, a, {"invisibleTime": 5})
    assert code == ResponseCode.NO_MESSAGE


def test_an_invisible_time_that_the_store_does_not_take_stays_as_it_was() -> None:
    side = PopSide(queues=1)
    side.put("a")
    (a,) = ordered(side)
    side.store.writable = False
    code = side.code_of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, a, {"invisibleTime": 1})
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    side.store.writable = True
    side.wait(9_999)
    assert ordered(side) == []
    side.wait(1)
    assert bodies_of(ordered(side)) == ["a"]


def test_order_survives_a_change_of_masters() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    a, b = ordered(side, maxMsgNums=2)
    side.ack(a)
    side.make_safe()
    side = side.after_power_loss(side.core.offsets.encode())
    assert ordered(side) == []
    assert side.ack(b) == 0
    assert bodies_of(ordered(side)) == ["c"]


def test_an_operator_frees_a_blocked_queue() -> None:
    side = PopSide(queues=1)
    for body in "ab":
        side.put(body)
    a, b = ordered(side)
    side.ack(a)
    side.core.offsets.commit(GROUP, TOPIC, 0, 0)
    assert side.ack(b) == ResponseCode.NO_MESSAGE
    assert bodies_of(ordered(side)) == ["a", "b"]


@pytest.mark.parametrize("acked", range(4))
def test_the_offset_moves_over_the_acknowledged_beginning(acked: int) -> None:
    batch = OrderBatch(OrderKey("T", "g", 0), "", 0, 10, (4, 7), acked)
    assert batch.next_offset == {0: 4, 1: 7, 2: 4, 3: 8}[acked]
    assert batch.blocked_until_ms(5, "") == (None if acked == 3 else 10)
