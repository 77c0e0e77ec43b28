"""Expected texts are what RocketMQ 4.9.8 writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire import bodies, fastjson
from trioha.wire.bodies import (
    DataVersion,
    LockBatchBody,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
)

NAMES = st.text("abcXYZ%_-@", min_size=1, max_size=12)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
VERSIONS = st.builds(DataVersion, INT64, INT64)
TOPICS = st.builds(
    TopicConfig,
    NAMES,
    INT32,
    INT32,
    st.integers(0, 15),
    st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    INT32,
    st.booleans(),
)
GROUPS = st.builds(
    SubscriptionGroupConfig,
    NAMES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    INT32,
    INT32,
    INT64,
    INT64,
    st.booleans(),
)


def named_topics(topics: list[TopicConfig]) -> dict[str, TopicConfig]:
    return {topic.topic_name: topic for topic in topics}


def test_the_topic_table_looks_as_java_writes_it() -> None:
    table = bodies.topic_table_to_dict(DataVersion(1700000000000, 0), {"T": TopicConfig("T", 4, 4)})
    assert fastjson.dumps(table) == (
        b'{"dataVersion":{"counter":0,"timestamp":1700000000000},"topicConfigTable":{"T":'
        b'{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}'
    )


def test_the_group_table_looks_as_java_writes_it() -> None:
    table = bodies.group_table_to_dict(DataVersion(1, 2), {"g": SubscriptionGroupConfig("g")})
    assert fastjson.dumps(table) == (
        b'{"dataVersion":{"counter":2,"timestamp":1},"subscriptionGroupTable":{"g":{"brokerId":0,'
        b'"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"groupName":"g","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,'
        b'"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    )


@given(VERSIONS, st.lists(TOPICS, max_size=4).map(named_topics))
def test_topic_tables_survive_the_round_trip(
    version: DataVersion, topics: dict[str, TopicConfig]
) -> None:
    data = fastjson.dumps(bodies.topic_table_to_dict(version, topics))
    assert bodies.topic_table_from_dict(fastjson.loads(data)) == (version, topics)


@given(VERSIONS, st.lists(GROUPS, max_size=4))
def test_group_tables_survive_the_round_trip(
    version: DataVersion, groups: list[SubscriptionGroupConfig]
) -> None:
    table = {group.group_name: group for group in groups}
    data = fastjson.dumps(bodies.group_table_to_dict(version, table))
    assert bodies.group_table_from_dict(fastjson.loads(data)) == (version, table)


def test_tables_of_later_versions_are_read_without_their_extras() -> None:
    data = (
        b'{"dataVersion":{"counter":1,"stateVersion":3,"timestamp":5},"mappedFileSize":1,'
        b'"topicConfigTable":{"T":{"attributes":{"+a":"b"},"perm":7,"topicName":"T"}}}'
    )
    version, topics = bodies.topic_table_from_dict(fastjson.loads(data))
    assert version == DataVersion(5, 1)
    assert topics == {"T": TopicConfig("T", perm=7, attributes=(("+a", "b"),))}
    data = b'{"subscriptionGroupTable":{"g":{"groupRetryPolicy":{"type":"X"},"brokerId":"2"}}}'
    assert bodies.group_table_from_dict(fastjson.loads(data)) == (
        DataVersion(),
        {"g": SubscriptionGroupConfig("g", broker_id=2)},
    )


def test_a_data_version_steps_on_with_its_time() -> None:
    assert DataVersion(1, 2).next(9) == DataVersion(9, 3)
    assert DataVersion.decode(DataVersion(1, 2).encode()) == DataVersion(1, 2)


@given(st.dictionaries(NAMES, st.dictionaries(INT32, INT64, max_size=3), max_size=3))
def test_consumer_offsets_survive_the_round_trip(table: dict[str, dict[int, int]]) -> None:
    data = fastjson.dumps(bodies.consumer_offset_table_to_dict(table))
    assert bodies.consumer_offset_table_from_dict(fastjson.loads(data)) == table


def test_consumer_offsets_look_as_java_writes_them_and_quoted_keys_are_read() -> None:
    data = fastjson.dumps(bodies.consumer_offset_table_to_dict({"topic@group": {0: 5, 1: 7}}))
    assert data == b'{"offsetTable":{"topic@group":{0:5,1:7}}}'
    quoted = fastjson.loads(b'{"offsetTable":{"topic@group":{"0":5,"1":7}}}')
    assert bodies.consumer_offset_table_from_dict(quoted) == {"topic@group": {0: 5, 1: 7}}


def test_an_empty_offset_table_is_still_a_table() -> None:
    assert fastjson.dumps(bodies.consumer_offset_table_to_dict({})) == b'{"offsetTable":{}}'
    assert bodies.consumer_offset_table_from_dict({}) == {}


@given(st.dictionaries(st.integers(1, 18), INT64))
def test_delay_offsets_survive_the_round_trip(table: dict[int, int]) -> None:
    data = fastjson.dumps(bodies.delay_offset_table_to_dict(table))
    assert bodies.delay_offset_table_from_dict(fastjson.loads(data)) == table


def test_lock_requests_survive_the_round_trip() -> None:
    body = LockBatchBody("g", "1.2.3.4@5", (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)))
    assert LockBatchBody.decode(body.encode()) == body
    assert body.encode().startswith(b'{"clientId":"1.2.3.4@5","consumerGroup":"g","mqSet":[{"bro')
    assert bodies.decode_locked_queues(bodies.encode_locked_queues(body.queues)) == body.queues


def test_lists_and_tables_look_as_java_writes_them() -> None:
    assert bodies.encode_consumer_list(["a@1"]) == b'{"consumerIdList":["a@1"]}'
    assert bodies.decode_consumer_list(b'{"consumerIdList":["a@1"]}') == ("a@1",)
    assert bodies.encode_topic_list(["T"]) == b'{"topicList":["T"]}'
    assert bodies.encode_topic_list([], "h:1") == b'{"brokerAddr":"h:1","topicList":[]}'
    assert bodies.decode_topic_list(b'{"topicList":["T"]}') == ("T",)
    assert bodies.encode_kv_table({"a": "b"}) == b'{"table":{"a":"b"}}'
    assert bodies.decode_kv_table(b'{"table":{"a":"b"}}') == {"a": "b"}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        b'{"offsetTable":5}',
        b'{"offsetTable":{"a":5}}',
        b'{"offsetTable":{"a":{"x":5}}}',
        b'{"offsetTable":{"a":{"0":[]}}}',
        b'{"offsetTable":{"a":{"0":9223372036854775808}}}',
    ],
)
def test_offsets_of_the_wrong_shape_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        bodies.consumer_offset_table_from_dict(fastjson.loads(body))
