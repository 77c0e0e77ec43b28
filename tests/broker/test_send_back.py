from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import BORN_HOST, STORE_HOST, WALL_MS, ProduceSide, at, send_v2

from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError, RemoteProtocolError
from trioha.store.interface import PutMessage
from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.message_id import offset_message_id
from trioha.wire.names import SCHEDULE_TOPIC
from trioha.wire.properties import decode_properties
from trioha.wire.remoting_command import ExtValue, RemotingCommand


def side_with_message(config: BrokerConfig | None = None) -> ProduceSide:
    side = ProduceSide(config)
    side.send(send_v2(properties="TAGS\x01TagA\x02KEYS\x01k1\x02UNIQ_KEY\x01U"))
    return side


def back(side: ProduceSide, *, version: int = 409, **fields: ExtValue) -> RemotingCommand:
    return back_with(side, fields, version)


def back_with(
    side: ProduceSide, fields: dict[str, ExtValue], version: int = 409
) -> RemotingCommand:
    ext: dict[str, ExtValue] = {"offset": "0", "group": "g", "delayLevel": "0"}
    ext.update(fields)
    request = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext, version=version)
    response = side.back.send_back(side.channel, request, at())
    assert response is not None
    return response


def refusal(side: ProduceSide, **fields: ExtValue) -> int:
    stored = len(side.store.messages)
    with pytest.raises(CommandError) as refused:
        back_with(side, fields)
    assert len(side.store.messages) == stored
    return refused.value.code


def last(side: ProduceSide) -> PutMessage:
    return side.store.messages[-1][0]


def properties_of(side: ProduceSide) -> dict[str, str]:
    return decode_properties(last(side).properties)


def test_message_is_copied_to_the_retry_topic_by_way_of_level_three() -> None:
    side = side_with_message()
    assert back(side).code == 0
    message = last(side)
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, 2)
    assert message.tags_code == WALL_MS + 10_000
    assert message.reconsume_times == 1
    assert (message.flag, message.born_timestamp) == (7, 1000)
    assert (message.born_host, message.store_host) == (BORN_HOST, STORE_HOST)
    assert bytes(message.body) == b"hello"
    assert properties_of(side) == {
        "TAGS": "TagA",
        "KEYS": "k1",
        "UNIQ_KEY": "U",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": offset_message_id(STORE_HOST, 0),
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert side.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


def test_redelivered_message_reaches_the_retry_topic() -> None:
    side = side_with_message()
    back(side)
    side.schedule.run_due(at(10_000), 10)
    assert (last(side).topic, last(side).queue_id) == ("%RETRY%g", 0)
    assert last(side).reconsume_times == 1


def test_each_attempt_waits_one_level_longer_and_remembers_the_first() -> None:
    side = side_with_message()
    origin = offset_message_id(STORE_HOST, 0)
    now_ms = 0
    for attempt in range(16):
        back(side, offset=side.store.messages[-1][1].phy_offset)
        level = min(18, 3 + attempt)
        assert last(side).queue_id == level - 1
        now_ms += side.levels.delays_ms[level - 1]
        side.schedule.run_due(at(now_ms), 10)
        assert last(side).topic == "%RETRY%g"
        assert last(side).reconsume_times == attempt + 1
        assert properties_of(side)["ORIGIN_MESSAGE_ID"] == origin
        assert properties_of(side)["RETRY_TOPIC"] == "T"
    back(side, offset=side.store.messages[-1][1].phy_offset)
    assert last(side).topic == "%DLQ%g"
    assert last(side).reconsume_times == 17


def test_level_asked_for_is_the_level_given() -> None:
    side = side_with_message()
    back(side, delayLevel="5")
    assert last(side).queue_id == 4


def test_negative_level_means_dead_letters_without_delay() -> None:
    side = side_with_message()
    back(side, delayLevel="-1")
    assert (last(side).topic, last(side).queue_id) == ("%DLQ%g", 0)
    assert "DELAY" not in properties_of(side)
    assert properties_of(side)["RETRY_TOPIC"] == "T"
    assert side.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)


@pytest.mark.parametrize(("version", "dead"), [(121, True), (120, False)])
def test_limit_of_the_header_counts_from_version_121(version: int, dead: bool) -> None:
    side = side_with_message()
    back(side, version=version, maxReconsumeTimes="0")
    assert (last(side).topic == "%DLQ%g") is dead


def test_limit_of_the_group_counts_without_one_in_the_header() -> None:
    side = side_with_message()
    side.groups.put(SubscriptionGroupConfig("g", retry_max_times=0), 1)
    back(side)
    assert last(side).topic == "%DLQ%g"


def test_unknown_group_is_refused() -> None:
    side = side_with_message(BrokerConfig(auto_create_subscription_group=False))
    assert refusal(side) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_read_only_broker_refuses() -> None:
    side = side_with_message(BrokerConfig(broker_permission=4))
    assert refusal(side) == ResponseCode.NO_PERMISSION


def test_read_only_retry_topic_refuses() -> None:
    side = side_with_message()
    side.topics.put(TopicConfig("%RETRY%g", 1, 1, perm=4), 1)
    assert refusal(side) == ResponseCode.NO_PERMISSION


def test_group_without_retry_queues_drops_the_message_with_success() -> None:
    side = side_with_message()
    side.groups.put(SubscriptionGroupConfig("g", retry_queue_nums=0), 1)
    assert back(side).code == 0
    assert len(side.store.messages) == 1


@pytest.mark.parametrize("offset", ["5", "99999", "-1"])
def test_offset_without_a_record_is_a_system_error(offset: str) -> None:
    assert refusal(side_with_message(), offset=offset) == ResponseCode.SYSTEM_ERROR


def test_damaged_record_is_a_system_error() -> None:
    side = side_with_message()
    side.store.records[0] = side.store.records[0][:-1]
    assert refusal(side) == ResponseCode.SYSTEM_ERROR


def test_full_disk_is_a_system_error_so_that_the_client_sends_again() -> None:
    side = side_with_message()
    side.store.writable = False
    assert refusal(side) == ResponseCode.SYSTEM_ERROR


def test_slave_refuses() -> None:
    side = side_with_message()
    side.pipeline.role = BrokerRole.SLAVE
    assert refusal(side) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert side.topics.get("%RETRY%g") is None


@pytest.mark.parametrize("name", ["offset", "group", "delayLevel"])
def test_missing_field_is_the_peers_error(name: str) -> None:
    with pytest.raises(RemoteProtocolError, match=name):
        back_with(side_with_message(), {name: None})


def test_queue_is_one_that_the_retry_topic_has() -> None:
    side = side_with_message()
    side.topics.put(TopicConfig("%RETRY%g", 2, 2), 1)
    side.groups.put(SubscriptionGroupConfig("g", retry_queue_nums=8), 1)
    queues = set()
    for _ in range(30):
        back(side)
        queues.add(properties_of(side)["REAL_QID"])
    assert queues == {"0", "1"}


def test_sync_master_does_not_wait_for_its_slave() -> None:
    side = side_with_message()
    side.pipeline.role = BrokerRole.SYNC_MASTER
    side.replicas.available = False
    assert back(side).code == 0
    assert side.pipeline.waiter_count == 0


def test_unit_mode_marks_the_retry_topic() -> None:
    side = side_with_message()
    back(side, unitMode="true")
    topic = side.topics.get("%RETRY%g")
    assert topic is not None
    assert attrs.asdict(topic)["topic_sys_flag"] == 2


def test_handler_is_for_code_36() -> None:
    assert list(ProduceSide().back.handlers()) == [36]
