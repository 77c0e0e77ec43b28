from __future__ import annotations

from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import WALL_MS

from trioha.config import BrokerConfig, BrokerRole
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import SCHEDULE_TOPIC

SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)


def test_queues_of_topics_that_are_no_more_go_with_the_progress_in_them() -> None:
    side = ConsumeSide()
    side.topics.put(TopicConfig("U", 1, 1), WALL_MS)
    for topic in ("T", "U", SCHEDULE_TOPIC):
        side.put(topic=topic)
        side.offsets.commit("g", topic, 0, 1)
    side.topics.delete("U", WALL_MS)
    assert side.ask(request(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
    assert set(side.store.queues()) == {("T", 0), (SCHEDULE_TOPIC, 0)}
    assert side.offsets.query("g", "T", 0) == 1
    assert side.offsets.query("g", "U", 0) == -1


def test_slave_cleans_no_topics_its_table_may_lag_behind_its_log() -> None:
    side = ConsumeSide(SLAVE)
    side.put(topic="not yet synchronized")
    code = side.ask(request(RequestCode.CLEAN_UNUSED_TOPIC)).code
    assert code == ResponseCode.SYSTEM_ERROR
    assert side.store.queues() == [("not yet synchronized", 0)]


def test_expired_segments_are_to_go_soon_on_a_slave_too() -> None:
    for config in (BrokerConfig(), SLAVE):
        side = ConsumeSide(config)
        assert side.ask(request(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        assert side.store.deletions_asked == 1


def test_expired_consume_queues_are_gone_already() -> None:
    side = ConsumeSide()
    side.put()
    assert side.ask(request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
    assert side.store.queues() == [("T", 0)]
