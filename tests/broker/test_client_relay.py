from __future__ import annotations

from collections.abc import Callable

import pytest
from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import WALL_MS, FakeChannel

from trioha.broker import client_relay
from trioha.broker.admin_topics import SLAVE_REMARK
from trioha.broker.client_relay import CALL_MS, STATUS_MS
from trioha.security.signature import Credentials
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue, TopicConfig
from trioha.wire.codes import ONEWAY_FLAG, LanguageCode, RequestCode, ResponseCode
from trioha.wire.json_fields import list_of, object_of
from trioha.wire.message_id import offset_message_id
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import ExtValue, RemotingCommand

STORE_HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def offsets_of(body: bytes) -> dict[int, object]:
    table = object_of(fastjson.loads(body), "body")["offsetTable"]
    assert isinstance(table, fastjson.ObjectKeyMap)
    return {MessageQueue.from_dict(queue).queue_id: offset for queue, offset in table}


def of_code(channel: FakeChannel, code: int) -> list[RemotingCommand]:
    return [command for command in channel.sent if command.code == code]


# 222: reset.


def reset(**fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {
            "topic": "T",
            "group": "g",
            "timestamp": str(WALL_MS + 1_000),
            "isForce": "true",
            **fields,
        },
    )


def committed_side() -> ConsumeSide:
    """Two queues with three messages a second apart; one is consumed, one begun."""
    side = ConsumeSide()
    side.topics.put(TopicConfig("T", 2, 2), WALL_MS)
    for queue_id in range(2):
        for second in range(3):
            side.put(queue_id=queue_id, wall_ms=WALL_MS + second * 1_000)
    side.offsets.commit("g", "T", 0, 3)
    side.offsets.commit("g", "T", 1, 0)
    return side


