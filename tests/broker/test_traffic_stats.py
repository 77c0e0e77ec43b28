"""Request 315: what went through topics and groups in the last minute, hour and day."""

from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, pull, request
from support.handlers.popping import PopSide
from support.handlers.sending import WALL_MS, at

from trioha.broker.traffic_stats import (
    BROKER_GETS,
    BROKER_PUTS,
    GROUP_BYTES,
    GROUP_GETS,
    SENT_BACK,
    TOPIC_BYTES,
    TOPIC_PUTS,
)
from trioha.wire import fastjson
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import object_of
from trioha.wire.remoting_command import RemotingCommand

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
WINDOWS = ("statsMinute", "statsHour", "statsDay")


class Watched(ConsumeSide):
    """Topic T with one queue, sampled every ten seconds as a node does."""

    def __init__(self) -> None:
        super().__init__()
        self.topics.put(TopicConfig("T", 1, 1), WALL_MS)
        self.now_ms = 0
        self.let_pass(10_000)

    def let_pass(self, elapsed_ms: int) -> None:
        for _ in range(elapsed_ms // 10_000):
            self.now_ms += 10_000
            self.admin.traffic.sample(at(self.now_ms))

    def put_some(self, count: int) -> None:
        for _ in range(count):
            self.put(queue_id=0)

    def answer(self, stats: str, key: str) -> RemotingCommand:
        command = request(RequestCode.VIEW_BROKER_STATS_DATA, statsName=stats, statsKey=key)
        return self.ask(command, now_ms=self.now_ms)

    def sums(self, stats: str, key: str) -> list[object]:
        body = object_of(fastjson.loads(self.answer(stats, key).body_bytes()), "body")
        return [object_of(body[window], window)["sum"] for window in WINDOWS]


def test_messages_of_a_topic_are_counted_in_three_windows() -> None:
    side = Watched()
    side.put_some(6)
    assert side.sums(TOPIC_PUTS, "T") == [6, 6, 6]
    side.let_pass(2 * MINUTE_MS)
    assert side.sums(TOPIC_PUTS, "T") == [0, 6, 6]
    side.put_some(3)
    assert side.sums(TOPIC_PUTS, "T") == [3, 9, 9]
    side.let_pass(2 * HOUR_MS)
    assert side.sums(TOPIC_PUTS, "T") == [0, 0, 9]
    side.let_pass(2 * DAY_MS)
    assert side.sums(TOPIC_PUTS, "T") == [0, 0, 0]


def test_rates_are_over_the_whole_window() -> None:
    side = Watched()
    side.put_some(6)
    body = object_of(fastjson.loads(side.answer(TOPIC_PUTS, "T").body_bytes()), "body")
    minute = object_of(body["statsMinute"], "minute")
    assert minute == {"avgpt": 1.0, "sum": 6, "tps": 0.1}


def test_a_topic_that_is_new_is_counted_from_its_first_message() -> None:
    side = Watched()
    side.let_pass(MINUTE_MS)
    side.topics.put(TopicConfig("U", 1, 1), WALL_MS)
    side.put(topic="U", queue_id=0)
    side.let_pass(10_000)
    assert side.sums(TOPIC_PUTS, "U") == [1, 1, 1]


def test_a_group_counts_from_where_it_began() -> None:
    side = Watched()
    side.put_some(9)
    side.offsets.commit("g", "T", 0, 5)
    side.let_pass(10_000)
    assert side.sums(GROUP_GETS, "T@g") == [0, 0, 0]
    side.offsets.commit("g", "T", 0, 8)
    assert side.sums(GROUP_GETS, "T@g") == [3, 3, 3]
    side.offsets.commit("g", "T", 0, 2)  # reset by an operator
    side.let_pass(10_000)
    assert side.sums(GROUP_GETS, "T@g") == [0, 0, 0]


def test_a_topic_that_is_gone_is_forgotten() -> None:
    side = Watched()
    side.topics.delete("T", WALL_MS)
    side.let_pass(10_000)
    answer = side.answer(TOPIC_PUTS, "T")
    assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <T> not exist")


@pytest.mark.parametrize("stats", ["TOPIC_PUT_SIZE", "", "GROUP_GET_NUMS"])
def test_what_is_not_counted_is_answered_as_java_does(stats: str) -> None:
    assert Watched().answer(stats, "T").remark == f"The stats <{stats}> <T> not exist"


class Whole(PopSide):
    """A broker's core that is sampled every ten seconds."""

    def let_pass(self, elapsed_ms: int = 10_000) -> None:
        self.now_ms += elapsed_ms
        self.core.sample(self.instant)

    def sum(self, stats: str, key: str) -> object:
        """The figure of the last minute, or the refusal."""
        fields: dict[str, object] = {"statsName": stats, "statsKey": key}
        answer = self.ask(RequestCode.VIEW_BROKER_STATS_DATA, fields)
        assert answer is not None
        if answer.code:
            return answer.remark
        body = object_of(fastjson.loads(answer.body_bytes()), "body")
        return object_of(body["statsMinute"], "minute")["sum"]


def test_bytes_and_messages_sent_back_are_counted_as_exporters_ask_for_them() -> None:
    side = Whole(queues=1)
    for number in range(3):
        side.put(f"body {number}")
    size = side.core.pipeline.put_bytes["T"]
    assert side.ask(RequestCode.PULL_MESSAGE, dict(pull().ext_fields)) is not None
    back: dict[str, object] = {"offset": 0, "group": "g", "delayLevel": 0}
    assert side.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back) is not None
    side.let_pass()
    cluster = side.config.broker_cluster_name
    assert side.sum(TOPIC_BYTES, "T") == size > 3 * len("body 0")
    assert side.sum(GROUP_BYTES, "T@g") == size
    assert side.sum(SENT_BACK, "T@g") == 1
    assert side.sum(BROKER_PUTS, cluster) == 4
    assert side.sum(BROKER_GETS, cluster) == 3
    side.let_pass(2 * MINUTE_MS)
    for stats, key in ((TOPIC_BYTES, "T"), (GROUP_BYTES, "T@g"), (BROKER_PUTS, cluster)):
        assert side.sum(stats, key) == 0


def test_what_was_counted_for_a_deleted_topic_or_group_is_dropped() -> None:
    side = Whole(queues=1)
    side.put("body")
    for group in ("g", "h"):
        fields = {**pull().ext_fields, "consumerGroup": group}
        assert side.ask(RequestCode.PULL_MESSAGE, dict(fields)) is not None
    side.let_pass()
    assert side.core.groups.delete("h", WALL_MS)
    side.let_pass()
    assert side.sum(GROUP_BYTES, "T@h") == "The stats <GROUP_GET_SIZE> <T@h> not exist"
    assert side.sum(GROUP_BYTES, "T@g") != 0
    side.core.topics.delete("T", WALL_MS)
    side.let_pass()
    for stats, key in ((TOPIC_BYTES, "T"), (GROUP_BYTES, "T@g")):
        assert side.sum(stats, key) == f"The stats <{stats}> <{key}> not exist"
    assert not side.core.pipeline.put_bytes
