from __future__ import annotations

from collections.abc import Callable

import pytest
from support.handlers.consuming import ConsumeSide, request

from trioha.broker.slave_tables import SlaveTables
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import RemoteProtocolError
from trioha.wire.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import RequestCode

# Answers of a 4.9.8 broker, with the fields that 5.x adds.
JAVA_TOPICS = b"""{"dataVersion":{"counter":3,"timestamp":1700,"stateVersion":0},
"topicConfigTable":{"Orders":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,
"topicFilterType":"SINGLE_TAG","topicName":"Orders","topicSysFlag":0,"writeQueueNums":4}},
"topicQueueMappingInfoMap":{}}"""
JAVA_GROUPS = b"""{"dataVersion":{"counter":2,"timestamp":1700},"forbiddenTable":{},
"subscriptionGroupTable":{"g":{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,
"consumeFromMinEnable":true,"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},
"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,
"whichBrokerWhenConsumeSlowly":1}}}"""


class Slave(ConsumeSide):
    def __init__(self) -> None:
        super().__init__(BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1))
        self.tables = SlaveTables(self.topics, self.groups, self.offsets, self.schedule)

    def everything(self) -> tuple[object, ...]:
        return (
            dict(self.topics.topics),
            self.topics.data_version,
            dict(self.groups.groups),
            self.groups.data_version,
            self.offsets.encode(),
            self.schedule.encode(),
        )


def test_topics_of_a_java_master_are_taken() -> None:
    slave = Slave()
    assert slave.tables.apply_topics(JAVA_TOPICS)
    assert slave.topics.topics == {"Orders": TopicConfig("Orders", 4, 4)}
    assert slave.topics.data_version == DataVersion(1700, 3)
    assert slave.topics.dirty


def test_equal_versions_leave_the_table_alone() -> None:
    slave = Slave()
    slave.tables.apply_topics(JAVA_TOPICS)
    slave.tables.apply_groups(JAVA_GROUPS)
    slave.topics.dirty = slave.groups.dirty = False
    assert not slave.tables.apply_topics(JAVA_TOPICS)
    assert not slave.tables.apply_groups(JAVA_GROUPS)
    assert not slave.topics.dirty
    assert not slave.groups.dirty


def test_groups_of_a_java_master_are_taken() -> None:
    slave = Slave()
    assert slave.tables.apply_groups(JAVA_GROUPS)
    assert slave.groups.groups == {"g": SubscriptionGroupConfig("g", retry_max_times=3)}
    assert slave.groups.data_version == DataVersion(1700, 2)


def test_everything_a_trioha_master_answers_is_taken() -> None:
    master, slave = ConsumeSide(), Slave()
    master.beat(group="fresh")
    master.offsets.commit("fresh", "T", 0, 5)
    master.schedule.load(b'{"offsetTable":{3:12}}')
    for code, apply in (
        (RequestCode.GET_ALL_TOPIC_CONFIG, slave.tables.apply_topics),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, slave.tables.apply_offsets),
        (RequestCode.GET_ALL_DELAY_OFFSET, slave.tables.apply_delay_offsets),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, slave.tables.apply_groups),
    ):
        apply(master.ask(request(code)).body_bytes())
    assert slave.topics.topics == master.topics.topics
    assert slave.groups.groups == master.groups.groups
    assert slave.offsets.encode() == master.offsets.encode()
    assert slave.schedule.encode() == master.schedule.encode()
    assert slave.schedule.dirty


def test_offsets_are_merged_not_replaced() -> None:
    slave = Slave()
    slave.offsets.commit("g", "T", 0, 9)
    slave.tables.apply_offsets(b'{"offsetTable":{"T@g":{0:5,1:6}}}')
    assert slave.offsets.queues("g", "T") == {0: 9, 1: 6}
    (commit,) = slave.tables.commits_to_tell()
    assert commit.offset == 9
    slave.tables.told(commit)
    assert slave.tables.commits_to_tell() == []


def test_commits_in_a_topic_the_master_has_deleted_are_not_told() -> None:
    slave = Slave()
    slave.offsets.commit("g", "T", 0, 9)
    slave.offsets.commit("g", "Orders", 0, 9)
    slave.tables.apply_topics(JAVA_TOPICS)
    assert [commit.topic for commit in slave.tables.commits_to_tell()] == ["Orders"]


def test_name_that_would_leave_the_store_is_left_out() -> None:
    slave = Slave()
    names = ["../x", "/etc/x", "..", "a\\\\b", "", "Good", "with.dot"]
    topics = ",".join(f'"{name}":{{"perm":6}}' for name in names)
    slave.tables.apply_topics(
        f'{{"dataVersion":{{"counter":1,"timestamp":1}},"topicConfigTable":{{{topics}}}}}'.encode()
    )
    assert list(slave.topics.topics) == ["Good", "with.dot"]


def test_topic_is_known_by_the_key_it_stands_under() -> None:
    slave = Slave()
    slave.tables.apply_topics(
        b'{"dataVersion":{"counter":1,"timestamp":1},'
        b'"topicConfigTable":{"Good":{"topicName":"../x"}}}'
    )
    assert slave.topics.topics["Good"].topic_name == "Good"


BROKEN = [
    b"",
    b"null",
    b"[]",
    b'{"dataVersion":{}',
    b"{}",
    b'{"topicConfigTable":[],"subscriptionGroupTable":[],"offsetTable":[]}',
    b'{"topicConfigTable":{"A":{"perm":6},"B":5},"subscriptionGroupTable":{"a":{},"b":5},'
    b'"offsetTable":{"T@g":{0:5},"U@g":5}}',
    b'{"topicConfigTable":{"A":{"perm":"x"}},"subscriptionGroupTable":{"a":{"brokerId":"x"}},'
    b'"offsetTable":{"T@g":{0:"x"}}}',
    JAVA_TOPICS[:-9].replace(b"topicConfigTable", b"other"),
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", BROKEN)
@pytest.mark.parametrize(
    "verb",
    [
        SlaveTables.apply_topics,
        SlaveTables.apply_groups,
        SlaveTables.apply_offsets,
        SlaveTables.apply_delay_offsets,
    ],
)
def test_broken_answer_changes_nothing(
    verb: Callable[[SlaveTables, bytes], object], body: bytes
) -> None:
    slave = Slave()
    before = slave.everything()
    try:
        verb(slave.tables, body)
    except RemoteProtocolError:
        pass
    else:
        # No offsets at all is an answer, too.
        assert body in (b"null", b"{}")
        assert verb in (SlaveTables.apply_offsets, SlaveTables.apply_delay_offsets)
    assert slave.everything() == before


def test_empty_topic_table_is_no_answer() -> None:
    slave = Slave()
    with pytest.raises(RemoteProtocolError, match="empty"):
        slave.tables.apply_topics(b'{"dataVersion":{},"topicConfigTable":{}}')


@pytest.mark.parametrize("numbers", ["readQueueNums", "writeQueueNums"])
def test_a_topic_of_billions_of_queues_is_no_answer(numbers: str) -> None:
    slave = Slave()
    before = slave.everything()
    body = JAVA_TOPICS.replace(f'"{numbers}":4'.encode(), f'"{numbers}":2147483647'.encode())
    with pytest.raises(RemoteProtocolError, match="the master's topic Orders has"):
        slave.tables.apply_topics(body)
    assert slave.everything() == before
