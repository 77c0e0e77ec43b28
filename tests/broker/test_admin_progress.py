from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import WALL_MS

from trioha.broker import admin_progress
from trioha.config import BrokerConfig, BrokerRole
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.json_fields import list_of, object_of
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)


def body_of(response: RemotingCommand) -> dict[str, object]:
    assert response.code == 0, response.remark
    return dict(object_of(fastjson.loads(response.body_bytes()), "body"))


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


def lagging_side(config: BrokerConfig | None = None) -> ConsumeSide:
    side = ConsumeSide(config)
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


# All groups at once.


def broker_stats(side: ConsumeSide, **fields: ExtValue) -> dict[str, object]:
    return body_of(side.ask(RemotingCommand(RequestCode.GET_BROKER_CONSUME_STATS, dict(fields))))


def grouped_side() -> ConsumeSide:
    side = lagging_side()
    for name in ("g", "idle"):
        side.groups.put(SubscriptionGroupConfig(name), WALL_MS)
    # Progress of a group that is no more does not show.
    side.offsets.commit("gone", "T", 0, 1)
    return side


def test_progress_of_all_groups_and_the_sum_of_their_lag() -> None:
    body = broker_stats(grouped_side(), isOrder="false")
    assert body["brokerAddr"] == f"{BrokerConfig().broker_ip1}:{BrokerConfig().listen_port}"
    assert body["totalDiff"] == 1
    groups: dict[str, list[object]] = {}
    for entry in list_of(body["consumeStatsList"], "list"):
        groups |= {name: list_of(one, "stats") for name, one in object_of(entry, "entry").items()}
    assert groups["idle"] == []
    assert "gone" not in groups
    read, unread = (object_of(one, "stats")["offsetTable"] for one in groups["g"])
    assert isinstance(read, fastjson.ObjectKeyMap)
    ((queue, progress),) = read
    assert MessageQueue.from_dict(queue) == MessageQueue("T", "broker-a", 0)
    assert object_of(progress, "progress")["consumerOffset"] == 2
    assert isinstance(unread, fastjson.ObjectKeyMap)


def ranges_of(side: ConsumeSide, group: str, **fields: ExtValue) -> list[dict[str, object]]:
    """Return, for each queue of a group, the fields that RocketMQ's tools do not know."""
    body = broker_stats(side, isOrder="false", **fields)
    found: list[dict[str, object]] = []
    for entry in list_of(body["consumeStatsList"], "list"):
        for stats_ in list_of(object_of(entry, "entry").get(group, []), group):
            table = object_of(stats_, "stats")["offsetTable"]
            assert isinstance(table, fastjson.ObjectKeyMap)
            for _, offsets in table:
                told = dict(object_of(offsets, "offsets"))
                found.append({key: told[key] for key in RANGE & told.keys()})
    return found


RANGE = {"minOffset", "nextTimestamp"}


def test_the_range_that_a_queue_still_holds_is_told_to_who_asks_for_it() -> None:
    side = grouped_side()
    side.topics.put(TopicConfig("T", 2, 2), WALL_MS)
    # T has a lag in queue 0, and no offset in queue 1; U has no message.
    assert ranges_of(side, "g", ranges="true") == [
        {"minOffset": 0, "nextTimestamp": WALL_MS + 2_000},
        {},
        {"minOffset": 0},
    ]
    assert ranges_of(side, "g") == [{}, {}, {}]


def test_progress_of_all_groups_in_ordered_topics_only() -> None:
    side = grouped_side()
    assert broker_stats(side, isOrder="true")["totalDiff"] == 0
    side.topics.put(TopicConfig("T", 1, 1, order=True), WALL_MS)
    assert broker_stats(side, isOrder="true")["totalDiff"] == 1


def test_more_queues_than_an_answer_should_hold_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_progress, "QUEUES_SHOWN_MAX", 1)
    response = grouped_side().ask(request(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"))
    assert response.code == ResponseCode.SYSTEM_ERROR


# One group set where another is.


def clone(side: ConsumeSide, **fields: ExtValue) -> int:
    fields = {"srcGroup": "g", "destGroup": "twin", "offline": "false", **fields}
    return side.ask(RemotingCommand(RequestCode.CLONE_GROUP_OFFSET, fields)).code


def test_progress_is_cloned_in_all_topics_or_in_one() -> None:
    side = lagging_side()
    side.offsets.commit("g", "gone", 0, 9)
    assert clone(side) == 0
    assert side.offsets.query("twin", "T", 0) == 2
    assert side.offsets.query("twin", "U", 0) == 0
    assert side.offsets.query("twin", "gone", 0) == -1
    assert clone(side, destGroup="other", topic="T") == 0
    assert side.offsets.query("other", "T", 0) == 2
    assert side.offsets.query("other", "U", 0) == -1


def progress_of_all(side: ConsumeSide) -> set[object]:
    """Return the groups in the answer to request 317."""
    body = body_of(side.ask(request(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")))
    groups = list_of(body["consumeStatsList"], "groups")
    return {name for one in groups for name in object_of(one, "group")}


def test_group_exists_once_progress_is_cloned_to_it() -> None:
    side = lagging_side()
    assert clone(side, srcGroup="absent", destGroup="empty", topic="T") == 0
    assert clone(side) == 0
    assert progress_of_all(side) >= {"twin"}
    assert "empty" not in progress_of_all(side)


def test_group_that_may_not_be_created_gets_progress_only() -> None:
    side = lagging_side(BrokerConfig(auto_create_subscription_group=False))
    assert clone(side) == 0
    assert side.offsets.query("twin", "T", 0) == 2
    assert "twin" not in progress_of_all(side)


def test_topic_that_the_group_left_is_cloned_only_if_asked() -> None:
    side = lagging_side()
    side.beat(subscriptions=[SubscriptionData("U")])
    assert clone(side) == 0
    assert side.offsets.query("twin", "T", 0) == -1
    assert clone(side, offline="true") == 0
    assert side.offsets.query("twin", "T", 0) == 2


def test_slave_clones_nothing() -> None:
    assert clone(ConsumeSide(SLAVE)) == ResponseCode.SYSTEM_ERROR


def test_clone_to_no_proper_name_is_refused() -> None:
    assert clone(lagging_side(), destGroup="../g") == ResponseCode.SYSTEM_ERROR
