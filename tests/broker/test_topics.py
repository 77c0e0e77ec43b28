from __future__ import annotations

import attrs
import pytest

from trioha.broker.topics import TopicTable, initial_topics
from trioha.config import BrokerConfig
from trioha.errors import CommandError, RemoteProtocolError
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import ResponseCode

CONFIG = BrokerConfig(broker_cluster_name="C", broker_name="broker-a")


def table(config: BrokerConfig = CONFIG, *, topics_max: int = 100) -> TopicTable:
    return TopicTable(config, RecordedEvents(), wall_ms=5, topics_max=topics_max)


@pytest.mark.parametrize(
    ("name", "queues", "perm"),
    [
        ("TBW102", 8, 7),
        ("SELF_TEST_TOPIC", 1, 6),
        ("BenchmarkTest", 1024, 6),
        ("C", 16, 7),
        ("broker-a", 1, 7),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("C_REPLY_TOPIC", 1, 6),
    ],
)
def test_broker_starts_with_the_topics_of_rocketmq(name: str, queues: int, perm: int) -> None:
    topic = table().get(name)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (queues, queues, perm)


def test_initial_topics_follow_the_configuration() -> None:
    config = attrs.evolve(
        CONFIG,
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    )
    topics = initial_topics(config)
    assert "TBW102" not in topics
    assert topics["C"].perm == 1
    assert topics["broker-a"].perm == 1
    assert topics["RMQ_SYS_TRACE_TOPIC"].write_queue_nums == 1


def test_trace_topic_is_absent_by_default() -> None:
    assert table().get("RMQ_SYS_TRACE_TOPIC") is None


def test_topic_is_created_after_its_default_topic() -> None:
    topics = table()
    topic = topics.create_on_send("T", "TBW102", 4, 100)
    assert topic == TopicConfig("T", 4, 4, 6)
    assert topics.get("T") is topic


def test_created_topic_has_no_more_queues_than_its_default_topic() -> None:
    topic = table().create_on_send("T", "TBW102", 100, 100)
    assert topic is not None
    assert topic.write_queue_nums == 8


@pytest.mark.parametrize("asked", [0, -5])
def test_created_topic_has_a_queue_at_least(asked: int) -> None:
    topic = table().create_on_send("T", "TBW102", asked, 100)
    assert topic is not None
    assert topic.write_queue_nums == 1


def test_created_topic_inherits_filter_type_but_not_the_inherit_bit() -> None:
    topics = table()
    topics.put(TopicConfig("Example", 3, 3, 7, "MULTI_TAG"), 1)
    assert topics.create_on_send("T", "Example", 9, 100) == TopicConfig("T", 3, 3, 6, "MULTI_TAG")


def test_default_topic_without_the_inherit_bit_creates_nothing() -> None:
    topics = table()
    topics.put(TopicConfig("Example", perm=6), 1)
    assert topics.create_on_send("T", "Example", 4, 100) is None


def test_unknown_default_topic_creates_nothing() -> None:
    assert table().create_on_send("T", "nothing", 4, 100) is None


def test_tbw102_of_an_older_topics_json_creates_nothing_once_switched_off() -> None:
    topics = table(attrs.evolve(CONFIG, auto_create_topic_enable=False))
    topics.put(TopicConfig("TBW102", 8, 8, 7), 1)
    assert topics.create_on_send("T", "TBW102", 4, 100) is None


def test_existing_topic_is_returned_unchanged() -> None:
    topics = table()
    first = topics.create_on_send("T", "TBW102", 4, 100)
    version = topics.data_version
    assert topics.create_on_send("T", "TBW102", 8, 200) is first
    assert topics.create_internal("T", 8, 6, 200) is first
    assert topics.data_version == version


def test_retry_topic_is_created_as_asked() -> None:
    topic = table().create_internal("%RETRY%g", 2, 6, 100, topic_sys_flag=2)
    assert topic == TopicConfig("%RETRY%g", 2, 2, 6, topic_sys_flag=2)


