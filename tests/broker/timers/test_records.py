"""Effects of a delay property on a send, and the answers to wrong ones."""

from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at, send_v2
from support.handlers.timers import delivered, handle_in, properties_of, run_until, timer
from support.handlers.transactions import half

from trioha.config import BrokerConfig
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.java_hash import string_hash
from trioha.wire.names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from trioha.wire.timers import RecallHandle

YEAR_S = 365 * 86_400


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3_000),
        ({"TIMER_DELAY_MS": "1500"}, 1_500),
        ({"TIMER_DELIVER_MS": str(WALL_MS + 2_345)}, 2_345),
        # The first counts, as in RocketMQ.
        ({"TIMER_DELIVER_MS": str(WALL_MS + 9_000), "TIMER_DELAY_MS": "70"}, 70),
        ({"TIMER_DELAY_MS": "70", "TIMER_DELAY_SEC": "4"}, 4_000),
    ],
)
def test_message_waits_to_the_millisecond(properties: dict[str, str], due_ms: int) -> None:
    side = ProduceSide()
    assert timer(side, properties=properties).code == 0
    message, _ = side.store.messages[0]
    assert (message.topic, message.queue_id) == (TIMER_TOPIC, 0)
    assert message.tags_code == WALL_MS + due_ms
    run_until(side, due_ms - 1)
    assert delivered(side) == []
    run_until(side, due_ms)
    assert delivered(side) == [("K1", due_ms)]


def test_stored_record_is_what_rocketmq_reads() -> None:
    side = ProduceSide()
    timer(side, TIMER_DELAY_SEC=3, TAGS="TagA", now_ms=250)
    stored = properties_of(side.store.messages[0][0])
    assert stored["REAL_TOPIC"] == "T"
    assert stored["REAL_QID"] == "1"
    assert stored["TIMER_OUT_MS"] == str(WALL_MS + 3_000)
    assert stored["TIMER_DELAY_SEC"] == "3"
    assert stored["TIMER_DELIVER_MS"] == str(WALL_MS + 3_250)


def test_delivered_message_is_as_rocketmq_delivers_it() -> None:
    side = ProduceSide()
    timer(side, TIMER_DELAY_SEC=3, TAGS="TagA", KEYS="k1 k2")
    run_until(side, 3_000)
    (stored, _), (message, _) = side.store.messages
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"hello")
    assert message.tags_code == string_hash("TagA")
    assert list(message.keys) == [b"K1", b"k1", b"k2"]
    assert message.born_timestamp == stored.born_timestamp
    assert properties_of(message) == {
        "UNIQ_KEY": "K1",
        "KEYS": "k1 k2",
        "TAGS": "TagA",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
        "TIMER_DELAY_SEC": "3",
        "TIMER_OUT_MS": str(WALL_MS + 2_000),
        "TIMER_ENQUEUE_MS": str(WALL_MS),
        "TIMER_DEQUEUE_MS": str(WALL_MS + 3_000),
    }


def test_deliver_time_of_the_client_stays() -> None:
    side = ProduceSide()
    timer(side, TIMER_DELIVER_MS=WALL_MS + 10)
    run_until(side, 10)
    assert properties_of(side.store.messages[1][0])["TIMER_DELIVER_MS"] == str(WALL_MS + 10)


def test_answer_names_the_real_queue_and_a_handle() -> None:
    side = ProduceSide()
    response = timer(side, TIMER_DELAY_SEC=3)
    assert response.ext_int("queueId") == 1
    handle = RecallHandle.decode(handle_in(response))
    assert handle == RecallHandle("T", side.config.broker_name, WALL_MS + 2_001, "K1")
    assert handle_in(timer(side)) == ""


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELAY_MS": "-1"},
        {"TIMER_DELIVER_MS": str(WALL_MS)},
        {"TIMER_DELIVER_MS": "1"},
        {"TIMER_DELIVER_MS": "-" + "9" * 18},
    ],
)
def test_time_that_is_past_means_now_as_in_rocketmq(properties: dict[str, str]) -> None:
    side = ProduceSide()
    response = timer(side, properties=properties)
    assert response.code == 0
    assert handle_in(response) == ""
    assert delivered(side) == [("K1", 0)]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"TIMER_DELAY_SEC": "x"}, "TIMER_DELAY_SEC is not a number: 'x'"),
        ({"TIMER_DELAY_SEC": "1.5"}, "TIMER_DELAY_SEC is not a number"),
        ({"TIMER_DELAY_MS": "9" * 400}, "TIMER_DELAY_MS is not a number"),
        ({"TIMER_DELIVER_MS": "tomorrow"}, "TIMER_DELIVER_MS is not a number"),
        ({"TIMER_DELAY_SEC": "259201"}, "max delay 259200000ms"),
        ({"TIMER_DELAY_SEC": "9" * 18}, "max delay 259200000ms"),
        ({"TIMER_DELIVER_MS": str(WALL_MS + 259_200_001)}, "it is 259200001ms"),
        ({"TIMER_DELAY_SEC": "-1", "TIMER_DEL_UNIQKEY": "T+K"}, "is past"),
    ],
)
def test_illegal_delay_is_refused_and_nothing_stored(
    properties: dict[str, str], reason: str
) -> None:
    side = ProduceSide()
    response = timer(side, properties=properties)
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert reason in (response.remark or "")
    assert side.store.messages == []
    assert side.timers.pending_count == 0


