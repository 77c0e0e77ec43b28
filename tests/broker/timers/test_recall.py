from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.timers import delivered, handle_in, properties_of, recall, run_until, timer

from trioha.config import BrokerConfig, BrokerRole
from trioha.wire.codes import ResponseCode
from trioha.wire.names import TIMER_TOPIC
from trioha.wire.timers import RecallHandle


def handle(topic: str = "T", broker_name: str = "", timestamp_ms: int = WALL_MS + 4_001) -> str:
    broker_name = broker_name or BrokerConfig().broker_name
    return RecallHandle(topic, broker_name, timestamp_ms, "K1").encode()


@pytest.mark.parametrize("delay_ms", [1, 999, 1_000, 1_001, 5_000, 5_500, 259_199_000])
def test_message_that_was_taken_back_is_not_delivered(delay_ms: int) -> None:
    side = ProduceSide(timer_capacity=2)
    late_ms = 1  # the longest that a handle is good for
    answer = timer(side, "K1", now_ms=-late_ms, TIMER_DELAY_MS=delay_ms + late_ms)
    timer(side, "K2", TIMER_DELAY_MS=delay_ms)
    slot_ms = RecallHandle.decode(handle_in(answer)).timestamp_ms - 1
    at_ms = min(0, slot_ms - WALL_MS)
    response = recall(side, handle_in(answer), now_ms=at_ms)
    assert response.code == 0, response.remark
    assert response.ext_str("msgId") == "K1"
    run_until(side, delay_ms)
    assert delivered(side) == [("K2", delay_ms)]
    assert side.timers.cancelled_count == 1
    assert side.timers.pending_count == 0


def test_cancellation_is_what_rocketmq_writes() -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_SEC=5)
    recall(side, handle_in(answer))
    message, _ = side.store.messages[-1]
    properties = properties_of(message)
    stored = properties_of(side.store.messages[0][0])
    assert message.topic == TIMER_TOPIC
    assert message.body == b"0"
    assert properties["TIMER_DEL_UNIQKEY"] == "T+K1"
    assert properties["TIMER_OUT_MS"] == stored["TIMER_OUT_MS"]
    assert properties["REAL_TOPIC"] == "T"
    assert properties["TAGS"] == "_RECALL_TAG_"


def test_recall_of_a_delivered_message_says_so() -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_SEC=5)
    run_until(side, 5_000)
    response = recall(side, handle_in(answer), now_ms=5_000)
    assert response.code == ResponseCode.ILLEGAL_OPERATION
    assert "the message is delivered" in (response.remark or "")
    assert len(side.store.messages) == 2


def test_second_recall_succeeds_and_changes_nothing() -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_SEC=5)
    for _ in range(2):
        assert recall(side, handle_in(answer)).code == 0
    run_until(side, 9_000)
    assert delivered(side) == []


@pytest.mark.parametrize("rolled_h", [0, 49])
def test_recall_survives_a_restart(rolled_h: int) -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_SEC=60 * 3600)
    run_until(side, rolled_h * 3_600_000)
    assert recall(side, handle_in(answer), now_ms=rolled_h * 3_600_000).code == 0
    side.timers.load()
    run_until(side, 61 * 3_600_000, rolled_h * 3_600_000)
    assert delivered(side) == []


def test_cancellation_counts_after_a_restart_between_it_and_its_message() -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_MS=5_900)
    timer(side, "K2", TIMER_DELAY_MS=5_400)
    assert recall(side, handle_in(answer)).code == 0
    run_until(side, 5_500)
    assert delivered(side) == [("K2", 5_400)]
    side.timers.load()
    run_until(side, 9_000, 5_500)
    assert delivered(side) == [("K2", 5_400)]


def test_cancellation_that_readers_may_not_see_yet_counts() -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_MS=1_001)
    side.store.dispatching = False
    assert recall(side, handle_in(answer), now_ms=1_000).code == 0
    side.timers.run_due(at(1_001), 9)
    side.store.dispatch(1 << 30)
    run_until(side, 9_000, 1_001)
    assert delivered(side) == []


def test_older_clients_cancel_by_the_id_alone_and_only_in_their_topic() -> None:
    side = ProduceSide()
    timer(side, "K1", TIMER_DELAY_MS=5_500)
    timer(side, "K2", TIMER_DELAY_MS=5_500)
    timer(side, "X1", TIMER_DEL_UNIQKEY="K1", TIMER_DELAY_MS=5_500)
    timer(side, "X2", topic="TBW102", TIMER_DEL_UNIQKEY="T+K2", TIMER_DELAY_MS=5_500)
    run_until(side, 9_000)
    assert delivered(side) == [("K2", 5_500)]


@pytest.mark.parametrize(
    ("text", "topic", "code", "reason"),
    [
        ("", "T", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("nonsense", "T", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        (handle(topic="U"), "T", ResponseCode.ILLEGAL_OPERATION, "topic not match"),
        (handle(), "U", ResponseCode.TOPIC_NOT_EXIST, "the topic[U] not exist"),
        (handle(broker_name="b2"), "T", ResponseCode.ILLEGAL_OPERATION, "at broker 'b2'"),
        (handle(timestamp_ms=-5), "T", ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        (handle(timestamp_ms=1 << 62), "T", ResponseCode.ILLEGAL_OPERATION, "timerMaxDelaySec"),
    ],
)
def test_wrong_handle_is_refused_and_nothing_stored(
    text: str, topic: str, code: int, reason: str
) -> None:
    side = ProduceSide()
    timer(side)  # creates the topic
    response = recall(side, text, topic=topic)
    assert response.code == code
    assert reason in (response.remark or "")
    assert len(side.store.messages) == 1


def test_recall_can_be_forbidden_and_a_slave_takes_none() -> None:
    off = ProduceSide(attrs.evolve(BrokerConfig(), recall_message_enable=False))
    assert recall(off, handle()).code == ResponseCode.NO_PERMISSION
    side = ProduceSide()
    side.pipeline.role = BrokerRole.SLAVE
    assert recall(side, handle()).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_full_disk_is_told() -> None:
    side = ProduceSide()
    answer = timer(side, TIMER_DELAY_SEC=5)
    side.store.writable = False
    response = recall(side, handle_in(answer))
    assert response.code != 0
    assert "recall failed" in (response.remark or "")