def test_every_change_makes_a_new_version_and_is_announced() -> None:
    announced: list[TopicConfig | None] = []
    topics = TopicTable(CONFIG, RecordedEvents(), wall_ms=5, on_change=announced.append)
    assert topics.data_version == DataVersion(5, 0)
    created = topics.create_on_send("T", "TBW102", 4, 100)
    assert topics.data_version == DataVersion(100, 1)
    assert topics.dirty
    changed = TopicConfig("T", 16, 16)
    topics.put(changed, 200)
    assert topics.data_version == DataVersion(200, 2)
    assert topics.delete("T", 300)
    assert topics.data_version == DataVersion(300, 3)
    assert announced == [created, changed, None]
    assert topics.get("T") is None


def test_deleting_an_unknown_topic_changes_nothing() -> None:
    topics = table()
    assert not topics.delete("T", 300)
    assert topics.data_version == DataVersion(5, 0)


@pytest.mark.parametrize("name", ["", " ", "a/b", "../x", "a.b", "x" * 128, "a\0b"])
def test_illegal_names_never_get_in(name: str) -> None:
    topics = table()
    with pytest.raises(CommandError):
        topics.create_on_send(name, "TBW102", 4, 1)
    with pytest.raises(CommandError):
        topics.create_internal(name, 1, 6, 1)
    with pytest.raises(CommandError):
        topics.put(TopicConfig(name), 1)
    assert topics.get(name) is None


def test_topics_beyond_the_limit_are_refused_with_the_cure() -> None:
    topics = table(topics_max=len(table().topics) + 1)
    topics.create_on_send("T1", "TBW102", 4, 1)
    with pytest.raises(CommandError, match="its limit; delete unused ones") as refused:
        topics.create_on_send("T2", "TBW102", 4, 1)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(CommandError):
        topics.create_internal("%RETRY%g", 1, 6, 1)
    topics.put(TopicConfig("T1", 9, 9), 1)
    topics.delete("T1", 1)
    assert topics.create_on_send("T2", "TBW102", 4, 1) is not None


def test_table_survives_its_file() -> None:
    topics = table()
    topics.create_on_send("T", "TBW102", 4, 100)
    again = table()
    again.load(topics.encode())
    assert again.topics == topics.topics
    assert again.data_version == topics.data_version
    assert not again.dirty


def test_topics_asked_for_by_the_configuration_survive_an_older_file() -> None:
    topics = table()
    topics.load(b'{"dataVersion":{"counter":3,"timestamp":9},"topicConfigTable":{"T":{"perm":4}}}')
    assert topics.get("C_REPLY_TOPIC") is not None
    topic = topics.get("T")
    assert topic is not None
    assert (topic.topic_name, topic.perm) == ("T", 4)
    assert topics.data_version == DataVersion(9, 3)


def test_broken_table_is_an_error_and_changes_nothing() -> None:
    topics = table()
    before = dict(topics.topics)
    with pytest.raises(RemoteProtocolError):
        topics.load(b"[1,2]")
    assert topics.topics == before


def test_slave_becomes_a_copy_of_its_master() -> None:
    master, slave = table(), table()
    master.create_on_send("T", "TBW102", 4, 100)
    master.delete("BenchmarkTest", 101)
    slave.create_internal("%RETRY%old", 1, 6, 1)
    slave.replace_all(master.data_version, master.topics)
    assert slave.topics == master.topics
    assert slave.data_version == master.data_version
    assert slave.dirty


@pytest.mark.parametrize("name", ["TBW102", "C", "broker-a", "C_REPLY_TOPIC", "rmq_sys_x"])
def test_system_topics_are_known(name: str) -> None:
    assert table().is_system(name)
    assert not table().is_system("T")


def test_changes_are_journalled() -> None:
    events = RecordedEvents()
    topics = TopicTable(CONFIG, events)
    topics.create_on_send("T", "TBW102", 4, 1)
    assert events.of("topic_changed") == [{"topic": "T"}]
