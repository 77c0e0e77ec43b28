from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import WALL_MS

from trioha.broker.admin_topics import QUEUE_NUMS_MAX
from trioha.config import BrokerConfig, BrokerRole
from trioha.wire import fastjson
from trioha.wire.bodies import TopicConfig, decode_topic_list, topic_table_from_dict
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)


def update(**fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": "New",
            "defaultTopic": "TBW102",
            "readQueueNums": "8",
            "writeQueueNums": "6",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "true",
            **fields,
        },
    )


def delete(topic: str) -> RemotingCommand:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


def test_topic_is_created_and_order_ignored() -> None:
    side = ConsumeSide()
    side.topic_changes.clear()
    assert side.ask(update()).code == 0
    assert side.topics.get("New") == TopicConfig("New", 8, 6)
    assert side.topic_changes == [TopicConfig("New", 8, 6)]  # name servers learn it at once


def test_attributes_are_kept_and_given_back() -> None:
    side = ConsumeSide()
    assert side.ask(update(attributes="+message.type=FIFO")).code == 0
    assert side.ask(update(readQueueNums="9")).code == 0
    answer = side.ask(request(RequestCode.GET_TOPIC_CONFIG, topic="New"))
    fields = fastjson.loads(answer.body_bytes())
    assert isinstance(fields, dict)
    assert fields["attributes"] == {"message.type": "FIFO"}
    assert fields["readQueueNums"] == 9
    _, topics = topic_table_from_dict(fastjson.loads(side.topics.encode()))
    assert topics["New"].attributes == (("message.type", "FIFO"),)
    refused = side.ask(update(attributes="+message.type=SIDEWAYS", perm="2"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert side.topics.get("New") == topics["New"]
    side.ask(update(attributes="-message.type"))
    assert b"attributes" not in side.topics.encode()


def test_topic_is_changed() -> None:
    side = ConsumeSide()
    side.ask(update(topic="T", perm="4", topicFilterType="MULTI_TAG"))
    topic = side.topics.get("T")
    assert topic is not None
    assert (topic.perm, topic.read_queue_nums, topic.topic_filter_type) == (4, 8, "MULTI_TAG")


@pytest.mark.parametrize(
    "topic",
    ["", " ", "../x", "/etc", "a\0b", "x" * 128, "a.b", "TBW102", "DefaultCluster", "broker-a"],
)
@pytest.mark.parametrize("build", [lambda topic: update(topic=topic), delete])
def test_illegal_and_system_topics_are_neither_changed_nor_deleted(
    build: object, topic: str
) -> None:
    side = ConsumeSide()
    before = dict(side.topics.topics)
    assert callable(build)
    assert side.ask(build(topic)).code == ResponseCode.SYSTEM_ERROR
    assert side.topics.topics == before


@pytest.mark.parametrize(
    "fields",
    [
        {"readQueueNums": "0"},
        {"writeQueueNums": str(QUEUE_NUMS_MAX + 1)},
        {"readQueueNums": "-1"},
        {"perm": "16"},
        {"perm": "-1"},
        {"perm": None},
        {"topicFilterType": "BOTH"},
    ],
)
def test_values_that_make_no_topic_are_refused(fields: dict[str, ExtValue]) -> None:
    side = ConsumeSide()
    assert side.ask(update(**fields)).code == ResponseCode.SYSTEM_ERROR
    assert side.topics.get("New") is None


@pytest.mark.parametrize("command", [update(), delete("T")])
def test_slave_changes_no_topic(command: RemotingCommand) -> None:
    side = ConsumeSide(SLAVE)
    response = side.ask(command)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "slave" in (response.remark or "")
    assert side.topics.get("T") is not None


def test_deleting_a_topic_takes_its_queues_and_progress_along() -> None:
    side = ConsumeSide()
    side.put()
    side.offsets.commit("g", "T", 0, 1)
    assert side.ask(delete("T")).code == 0
    assert side.topics.get("T") is None
    assert side.store.max_offset_in_queue("T", 0) == 0
    assert side.offsets.query("g", "T", 0) == -1
    assert side.ask(delete("T")).code == 0  # again is fine


def test_slaves_get_the_whole_table() -> None:
    side = ConsumeSide()
    response = side.ask(request(RequestCode.GET_ALL_TOPIC_CONFIG))
    version, table = topic_table_from_dict(fastjson.loads(response.body_bytes()))
    assert version == side.topics.data_version
    assert table == side.topics.topics


def test_topic_stats_have_objects_as_keys() -> None:
    side = ConsumeSide()
    side.topics.put(TopicConfig("T", 1, 2), WALL_MS)
    side.put()
    response = side.ask(request(RequestCode.GET_TOPIC_STATS_INFO, topic="T"))
    assert response.body_bytes() == (
        b'{"offsetTable":{'
        b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:'
        b'{"lastUpdateTimestamp":%d,"maxOffset":1,"minOffset":0},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}' % WALL_MS
    )


@pytest.mark.parametrize("code", [RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG])
def test_unknown_topic_is_17_and_not_3(code: RequestCode) -> None:
    assert ConsumeSide().ask(request(code, topic="X")).code == ResponseCode.TOPIC_NOT_EXIST


def test_topic_config_for_5x_tools() -> None:
    response = ConsumeSide().ask(request(RequestCode.GET_TOPIC_CONFIG, topic="T", lo="true"))
    assert TopicConfig.from_dict(fastjson.loads(response.body_bytes())) == TopicConfig("T", 4, 4)


def test_system_topics() -> None:
    response = ConsumeSide().ask(request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    topics = decode_topic_list(response.body_bytes())
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(topics)
    assert "T" not in topics
