from __future__ import annotations

import json

import attrs
import pytest
from support.handlers.popping import (
    GROUP,
    INVISIBLE_MS,
    RETRY,
    TOPIC,
    Popped,
    PopSide,
    bodies_of,
    popped,
)
from support.handlers.sending import at
from support.memory.store import MemoryStore

from trioha.broker.pop.handles import pop_retry_topics
from trioha.config import BrokerConfig, BrokerRole
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData
from trioha.wire.record import decode_records


def test_a_popped_message_is_invisible_until_its_time_is_over_and_then_delivered_again() -> None:
    side = PopSide()
    side.put("a")
    (first,) = side.pop()
    assert first.body == "a"
    side.wait(INVISIBLE_MS - 1)
    assert side.pop() == []
    side.wait(1)
    (again,) = side.pop()
    assert (again.body, again.record.topic, again.record.reconsume_times) == ("a", RETRY, 1)
    assert "1ST_POP_TIME" in again.record.properties


def test_an_acknowledged_message_is_never_delivered_again() -> None:
    side = PopSide()
    for body in "abc":
        side.put(body)
    a, b, c = side.pop()
    assert [side.ack(a), side.ack(c)] == [0, 0]
    side.wait(10 * INVISIBLE_MS)
    (again,) = side.pop()
    assert again.body == b.body
    assert side.ack(again) == 0
    side.wait(10 * INVISIBLE_MS)
    assert side.pop() == []


def test_messages_of_all_queues_come_in_one_pop_and_each_once() -> None:
    side = PopSide()
    for i in range(8):
        side.put(str(i), i % 4)
    assert sorted(bodies_of(side.pop())) == [str(i) for i in range(8)]
    assert side.pop() == []


def test_a_pop_takes_no_more_than_it_asks_for_and_tells_what_is_left() -> None:
    side = PopSide(queues=2)
    for i in range(10):
        side.put(str(i), i % 2)
    response = side.ask_pop(maxMsgNums=3)
    assert response is not None
    assert len(popped(response)) == 3
    assert response.ext_int("restNum") == 7


def test_the_offset_of_the_group_follows_when_the_checkpoint_is_safe() -> None:
    side = PopSide()
    side.put("a")
    side.pop()
    assert side.committed() == 0
    side.make_safe()
    assert side.committed() == 1


def test_an_acknowledgement_is_a_success_when_it_is_repeated() -> None:
    side = PopSide()
    side.put("a")
    side.put("b")
    a, b = side.pop()
    assert [side.ack(a), side.ack(a), side.ack(b), side.ack(b)] == [0, 0, 0, 0]


def test_a_handle_is_worth_nothing_once_its_time_is_over() -> None:
    side = PopSide()
    side.put("a")
    (a,) = side.pop()
    side.wait(INVISIBLE_MS)
    count = len(side.store.messages)
    assert side.ack(a) == ResponseCode.NO_MESSAGE
    assert len(side.store.messages) == count


def test_handles_of_other_groups_topics_and_offsets_are_worth_nothing() -> None:
    side = PopSide()
    side.put("a")
    (a,) = side.pop()
    count = len(side.store.messages)
    assert side.ack(a, consumerGroup="other") == ResponseCode.NO_MESSAGE
    assert side.ack(a, queueId=1) == ResponseCode.NO_MESSAGE
    assert side.ack(a, offset=1) == ResponseCode.NO_MESSAGE
    assert side.ack(a, offset=-1) == ResponseCode.NO_MESSAGE
    assert side.ack(a, topic="unknown") == ResponseCode.TOPIC_NOT_EXIST
    assert side.ack(a, queueId=4) == ResponseCode.MESSAGE_ILLEGAL
    assert side.ack(a, queueId=-1) == ResponseCode.MESSAGE_ILLEGAL
    assert len(side.store.messages) == count
    side.wait(INVISIBLE_MS)
    assert bodies_of(side.pop()) == ["a"]


