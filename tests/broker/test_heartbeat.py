from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, heartbeat, request
from support.handlers.sending import FakeChannel, at

from trioha.broker.heartbeat import CLIENT_ID_CHARS_MAX, GROUPS_PER_TURN, HeartbeatProcessor
from trioha.config import BrokerConfig
from trioha.wire.bodies import SubscriptionGroupConfig
from trioha.wire.codes import VERSION_V4_9_8, LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, MessageModel, ProducerData

CPP_BODY = b"""{"clientID":"10.0.0.1@77","consumerDataSet":[{"groupName":"g","consumeType":1,
"messageModel":0,"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subString":"TagA",
"subVersion":"1700000000000","codeSet":["2598919"],"tagsSet":["TagA"]}]}]}"""


def test_heartbeat_is_answered_with_the_brokers_version() -> None:
    response = ConsumeSide().beat()
    assert (response.code, response.version) == (0, VERSION_V4_9_8)
    # 5.x: silence about V2 means it is not spoken here.
    assert response.ext_fields == {}


def test_consumers_group_and_retry_topic_come_into_being() -> None:
    side = ConsumeSide()
    side.beat(group="fresh")
    assert side.groups.get("fresh") is not None
    retry = side.topics.get("%RETRY%fresh")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


def test_retry_topic_has_the_groups_number_of_queues() -> None:
    side = ConsumeSide()
    side.groups.put(SubscriptionGroupConfig("g", retry_queue_nums=3), 0)
    side.beat()
    retry = side.topics.get("%RETRY%g")
    assert retry is not None
    assert retry.read_queue_nums == 3


def test_group_that_may_not_be_created_is_registered_without_retry_topic() -> None:
    side = ConsumeSide(BrokerConfig(auto_create_subscription_group=False))
    assert side.beat(group="fresh").code == 0
    assert side.topics.get("%RETRY%fresh") is None
    assert side.consumers.client_ids("fresh") == ["1.2.3.4@1"]


def test_cpp_heartbeat_with_ordinals_and_texts_is_understood() -> None:
    side = ConsumeSide()
    response = side.ask(
        request(RequestCode.HEART_BEAT, CPP_BODY),
    )
    assert response.code == 0
    group = side.consumers.find("g")
    assert group is not None
    assert group.message_model is MessageModel.BROADCASTING
    assert group.subscriptions["T"].sub_version == 1700000000000


def test_language_and_version_of_the_client_are_kept() -> None:
    side = ConsumeSide()
    side.beat(language=LanguageCode.CPP, version=333)
    ((_, client),) = side.consumers.members("g")
    assert (client.language, client.version) == (LanguageCode.CPP, 333)


def test_one_heartbeat_registers_producers_and_consumers() -> None:
    side = ConsumeSide()
    data = HeartbeatData(
        "a@1",
        producers=[ProducerData("p"), ProducerData("CLIENT_INNER_PRODUCER")],
        consumers=[ConsumerData("g"), ConsumerData("h")],
    )
    assert side.ask(heartbeat(data)).code == 0
    assert side.producers.groups == ["p", "CLIENT_INNER_PRODUCER"]
    assert side.consumers.groups == ["g", "h"]


def test_many_groups_come_into_being_in_several_turns_and_count_after_the_last() -> None:
    side = ConsumeSide()
    names = [f"g{number}" for number in range(GROUPS_PER_TURN + 1)]
    data = HeartbeatData("a@1", [ProducerData("p")], [ConsumerData(name) for name in names])
    command, channel = heartbeat(data), FakeChannel()
    processor = HeartbeatProcessor(side.consumers, side.producers, side.topics, side.groups)
    assert processor.heartbeat(channel, command, at(0)) is None
    assert channel.unfinished == [command]
    assert side.groups.get(names[-2]) is not None
    assert side.groups.get(names[-1]) is None
    assert side.producers.groups == side.consumers.groups == []
    answer = processor.heartbeat(channel, command, at(0))
    assert answer is not None
    assert answer.code == 0
    assert side.groups.get(names[-1]) is not None
    assert side.consumers.groups == names


@pytest.mark.parametrize(
    "data",
    [
        HeartbeatData(""),
        HeartbeatData("x" * (CLIENT_ID_CHARS_MAX + 1)),
        HeartbeatData("a@1", producers=[ProducerData("good"), ProducerData("../bad")]),
        HeartbeatData("a@1", [ProducerData("good")], [ConsumerData("fine"), ConsumerData("a/b")]),
        HeartbeatData("a@1", [ProducerData("good")], [ConsumerData("")]),
        # Its retry topic's name would not fit a record.
        HeartbeatData("a@1", [ProducerData("good")], [ConsumerData("g" * 121)]),
    ],
)
def test_bad_heartbeat_is_refused_as_a_whole(data: HeartbeatData) -> None:
    side = ConsumeSide()
    assert side.ask(heartbeat(data)).code == ResponseCode.SYSTEM_ERROR
    assert side.producers.groups == []
    assert side.consumers.groups == []
    assert side.topics.get("%RETRY%fine") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"clientID":{}}'])
def test_undecodable_heartbeat_is_an_error(body: bytes) -> None:
    side = ConsumeSide()
    assert side.ask(request(RequestCode.HEART_BEAT, body)).code == ResponseCode.SYSTEM_ERROR


def test_unregistering_needs_a_client_id() -> None:
    side = ConsumeSide()
    response = side.ask(request(RequestCode.UNREGISTER_CLIENT, consumerGroup="g"))
    assert response.code == ResponseCode.SYSTEM_ERROR


def test_unregistering_leaves_other_connections_alone() -> None:
    side = ConsumeSide()
    side.beat(client_id="a@1")
    other = FakeChannel()
    side.ask(request(RequestCode.UNREGISTER_CLIENT, clientID="a@1", consumerGroup="g"), other)
    assert side.consumers.client_ids("g") == ["a@1"]


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (b'{"topic":"T","subString":"TagA","expressionType":"TAG"}', ResponseCode.SUCCESS),
        (b'{"topic":"T","subString":"TagA"}', ResponseCode.SUCCESS),
        (
            b'{"topic":"T","subString":"a > 1","expressionType":"SQL92"}',
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            b'{"topic":"T","subString":"x","expressionType":"LUA"}',
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ),
        (b"null", ResponseCode.SUCCESS),
    ],
)
def test_client_config_is_checked_before_a_consumer_starts(
    subscription: bytes, code: ResponseCode
) -> None:
    body = b'{"clientId":"a@1","group":"g","subscriptionData":%b}' % subscription
    response = ConsumeSide().ask(request(RequestCode.CHECK_CLIENT_CONFIG, body))
    assert response.code == code
