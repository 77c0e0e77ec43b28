from __future__ import annotations

import pytest
from support.consuming import ConsumeSide, producer_heartbeat, request
from support.sending import WALL_MS

from trioha.config import BrokerConfig, BrokerRole
from trioha.wire import fastjson
from trioha.wire.bodies import (
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
    group_table_from_dict,
)
from trioha.wire.codes import LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.json_fields import list_of, object_of
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)


def body_of(response: RemotingCommand) -> dict[str, object]:
    assert response.code == 0, response.remark
    return dict(object_of(fastjson.loads(response.body_bytes()), "body"))


def update(group: SubscriptionGroupConfig) -> RemotingCommand:
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, fastjson.dumps(group.to_dict()))


# The groups.


def test_group_is_created_and_changed() -> None:
    side = ConsumeSide()
    for retry_max_times in (3, 4):
        group = SubscriptionGroupConfig("g", retry_max_times=retry_max_times)
        assert side.ask(update(group)).code == 0
        assert side.groups.get("g") == group


def test_group_body_of_5x_with_more_keys_is_taken() -> None:
    side = ConsumeSide()
    body = b'{"groupName":"g","attributes":{},"groupRetryPolicy":{"type":"X"},"retryMaxTimes":2}'
    assert side.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
    group = side.groups.get("g")
    assert group is not None
    assert group.retry_max_times == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"groupName":"../g"}', b'{"groupName":"g","retryQueueNums":99999}'],
)
def test_body_that_makes_no_group_is_refused(body: bytes) -> None:
    side = ConsumeSide()
    response = side.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert side.groups.get("g") is None


@pytest.mark.parametrize(
    "command",
    [
        update(SubscriptionGroupConfig("g")),
        request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="TOOLS_CONSUMER"),
    ],
)
def test_slave_changes_no_group(command: RemotingCommand) -> None:
    side = ConsumeSide(SLAVE)
    before = dict(side.groups.groups)
    assert side.ask(command).code == ResponseCode.SYSTEM_ERROR
    assert side.groups.groups == before


@pytest.mark.parametrize(
    ("field", "left"), [({}, 5), ({"removeOffset": "true"}, -1), ({"cleanOffset": "true"}, -1)]
)
def test_group_is_deleted_with_its_progress_if_asked(field: dict[str, ExtValue], left: int) -> None:
    side = ConsumeSide()
    side.groups.put(SubscriptionGroupConfig("g"), WALL_MS)
    side.offsets.commit("g", "T", 0, 5)
    command = RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", **field})
    assert side.ask(command).code == 0
    assert side.groups.get("g") is None
    assert side.offsets.query("g", "T", 0) == left


def test_slaves_get_the_whole_table() -> None:
    side = ConsumeSide()
    body = body_of(side.ask(request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)))
    version, table = group_table_from_dict(body)
    assert (version, table) == (side.groups.data_version, side.groups.groups)


def test_group_config_for_5x_tools() -> None:
    side = ConsumeSide()
    body = body_of(
        side.ask(request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="TOOLS_CONSUMER"))
    )
    assert body["groupName"] == "TOOLS_CONSUMER"
    response = side.ask(request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="x"))
    assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# Who is connected.


def test_consumer_connections() -> None:
    side = ConsumeSide()
    side.beat(language=LanguageCode.CPP, version=333)
    body = body_of(side.ask(request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")))
    assert body == {
        "connectionSet": [
            {
                "clientAddr": "127.0.0.1:5555",
                "clientId": "1.2.3.4@1",
                "language": "CPP",
                "version": 333,
            }
        ],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {"T": SubscriptionData("T", sub_version=5).to_dict()},
    }


def test_consumers_offline_are_206() -> None:
    response = ConsumeSide().ask(
        request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    )
    assert response.code == ResponseCode.CONSUMER_NOT_ONLINE


def test_producer_connections() -> None:
    side = ConsumeSide()
    command = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
    assert side.ask(command).code == ResponseCode.SYSTEM_ERROR
    side.ask(producer_heartbeat())
    (connection,) = list_of(body_of(side.ask(command))["connectionSet"], "connectionSet")
    assert object_of(connection, "connection")["clientId"] == "1.2.3.4@1"


# How far they are.


def stats(side: ConsumeSide, **fields: ExtValue) -> dict[MessageQueue, dict[str, object]]:
    command = RemotingCommand(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", **fields})
    table = body_of(side.ask(command))["offsetTable"]
    if not table:
        return {}
    assert isinstance(table, fastjson.ObjectKeyMap)
    return {
        MessageQueue.from_dict(queue): dict(object_of(offsets, "offsets"))
        for queue, offsets in table
    }


def lagging_side() -> ConsumeSide:
    side = ConsumeSide()
    side.topics.put(TopicConfig("T", 1, 1), WALL_MS)
    side.topics.put(TopicConfig("U", 1, 1), WALL_MS)
    for second in range(3):
        side.put(wall_ms=WALL_MS + second * 1_000)
    side.offsets.commit("g", "T", 0, 2)
    side.offsets.commit("g", "U", 0, 0)
    return side


def test_progress_beside_the_end_of_the_queue() -> None:
    assert stats(lagging_side(), topic="T") == {
        MessageQueue("T", "broker-a", 0): {
            "brokerOffset": 3,
            "consumerOffset": 2,
            "lastTimestamp": WALL_MS + 1_000,
        }
    }


def test_progress_in_all_topics_or_a_list_of_them() -> None:
    side = lagging_side()
    assert {queue.topic for queue in stats(side)} == {"T", "U"}
    assert {queue.topic for queue in stats(side, topicList="U;")} == {"U"}


def test_topic_the_group_left_or_that_is_gone_counts_no_more() -> None:
    side = lagging_side()
    side.beat(subscriptions=[SubscriptionData("T")])
    assert {queue.topic for queue in stats(side)} == {"T"}
    side.topics.delete("T", WALL_MS)
    assert stats(side) == {}


def test_groups_of_a_topic_are_those_connected_and_those_with_progress() -> None:
    side = ConsumeSide()
    side.beat(group="connected")
    side.offsets.commit("absent", "T", 0, 1)
    side.offsets.commit("connected", "T", 0, 1)
    body = body_of(side.ask(request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")))
    assert body == {"groupList": ["connected", "absent"]}


def test_time_span_of_a_group_that_lags() -> None:
    side = lagging_side()
    command = request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
    body = body_of(side.ask(command, now_ms=10_000))
    assert body["consumeTimeSpanSet"] == [
        {
            "consumeTimeStamp": WALL_MS + 1_000,
            "delayTime": 8_000,
            "maxTimeStamp": WALL_MS + 2_000,
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
            "minTimeStamp": WALL_MS,
        }
    ]


def test_time_span_of_a_group_that_has_everything() -> None:
    side = lagging_side()
    side.offsets.commit("g", "T", 0, 3)
    command = request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
    (span,) = list_of(body_of(side.ask(command))["consumeTimeSpanSet"], "set")
    assert object_of(span, "span")["delayTime"] == 0
    command = request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="X", group="g")
    assert side.ask(command).code == ResponseCode.TOPIC_NOT_EXIST