@pytest.mark.parametrize(
    "handle",
    [
        *("", "x", "1 2 3", "0 0 0 0 0", "a b c d 0 broker-a 0 0", "-1 2 3 0 0 broker-a 0 0"),
        *("9" * 30 + " 2 3 0 0 broker-a 0 0", "0 " * 600, "1" * (1 << 20)),
    ],
)
def test_a_handle_that_is_none_is_refused(handle: str) -> None:
    side = PopSide()
    side.put("a")
    (a,) = side.pop()
    count = len(side.store.messages)
    for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        fields: dict[str, object] = {"extraInfo": handle, "invisibleTime": 1000}
        assert side.code_of(code, a, fields) == ResponseCode.INVALID_PARAMETER
    assert len(side.store.messages) == count


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": 0}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": -1}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": -5}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 12 * 3_600_000 + 1}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 1 << 62}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"attemptId": "x" * 129}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a =", "expType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "a", "expType": "XPATH"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "x" * (1 << 20)}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumerGroup": "no such/group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumerGroup": "g" * 120}, ResponseCode.SYSTEM_ERROR),
        ({"bornTime": 1_000}, ResponseCode.POLLING_TIMEOUT),
    ],
)
def test_a_pop_that_makes_no_sense_is_refused_and_takes_nothing(
    fields: dict[str, object], code: int
) -> None:
    side = PopSide()
    side.put("a")
    count = len(side.store.messages)
    response = side.ask_pop(**fields)
    assert response is not None
    assert response.code == code, response.remark
    assert len(side.store.messages) == count
    assert bodies_of(side.pop()) == ["a"]


def test_nothing_is_popped_from_a_topic_that_may_not_be_read() -> None:
    side = PopSide()
    side.put("a")
    topic = side.core.topics.topics[TOPIC]
    side.core.topics.put(attrs.evolve(topic, perm=Perm.WRITE), 1000)
    response = side.ask_pop()
    assert response is not None
    assert (response.code, response.remark) == (
        ResponseCode.NO_PERMISSION,
        f"the topic[{TOPIC}] peeking message is forbidden",
    )


def test_a_changed_invisible_time_counts_from_now_and_the_old_handle_is_spent() -> None:
    side = PopSide()
    side.put("a")
    (a,) = side.pop()
    renewed = side.hide(a, 2 * INVISIBLE_MS)
    assert (
        side.code_of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, a, {"invisibleTime": 1})
        == ResponseCode.NO_MESSAGE
    )
    side.wait(2 * INVISIBLE_MS - 1)
    assert side.pop() == []
    soon = side.hide(renewed, 10)
    side.wait(10)
    (again,) = side.pop()
    assert again.record.reconsume_times == 1
    assert side.ack(soon) == ResponseCode.NO_MESSAGE


def test_an_acknowledgement_by_the_new_handle_counts() -> None:
    side = PopSide()
    side.put("a")
    (a,) = side.pop()
    assert side.ack(side.hide(a, 5)) == 0
    side.wait(INVISIBLE_MS)
    assert side.pop() == []


@pytest.mark.parametrize("invisible_ms", [-1, 12 * 3_600_000 + 1, 1 << 62])
def test_an_invisible_time_beyond_the_limits_is_refused(invisible_ms: int) -> None:
    side = PopSide()
    side.put("a")
    (a,) = side.pop()
    fields: dict[str, object] = {"invisibleTime": invisible_ms}
    code = side.code_of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, a, fields)
    assert code == ResponseCode.INVALID_PARAMETER
    assert side.ack(a) == 0


def test_a_message_goes_to_the_dead_letters_after_the_groups_retries() -> None:
    side = PopSide()
    side.put("a")
    side.pop()
    group = side.core.groups.get(GROUP)
    assert group is not None
    deliveries = 1
    for _ in range(group.retry_max_times + 3):
        side.wait(INVISIBLE_MS)
        deliveries += len(side.pop())
    assert deliveries == group.retry_max_times + 1
    assert side.bodies(f"%DLQ%{GROUP}") == ["a"]
    assert side.core.pops.redelivery.dead_count == 1
    assert len(side.core.pops.in_flight) == 0


