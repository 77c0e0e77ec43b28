from __future__ import annotations

from support.handlers.sending import FakeChannel

from trioha.broker.client_registrations import client_registrations
from trioha.broker.clients import ClientInfo, ConsumerManager, ProducerManager
from trioha.broker.groups import GroupTable
from trioha.broker.locks import LOCK_EXPIRE_MS, QueueLocks
from trioha.config import BrokerConfig
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import LockBatchBody, MessageQueue
from trioha.wire.codes import LanguageCode, RequestCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, SubscriptionData

CONFIG = BrokerConfig()


def test_each_client_is_introduced_with_all_its_groups_and_the_locks_it_holds() -> None:
    groups = GroupTable(CONFIG, RecordedEvents(), wall_ms=0)
    consumers, producers = ConsumerManager(CONFIG, groups), ProducerManager(CONFIG)
    locks = QueueLocks()
    first, second = FakeChannel(), FakeChannel()
    java = ClientInfo("java@1", LanguageCode.JAVA, 409)
    cpp = ClientInfo("cpp@2", LanguageCode.CPP, 300)
    wanted = ConsumerData("G", subscriptions=(SubscriptionData("T", "A || B", sub_version=7),))
    producers.register("P", first, java, 0)
    for channel, client in ((first, java), (second, cpp)):
        consumers.register(wanted, channel, client, 0)
    queue = MessageQueue("T", "broker-a", 3)
    locks.lock("G", queue, "cpp@2", 0)
    locks.lock("G", MessageQueue("T", "broker-a", 4), "gone@3", 0)

    told = list(client_registrations(consumers, producers, locks, 1000))
    assert [(channel, command.code) for channel, command in told] == [
        (first, RequestCode.HEART_BEAT),
        (second, RequestCode.HEART_BEAT),
        (second, RequestCode.LOCK_BATCH_MQ),
    ]
    assert all(command.is_oneway for _, command in told)
    heartbeat = HeartbeatData.decode(told[0][1].body_bytes())
    assert heartbeat.client_id == "java@1"
    assert [one.group_name for one in heartbeat.producers] == ["P"]
    assert heartbeat.consumers == (wanted,)
    assert (told[1][1].language, told[1][1].version) == (LanguageCode.CPP, 300)
    assert LockBatchBody.decode(told[2][1].body_bytes()) == LockBatchBody("G", "cpp@2", (queue,))


def test_a_lock_that_has_expired_is_nobody_s() -> None:
    locks = QueueLocks()
    locks.lock("G", MessageQueue("T", "broker-a", 0), "c", 0)
    assert list(locks.held(LOCK_EXPIRE_MS - 1)) == [("G", "c")]
    assert locks.held(LOCK_EXPIRE_MS) == {}