def test_reset_tells_every_consumer_and_the_administrator() -> None:
    side = committed_side()
    java, cpp, admin = FakeChannel(), FakeChannel(), FakeChannel()
    side.beat(java, client_id="a@1")
    side.beat(cpp, client_id="b@2", language=LanguageCode.CPP, version=333)
    response = side.ask(reset(), admin)
    assert response.code == 0
    assert offsets_of(response.body_bytes()) == {0: 1, 1: 1}
    (event,) = side.events.of("progress_reset")
    assert event == {
        "topic": "T",
        "group": "g",
        "queues": [0, 1, 1, 1],
        "members": 2,
        "peer": admin.peer,
    }
    (told,) = of_code(java, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert told.flag == ONEWAY_FLAG
    assert told.ext_fields == {
        "topic": "T",
        "group": "g",
        "timestamp": str(WALL_MS + 1_000),
        "isForce": True,
    }
    assert offsets_of(told.body_bytes()) == {0: 1, 1: 1}
    # The C++ client reads no objects as keys.
    (told,) = of_code(cpp, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    rows = list_of(object_of(fastjson.loads(told.body_bytes()), "body")["offsetTable"], "rows")
    assert rows[0] == {"brokerName": "broker-a", "offset": 1, "queueId": 0, "topic": "T"}


def test_reset_without_force_moves_no_queue_forwards() -> None:
    side = committed_side()
    side.beat()
    response = side.ask(reset(isForce="false"))
    assert offsets_of(response.body_bytes()) == {0: 1, 1: 0}


def test_reset_to_the_end() -> None:
    side = committed_side()
    side.beat()
    response = side.ask(reset(timestamp="-1"))
    assert offsets_of(response.body_bytes()) == {0: 3, 1: 3}


def named(broker: str, offsets: dict[int, int], topic: str = "T") -> RemotingCommand:
    pairs = [(MessageQueue(topic, broker, number).to_dict(), at) for number, at in offsets.items()]
    command = reset(timestamp="0")
    command.body = fastjson.dumps({"offsetTable": fastjson.ObjectKeyMap(pairs)})
    return command


def test_a_body_names_queues_and_their_offsets() -> None:
    side = committed_side()
    member = FakeChannel()
    side.beat(member, client_id="a@1")
    assert side.ask(named(side.config.broker_name, {1: 2})).code == 0
    (told,) = of_code(member, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert offsets_of(told.body_bytes()) == {1: 2}


def test_mqadmin_5_names_one_queue_and_its_offset() -> None:
    """`resetOffsetByTime -b -q -o`, which sends no isForce and a time that means nothing."""
    side = committed_side()
    member = FakeChannel()
    side.beat(member, client_id="a@1")
    command = reset(timestamp="0", isForce="false", queueId="1", offset="2")
    assert offsets_of(side.ask(command).body_bytes()) == {1: 2}
    (told,) = of_code(member, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert offsets_of(told.body_bytes()) == {1: 2}


def test_the_broker_moves_a_group_that_pops_unless_it_is_a_slave() -> None:
    """Its members keep no offsets; a slave's would not be those of the set."""
    side = committed_side()
    side.popping.add("g")
    side.ask(reset(queueId="1", offset="2"))
    assert side.offsets.queues("g", "T") == {0: 3, 1: 2}
    side.offsets.become_slave()
    answer = side.ask(reset(queueId="1", offset="1"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
    assert side.offsets.queues("g", "T") == {0: 3, 1: 2}


def test_mqadmin_5_names_no_queue_with_minus_one() -> None:
    side = committed_side()
    side.beat()
    command = reset(queueId="-1", offset="-1")
    assert offsets_of(side.ask(command).body_bytes()) == {0: 1, 1: 1}


@pytest.mark.parametrize(
    ("broker", "queue_id", "topic"), [("elsewhere", 0, "T"), (None, 2, "T"), (None, 0, "U")]
)
def test_a_body_with_a_queue_of_another_place_tells_nobody(
    broker: str | None, queue_id: int, topic: str
) -> None:
    side = committed_side()
    member = FakeChannel()
    side.beat(member, client_id="a@1")
    asked = named(broker or side.config.broker_name, {queue_id: 1}, topic)
    assert side.ask(asked).code == ResponseCode.SYSTEM_ERROR
    assert not of_code(member, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)


def test_reset_without_consumers_online_is_206() -> None:
    # mqadmin then resets the stored offsets itself.
    assert committed_side().ask(reset()).code == ResponseCode.CONSUMER_NOT_ONLINE


def test_reset_needs_a_stored_offset_of_every_queue() -> None:
    side = ConsumeSide()
    side.beat()
    side.offsets.commit("g", "T", 0, 1)
    assert side.ask(reset()).code == ResponseCode.SYSTEM_ERROR


def test_reset_of_an_unknown_topic() -> None:
    assert ConsumeSide().ask(reset(topic="X")).code == ResponseCode.SYSTEM_ERROR


def test_reset_of_too_old_a_client_tells_nobody() -> None:
    side = committed_side()
    new, old = FakeChannel(), FakeChannel()
    side.beat(new, client_id="a@1")
    side.beat(old, client_id="b@2", version=1)
    assert side.ask(reset()).code == ResponseCode.SYSTEM_ERROR
    assert of_code(new, RequestCode.RESET_CONSUMER_CLIENT_OFFSET) == []


# 307 and 309: one client is asked.


def running_info(client_id: str = "1.2.3.4@1") -> RemotingCommand:
    return request(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        consumerGroup="g",
        clientId=client_id,
        jstackEnable="false",
    )


def test_an_operators_signature_stays_here() -> None:
    """A signature covers no request code: a consumer could send it again as another request."""
    side, admin = ConsumeSide(), FakeChannel()
    side.beat()
    signed = running_info()
    Credentials("operator-1", "operator-secret").sign(signed)
    side.handle(signed, admin)
    ((asked, _, _),) = side.channel.asked
    assert asked.ext_fields == running_info().ext_fields


def test_running_info_is_asked_for_and_passed_on() -> None:
    side, admin = ConsumeSide(), FakeChannel()
    side.beat()
    assert side.handle(running_info(), admin, now_ms=5) is None
    ((asked, deadline_ms, answer),) = side.channel.asked
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.ext_fields["clientId"] == "1.2.3.4@1"
    assert deadline_ms == 5 + CALL_MS
    answer(RemotingCommand(0, {"x": "y"}, memoryview(b"info"), remark="fine"))
    (response,) = admin.sent
    assert (response.code, response.opaque, response.remark) == (0, 9, "fine")
    assert (response.ext_fields, response.body_bytes()) == ({"x": "y"}, b"info")


def test_client_that_does_not_answer_is_207() -> None:
    side, admin = ConsumeSide(), FakeChannel()
    side.beat()
    side.handle(running_info(), admin)
    side.channel.asked[0][2](None)
    assert [response.code for response in admin.sent] == [ResponseCode.CONSUME_MSG_TIMEOUT]


def test_client_unknown_or_too_old_is_an_error() -> None:
    side = ConsumeSide()
    assert side.ask(running_info()).code == ResponseCode.SYSTEM_ERROR
    side.beat(version=61)
    assert side.ask(running_info()).code == ResponseCode.SYSTEM_ERROR
    assert side.channel.asked == []


def consume_directly(message_id: str) -> RemotingCommand:
    return request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup="g",
        clientId="1.2.3.4@1",
        msgId=message_id,
    )


def test_message_to_consume_directly_travels_with_the_request() -> None:
    side = ConsumeSide()
    side.beat()
    side.put()
    phy_offset = side.put("TagA")
    side.handle(consume_directly(offset_message_id(STORE_HOST, phy_offset)))
    ((asked, _, _),) = side.channel.asked
    assert asked.ext_fields["brokerName"] == "broker-a"
    (record,) = decode_records(asked.body_bytes())
    assert record.phy_offset == phy_offset


@pytest.mark.parametrize("message_id", ["", "zz", offset_message_id(STORE_HOST, 77)])
def test_message_id_of_nothing_is_an_error(message_id: str) -> None:
    side = ConsumeSide()
    side.beat()
    assert side.ask(consume_directly(message_id)).code == ResponseCode.SYSTEM_ERROR
    assert side.channel.asked == []


def test_number_of_questions_in_flight_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_relay, "CALLS_MAX", 1)
    side = ConsumeSide()
    side.beat()
    assert side.handle(running_info()) is None
    assert side.ask(running_info()).code == ResponseCode.SYSTEM_BUSY
    side.channel.asked[0][2](None)
    assert side.handle(running_info()) is None


# 223: all clients of a group are asked.


def status(**fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {"topic": "T", "group": "g", **fields},
        opaque=9,
    )


def own_view(offset: int) -> RemotingCommand:
    return RemotingCommand(
        0,
        body=b'{"consumerTable":{},"messageQueueTable":'
        b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d}}' % offset,
    )


def two_consumers() -> tuple[ConsumeSide, FakeChannel, list[Callable[..., None]]]:
    side, admin = ConsumeSide(), FakeChannel()
    one, other = FakeChannel(), FakeChannel()
    side.beat(one, client_id="a@1")
    side.beat(other, client_id="b@2")
    assert side.handle(status(), admin, now_ms=5) is None
    asked = [*one.asked, *other.asked]
    assert [deadline_ms for _, deadline_ms, _ in asked] == [5 + STATUS_MS] * 2
    assert {command.code for command, _, _ in asked} == {
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    }
    return side, admin, [answer for _, _, answer in asked]


def test_status_waits_for_the_last_consumer() -> None:
    _, admin, answers = two_consumers()
    answers[1](own_view(7))
    assert admin.sent == []
    answers[0](own_view(5))
    (response,) = admin.sent
    assert response.opaque == 9
    queue = b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d}'
    assert response.body_bytes() == (
        b'{"consumerTable":{"b@2":' + queue % 7 + b',"a@1":' + queue % 5 + b"},"
        b'"messageQueueTable":{}}'
    )


@pytest.mark.parametrize(
    "answer",
    [None, RemotingCommand(1), RemotingCommand(0, body=b"{"), RemotingCommand(0, body=b"[]")],
)
def test_consumer_without_a_good_answer_is_left_out(answer: RemotingCommand | None) -> None:
    _, admin, answers = two_consumers()
    answers[0](answer)
    answers[1](own_view(7))
    (response,) = admin.sent
    assert b"a@1" not in response.body_bytes()
    assert b"b@2" in response.body_bytes()


def test_status_of_one_client_only() -> None:
    side = ConsumeSide()
    one, other = FakeChannel(), FakeChannel()
    side.beat(one, client_id="a@1")
    side.beat(other, client_id="b@2")
    side.handle(status(clientAddr="b@2"))
    assert [len(one.asked), len(other.asked)] == [0, 1]


def test_status_of_nobody_is_an_error() -> None:
    side = ConsumeSide()
    assert side.ask(status()).code == ResponseCode.SYSTEM_ERROR
    side.beat()
    assert side.ask(status(clientAddr="x")).code == ResponseCode.SYSTEM_ERROR