@pytest.mark.parametrize(
    ("expression", "kind", "wanted"),
    [("A", "TAG", ["1", "3"]), ("", "", list("0123")), ("n > 1", "SQL92", ["2", "3"])],
)
def test_a_pop_takes_what_its_filter_wants_and_passes_over_the_rest(
    expression: str, kind: str, wanted: list[str]
) -> None:
    side = PopSide()
    for i in range(4):
        side.put(str(i), tags="A" if i % 2 else "B", n=str(i))
    fields: dict[str, object] = {"exp": expression, "expType": kind}
    assert bodies_of(side.pop(**fields)) == wanted
    assert side.pop() == []
    side.wait(INVISIBLE_MS)
    assert bodies_of(side.pop(**fields)) == wanted


def test_a_parked_pop_is_answered_by_the_next_message_it_wants() -> None:
    side = PopSide()
    assert side.ask_pop(pollTime=15_000, exp="A", expType="TAG") is None
    side.put("no", tags="B")
    side.core.after_batch(at())
    assert side.answers() == []
    side.put("yes", 3, tags="A")
    side.core.after_batch(at())
    (answer,) = side.answers()
    assert bodies_of(popped(answer)) == ["yes"]


def test_a_message_wakes_one_parked_pop_of_each_group() -> None:
    side = PopSide()
    for group in ("g", "g", "other"):
        assert side.ask_pop(pollTime=15_000, consumerGroup=group) is None
    side.put("a")
    side.core.after_batch(at())
    assert len(side.answers()) == 2
    assert len(side.core.pop_hold) == 1
    side.wait(15_000)
    (answer,) = side.answers()
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert side.core.next_parked_deadline_ms() is None


def test_a_message_whose_time_is_over_wakes_a_parked_pop() -> None:
    side = PopSide()
    side.put("a")
    side.pop(invisibleTime=5_000)
    assert side.ask_pop(pollTime=15_000) is None
    side.wait(5_000)
    (answer,) = side.answers()
    assert bodies_of(popped(answer)) == ["a"]


def test_a_parked_pop_is_forgotten_with_its_connection_and_answered_with_its_role() -> None:
    side = PopSide()
    assert side.ask_pop(pollTime=15_000) is None
    side.core.channel_closed(side.channel)
    side.put("a")
    side.core.after_batch(at())
    assert side.answers() == []
    assert side.ask_pop(pollTime=15_000, topic=TOPIC, queueId=1) is None
    side.core.become(BrokerRole.SLAVE, 1)
    side.core.after_batch(at())
    (answer,) = side.answers()
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    refused = side.ask_pop()
    assert refused is not None
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_notification_tells_of_a_message_and_takes_nothing() -> None:
    side = PopSide()
    fields: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": -1,
        "pollTime": 1_000,
        "bornTime": 0,
    }
    assert side.ask(RequestCode.NOTIFICATION, fields) is None
    polling = side.ask(RequestCode.POLLING_INFO, fields)
    assert polling is not None
    assert polling.ext_str("pollingNum") == "0"
    side.put("a")
    side.core.after_batch(at())
    assert [answer.ext_str("hasMsg") for answer in side.answers()] == ["true"]
    assert bodies_of(side.pop()) == ["a"]
    assert side.ask(RequestCode.NOTIFICATION, fields) is None
    side.wait(1_000)
    assert [answer.ext_str("hasMsg") for answer in side.answers()] == ["false"]