def test_longest_delay_is_taken() -> None:
    side = ProduceSide()
    assert timer(side, TIMER_DELAY_SEC=259_200).code == 0
    year = ProduceSide(attrs.evolve(BrokerConfig(), timer_max_delay_sec=YEAR_S))
    assert timer(year, TIMER_DELAY_SEC=YEAR_S).code == 0
    assert timer(year, TIMER_DELAY_SEC=YEAR_S + 1).code == ResponseCode.MESSAGE_ILLEGAL


def test_disabled_wheel_refuses_and_goes_on_delivering() -> None:
    side = ProduceSide()
    timer(side, TIMER_DELAY_SEC=1)
    off = attrs.evolve(side.config, timer_wheel_enable=False)
    side.sender.config = side.timers.config = off
    response = timer(side, "K2", TIMER_DELAY_SEC=1)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == ("accurate timer message is not enabled, timerWheelEnable is false")
    run_until(side, 1_000)
    assert delivered(side) == [("K1", 1_000)]


def test_level_is_stronger_and_leaves_no_trace_of_the_other() -> None:
    side = ProduceSide()
    assert timer(side, DELAY=2, TIMER_DELAY_SEC=99, TIMER_DELIVER_MS="x").code == 0
    message, _ = side.store.messages[0]
    assert message.topic == SCHEDULE_TOPIC
    assert not any(name.startswith("TIMER_") for name in properties_of(message))


def test_message_that_was_delivered_is_sent_on_at_once() -> None:
    side = ProduceSide()
    assert timer(side, TIMER_DELAY_SEC=99, TIMER_OUT_MS=WALL_MS).code == 0
    assert side.store.messages[0][0].topic == "T"


def test_transaction_cannot_be_delayed() -> None:
    side = ProduceSide()
    response = side.send(half(more={"TIMER_DELAY_SEC": "5"}))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert "a transactional message cannot be delayed" in (response.remark or "")
    assert side.store.messages == []


def test_batch_cannot_be_delayed() -> None:
    side = ProduceSide()
    for own, shared in (("TIMER_DELAY_SEC\x015", ""), ("", "TIMER_DELIVER_MS\x015")):
        body = encode_batch([BatchElement(0, memoryview(b"one"), memoryview(own.encode()))])
        request = send_v2(
            body=body, properties=shared, code=RequestCode.SEND_BATCH_MESSAGE, m="true"
        )
        response = side.send(request)
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a batch cannot be delayed" in (response.remark or "")
    assert side.store.messages == []


def test_clients_cannot_send_to_the_queue_itself() -> None:
    side = ProduceSide()
    response = side.send(send_v2(TIMER_TOPIC))
    assert response.code == ResponseCode.NO_PERMISSION
    assert side.store.messages == []


def test_dead_letter_does_not_wait() -> None:
    side = ProduceSide()
    side.groups.find("g", WALL_MS)
    request = send_v2(
        RETRY_PREFIX + "g", properties="TIMER_DELAY_SEC\x015\x02UNIQ_KEY\x01K", j="99", e="0"
    )
    assert side.send(request, at()).code == 0
    assert side.store.messages[0][0].topic == "%DLQ%g"


def test_properties_leave_room_for_what_delivery_adds() -> None:
    side = ProduceSide()
    fits = next(
        size
        for size in range(32_767, 32_000, -1)
        if timer(side, TIMER_DELAY_SEC=1, X="x" * size).code == 0
    )
    run_until(side, 1_000)
    assert [key for key, _ in delivered(side)] == ["K1"]
    assert len(properties_of(side.store.messages[-1][0])["X"]) == fits


def test_deliver_times_do_not_crowd_known_shapes() -> None:
    side = ProduceSide()
    timer(side, "A")
    known = dict(side.sender._shapes.known)
    for number in range(5):
        timer(side, f"B{number}", TIMER_DELIVER_MS=WALL_MS + 1000 + number)
    assert side.sender._shapes.known == known