@pytest.mark.parametrize("batch", ["a", "ab"])
def test_a_handle_is_stale_once_the_invisible_time_was_changed(batch: str) -> None:
    """The message comes again: an acknowledgement by it must not be a success."""
    side = PopSide(queues=1)
    for body in batch:
        side.put(body)
    old, *others = side.pop()
    new = side.hide(old, 10 * INVISIBLE_MS)
    assert side.ack(old) == ResponseCode.NO_MESSAGE
    assert [side.ack(other) for other in others] == [0] * len(others)
    assert side.ack(old) == ResponseCode.NO_MESSAGE
    side.wait(9 * INVISIBLE_MS)
    assert [side.ack(new), side.ack(new)] == [0, 0]
    side.wait(10 * INVISIBLE_MS)
    assert side.pop() == []


def test_a_peek_shows_messages_and_takes_nothing() -> None:
    side = PopSide()
    side.put("a")
    fields: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "maxMsgNums": 5,
    }
    for _ in range(2):
        response = side.ask(RequestCode.PEEK_MESSAGE, fields)
        assert response is not None
        assert [record.body for record in decode_records(response.body_bytes())] == [b"a"]
    assert bodies_of(side.pop()) == ["a"]


def test_a_peek_counts_all_that_a_pop_could_take() -> None:
    side = PopSide(queues=2)
    for body in "abc":
        side.put(body)
    side.put("d", 1)
    for count in (1, 4):
        response = side.ask(
            RequestCode.PEEK_MESSAGE,
            {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": count},
        )
        assert response is not None
        assert len(decode_records(response.body_bytes())) == count
        assert response.ext_int("restNum") == 4


def test_a_new_group_begins_with_the_first_message_or_with_the_last() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    side.store.in_memory_from = side.store.max_phy_offset
    assert bodies_of(side.pop(initMode=1)) == ["c"]
    assert bodies_of(side.pop(initMode=0, consumerGroup="other")) == ["a", "b", "c"]


def test_an_operator_moves_a_group_back_and_all_of_it_comes_again() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    messages: list[Popped] = side.pop()
    assert [side.ack(message) for message in messages] == [0, 0, 0]
    side.make_safe()
    side.core.offsets.commit(GROUP, TOPIC, 0, 1)
    side.now_ms += 1
    assert bodies_of(side.pop()) == ["b", "c"]
    side.make_safe()
    assert side.committed() == 3


@pytest.mark.parametrize("member_count", [0, 1])
def test_a_reset_moves_a_group_in_pop_mode_whose_members_keep_no_offsets(member_count: int) -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    assert bodies_of(side.pop()) == ["a", "b", "c"]
    side.make_safe()
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP"}
    side.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
    if member_count:
        data = HeartbeatData("client", consumers=(ConsumerData(GROUP),))
        side.ask(RequestCode.HEART_BEAT, {}, data.encode())
    side.now_ms += 1
    fields: dict[str, object] = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": "true"}
    response = side.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert response is not None
    assert response.code == 0
    assert bodies_of(side.pop()) == ["a", "b", "c"]


def test_nothing_is_popped_when_the_store_takes_no_checkpoint() -> None:
    side = PopSide()
    side.put("a")
    side.store.writable = False
    response = side.ask_pop()
    assert response is not None
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    side.store.writable = True
    assert bodies_of(side.pop()) == ["a"]


def test_a_redelivery_that_the_store_rejects_comes_later() -> None:
    side = PopSide()
    side.put("a")
    side.pop()
    side.store.writable = False
    side.wait(INVISIBLE_MS)
    side.store.writable = True
    side.wait(9_999)
    assert side.pop() == []
    side.wait(1)
    assert bodies_of(side.pop()) == ["a"]


def test_what_earlier_queues_gave_is_answered_when_a_later_one_takes_no_checkpoint() -> None:
    side = PopSide()
    for queue_id in range(4):
        side.put(str(queue_id), queue_id)
    side.store.full_after = 2
    first = side.pop()
    assert len(first) == 2
    side.store.full_after = None
    assert sorted(bodies_of(first) + bodies_of(side.pop())) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("order", ["true", "false"])
def test_a_pop_of_messages_on_disk_is_answered_once_they_were_read(order: str) -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.store.on_disk[TOPIC, 0] = 2
    assert side.ask_pop(order=order) is None
    assert (side.read(), side.answers()) == (1, [])
    assert side.read() == 1
    (answer,) = side.answers()
    assert bodies_of(popped(answer)) == ["a"]
    assert side.read() == 0


def test_a_pop_gives_what_is_in_memory_and_waits_for_no_disk() -> None:
    side = PopSide(queues=4)
    for queue_id in range(4):
        side.put(str(queue_id), queue_id)
    side.store.on_disk = {(TOPIC, queue_id): 1 for queue_id in range(3)}
    found = []
    for _ in range(10):
        answer = side.ask_pop()
        if answer is None:
            assert side.read() == 1
            (answer,) = side.answers()
        found += bodies_of(popped(answer))
    assert sorted(found) == ["0", "1", "2", "3"]


def test_a_pop_that_waits_too_long_for_the_disk_is_told_that_there_is_nothing() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.store.on_disk[TOPIC, 0] = 99
    assert side.ask_pop(pollTime=15_000) is None
    side.wait(14_999)
    assert side.answers() == []
    side.wait(1)
    (answer,) = side.answers()
    assert answer.code == ResponseCode.POLLING_TIMEOUT


def test_a_pop_gets_on_although_memory_keeps_nothing() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.store.on_disk[TOPIC, 0] = 99
    assert side.ask_pop() is None
    while side.read():
        pass
    (answer,) = side.answers()
    assert bodies_of(popped(answer)) == ["a"]


def test_a_pop_that_finds_no_room_to_wait_for_the_disk_is_told_so() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.store.on_disk[TOPIC, 0] = 1
    side.core.cold_reads._parked_max = 0
    answer = side.ask_pop(pollTime=15_000)
    assert answer is not None
    assert answer.code == ResponseCode.POLLING_FULL


def v2_side(store: MemoryStore | None = None) -> PopSide:
    config = attrs.evolve(BrokerConfig(), broker_ip1="127.0.0.1", enable_retry_topic_v2=True)
    return PopSide(config, store=store)


def test_retry_topics_with_a_plus_when_asked_for() -> None:
    side = v2_side()
    side.put("a")
    side.pop()
    assert side.ask_pop(pollTime=10 * INVISIBLE_MS) is None
    side.wait(INVISIBLE_MS)
    side.core.after_batch(side.instant)
    (again,) = popped(side.answers()[0])
    assert (again.body, again.record.topic, again.record.reconsume_times) == ("a", "%RETRY%g+T", 1)
    assert again.handle.split()[4] == "2"
    assert side.ack(side.hide(again, INVISIBLE_MS)) == 0
    side.wait(INVISIBLE_MS)
    assert side.pop() == []


def test_what_waits_in_the_other_retry_topic_is_delivered_after_a_change() -> None:
    before = PopSide()
    before.put("a")
    before.pop()
    before.wait(INVISIBLE_MS)
    before.make_safe()
    after = v2_side(before.store)
    after.core.topics.load(before.core.topics.encode())
    after.core.offsets.load(before.core.offsets.encode())
    after.core.deliveries.load()
    (again,) = after.pop()
    assert again.record.topic == RETRY
    after.wait(INVISIBLE_MS)
    (once_more,) = after.pop()
    assert (once_more.record.topic, once_more.record.reconsume_times) == ("%RETRY%g+T", 2)


def test_groups_and_topics_with_underscores_share_no_retry_topic_with_a_plus() -> None:
    assert pop_retry_topics("b_c", "a")[0] == pop_retry_topics("c", "a_b")[0]
    assert pop_retry_topics("b_c", "a")[1] != pop_retry_topics("c", "a_b")[1]
