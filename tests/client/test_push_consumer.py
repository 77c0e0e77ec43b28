"""The life of a consumer group member against brokers in memory."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing
from support.fakes.cluster import QUEUES, FakeBroker, FakeCluster
from support.handlers.sending import FakeChannel, at

from trioha.client import (
    ConsumeFrom,
    ConsumeLater,
    MessageModel,
    MessageQueue,
    PushConsumerConfig,
    ReceivedMessage,
    open_push_consumer,
)
from trioha.client.process_queue import FlowLimits
from trioha.errors import TriohaError
from trioha.failover.asking import Answer
from trioha.jobs.members import running_info_of
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

NAMESRV = "127.0.0.1:9876"
FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST)
ALL = {"T": "*"}
PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


class Inbox:
    """A handler that remembers, and fails when told."""

    def __init__(
        self, fail: Callable[[ReceivedMessage], Exception | None] = lambda m: None
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self._fail = fail
        self._more = trio.Event()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self._more.set()
        error = self._fail(message)
        if error is not None:
            raise error

    async def wait(self, count: int) -> None:
        with trio.fail_after(120):
            while len(self.messages) < count:
                self._more = trio.Event()
                await self._more.wait()


def put(broker: FakeBroker, *bodies: bytes, queue_id: int = 0, tags: bytes = b"") -> None:
    for body in bodies:
        broker.put("T", queue_id, body, b"TAGS\x01" + tags if tags else b"")


async def test_everything_stored_is_handled_and_committed_at_the_end(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2", b"3")
    put(broker, b"4", queue_id=1)
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(4)
        put(broker, b"5")
        await inbox.wait(5)
    assert sorted(inbox.bodies) == [b"1", b"2", b"3", b"4", b"5"]
    assert broker.offsets == {("G", "T", 0): 4, ("G", "T", 1): 1}
    assert broker.requests[-1].code == RequestCode.UNREGISTER_CLIENT


async def test_progress_is_committed_every_5_s_when_it_changed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1")
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await trio.sleep(5.5)
        assert broker.offsets["G", "T", 0] == 1
        count = len(broker.asked(COMMIT))
        await trio.sleep(20)
        assert len(broker.asked(COMMIT)) == count


async def test_a_group_with_progress_goes_on_there(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2", b"3")
    broker.offsets["G", "T", 0] = 2
    inbox = Inbox()
    async with open_push_consumer(NAMESRV, "G", ALL, inbox, cluster_config=cluster.config):
        await inbox.wait(1)
    assert inbox.bodies == [b"3"]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (ConsumeFrom.FIRST, [b"1", b"2", b"new"]),
        (ConsumeFrom.LAST, [b"new"]),
        (ConsumeFrom.TIMESTAMP, [b"2", b"new"]),
    ],
)
async def test_a_group_without_progress_begins_by_its_policy(
    cluster: FakeCluster, broker: FakeBroker, begin: ConsumeFrom, expected: list[bytes]
) -> None:
    put(broker, b"1", b"2")
    inbox = Inbox()
    config = PushConsumerConfig(consume_from=begin, consume_timestamp_ms=1001)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=config, cluster_config=cluster.config
    ):
        await trio.sleep(1)
        put(broker, b"new")
        await inbox.wait(len(expected))
    assert inbox.bodies == expected


async def test_tags_with_the_same_hash_are_told_apart_here(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"wanted", tags=b"Aa")
    put(broker, b"collides", tags=b"BB")
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", {"T": "Aa"}, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        await trio.sleep(6)
        assert broker.offsets["G", "T", 0] == 2
    assert inbox.bodies == [b"wanted"]


async def test_a_failed_message_is_handed_back_and_progress_passes_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"bad", b"good")
    inbox = Inbox(lambda message: ValueError() if message.body == b"bad" else None)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(2)
        await trio.sleep(0.1)
    (command,) = broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert command.ext_int("offset") == inbox.messages[0].phy_offset
    assert (command.ext_str("group"), command.ext_int("delayLevel")) == ("G", 0)
    assert command.ext_str("originTopic") == "T"
    assert broker.offsets["G", "T", 0] == 2


async def test_a_handler_may_choose_the_delay_of_the_redelivery(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"later")
    inbox = Inbox(lambda message: ConsumeLater(3))
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        await trio.sleep(0.1)
    assert broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)[0].ext_int("delayLevel") == 3


async def test_a_message_the_broker_does_not_take_back_is_tried_here_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.scripts[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda command: command.response(
        ResponseCode.SYSTEM_ERROR, "no"
    )
    put(broker, b"bad")
    inbox = Inbox(lambda message: ValueError() if len(inbox.messages) == 1 else None)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        begin_s = trio.current_time()
        await trio.sleep(1)
        assert broker.offsets.get(("G", "T", 0), 0) == 0
        await inbox.wait(2)
        assert trio.current_time() - begin_s == pytest.approx(5.0, abs=0.1)
    assert broker.offsets["G", "T", 0] == 1


async def test_the_retry_topic_is_consumed_under_its_original_name(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    cluster.namesrv.topics["%RETRY%G"] = 1
    broker.put("%RETRY%G", 0, b"again", b"RETRY_TOPIC\x01T")
    inbox = Inbox()
    async with open_push_consumer(NAMESRV, "G", ALL, inbox, cluster_config=cluster.config):
        await inbox.wait(1)
    assert inbox.messages[0].topic == "T"
    assert broker.offsets["G", "%RETRY%G", 0] == 1


async def test_a_new_member_takes_its_share_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    inbox = Inbox()
    notice = RemotingCommand(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"}, flag=2
    )
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ) as consumer:
        await trio.sleep(2)
        assert [queue.queue_id for queue in consumer.queues] == [0, 1]
        broker.members["G"].append("~other")
        begin_s = trio.current_time()
        broker.push(notice)
        await trio.testing.wait_all_tasks_blocked()
        assert [queue.queue_id for queue in consumer.queues] == [0]
        broker.members["G"].remove("~other")
        broker.push(notice)
        await trio.testing.wait_all_tasks_blocked()
        assert len(consumer.queues) == QUEUES
        assert trio.current_time() - begin_s < 1.0


async def test_without_a_notice_shares_are_looked_at_every_20_s(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    cluster.namesrv.topics["%RETRY%G"] = 1
    async with open_push_consumer(
        NAMESRV, "G", ALL, Inbox(), cluster_config=cluster.config
    ) as consumer:
        await trio.sleep(1)
        broker.members["G"].append("~other")
        await trio.sleep(21)
        assert [queue.queue_id for queue in consumer.queues if queue.topic == "T"] == [0]


async def test_a_broker_that_forgot_us_does_not_cost_us_our_queues(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_push_consumer(
        NAMESRV, "G", ALL, Inbox(), cluster_config=cluster.config
    ) as consumer:
        await trio.sleep(1)
        broker.members.clear()
        await trio.sleep(45)
        assert len(consumer.queues) == QUEUES
        assert broker.members["G"] == [consumer.client_id]


async def test_queues_of_a_released_share_are_committed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", queue_id=1)
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        broker.members["G"].append("~other")
        broker.push(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, flag=2))
        await trio.testing.wait_all_tasks_blocked()
        assert broker.offsets["G", "T", 1] == 1


async def test_the_next_pull_goes_where_the_broker_suggests(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    slave = cluster.add_broker("a", 1)
    slave.queues = broker.queues
    slave.suggested_id = broker.suggested_id = 1
    put(broker, b"1")
    inbox = Inbox()
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, pull_count=1)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=config, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        await trio.testing.wait_all_tasks_blocked()
        assert slave.asked(PULL)
        put(slave, b"2")
        await inbox.wait(2)
    # A slave is never handed an offset to commit; the farewell commit goes to the master.
    assert not any(
        pull.ext_int("sysFlag") & PullSysFlag.COMMIT_OFFSET for pull in slave.asked(PULL)
    )
    assert broker.offsets["G", "T", 0] == 2
    assert not slave.offsets


async def test_consumption_moves_to_the_slave_and_back_and_progress_is_right(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    slave = cluster.add_broker("a", 1)
    slave.queues = broker.queues
    put(broker, b"1")
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        del cluster.namesrv.brokers["a"][0]
        broker.crash()
        begin_s = trio.current_time()
        await trio.lowlevel.checkpoint()
        put(slave, b"2")
        await inbox.wait(2)
        assert trio.current_time() - begin_s < 1.0
        broker.down = False
        cluster.namesrv.brokers["a"][0] = broker.address
        await trio.sleep(60)
        put(broker, b"3")
        put(slave, b"4")
        await inbox.wait(4)
    assert inbox.bodies == [b"1", b"2", b"3", b"4"]
    assert broker.offsets["G", "T", 0] == 4


@pytest.mark.parametrize("orderly", [False, True])
async def test_the_last_commit_outlives_the_pull_that_is_under_way(
    cluster: FakeCluster, broker: FakeBroker, orderly: bool
) -> None:
    """RocketMQ's broker may carry out a pull, and the progress in it, after a later commit."""
    inbox = Inbox()
    overtaken: list[tuple[int, int]] = []

    def commit_and_the_pull_after_it(command: RemotingCommand) -> RemotingCommand:
        if command.ext_int("queueId") == 0:
            pull = [one for one in broker.asked(PULL) if one.ext_int("queueId") == 0][-1]
            broker.offsets["G", "T", 0] = pull.ext_int("commitOffset")
            overtaken.append((command.ext_int("commitOffset"), pull.ext_int("commitOffset")))
            del broker.scripts[COMMIT]
        return command.response()

    put(broker, b"1")
    config = attrs.evolve(FIRST, orderly=orderly)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=config, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        await trio.testing.wait_all_tasks_blocked()
        broker.scripts[COMMIT] = commit_and_the_pull_after_it
    assert overtaken == [(1, 0)]
    assert broker.offsets["G", "T", 0] == 1


async def test_progress_that_a_killed_master_has_lost_is_told_to_it_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """A broker saves progress every 5 s: what it was told just before it died is gone."""
    slave = cluster.add_broker("a", 1)
    slave.queues = broker.queues
    put(broker, b"1")
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await trio.sleep(5.5)
        assert broker.offsets["G", "T", 0] == 1
        del cluster.namesrv.brokers["a"][0]
        broker.crash()
        broker.offsets.clear()
        await trio.sleep(10)
        # The slave has it, and suggests itself: no pull tells the master.
        slave.suggested_id = broker.suggested_id = 1
        broker.down = False
        cluster.namesrv.brokers["a"][0] = broker.address
        await trio.sleep(10)
        assert broker.offsets["G", "T", 0] == 1


async def test_progress_a_slave_took_is_told_to_the_master_when_it_returns(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    slave = cluster.add_broker("a", 1)
    slave.queues = broker.queues
    put(broker, b"1")
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(1)
        del cluster.namesrv.brokers["a"][0]
        broker.crash()
        await trio.sleep(12)
        assert slave.offsets["G", "T", 0] == 1
        broker.down = False
        cluster.namesrv.brokers["a"][0] = broker.address
        await trio.sleep(6)
        assert broker.offsets["G", "T", 0] == 1


async def test_pulls_pause_while_too_much_is_under_way(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, *[b"%d" % number for number in range(20)])
    config = PushConsumerConfig(
        consume_from=ConsumeFrom.FIRST, pull_count=4, limits=FlowLimits(messages_max=8)
    )
    async with open_push_consumer(
        NAMESRV, "G", ALL, config=config, cluster_config=cluster.config
    ) as consumer:
        await trio.sleep(1)
        pulls = [pull for pull in broker.asked(PULL) if pull.ext_int("queueId") == 0]
        assert len(pulls) == 2
        with trio.fail_after(60):
            for number in range(20):
                assert (await anext(consumer)).body == b"%d" % number


async def test_an_offset_outside_the_queue_is_corrected(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2", b"3")
    broker.first_offset = 2
    broker.offsets["G", "T", 0] = 0
    broker.offsets["G", "T", 1] = 50
    inbox = Inbox()
    async with open_push_consumer(NAMESRV, "G", ALL, inbox, cluster_config=cluster.config):
        await inbox.wait(1)
        await trio.sleep(1)
    assert inbox.bodies == [b"3"]
    assert broker.offsets["G", "T", 0] == 3
    assert broker.offsets["G", "T", 1] == 0


async def test_a_reset_by_the_operator_moves_the_queue(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2", b"3")
    inbox = Inbox()
    body = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:1}}'
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await inbox.wait(3)
        broker.push(RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, body=body, flag=2))
        put(broker, b"wakes the parked pull")
        await inbox.wait(6)
    assert inbox.bodies[3:] == [b"2", b"3", b"wakes the parked pull"]
    assert broker.offsets["G", "T", 0] == 4


@pytest.mark.parametrize("orderly", [False, True])
async def test_an_operator_is_told_which_queues_a_member_holds(
    cluster: FakeCluster, broker: FakeBroker, orderly: bool
) -> None:
    put(broker, b"handled", b"stuck", b"waits")
    inbox, stuck = Inbox(), trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await inbox(message)
        if message.body == b"stuck":
            await stuck.wait()

    config = attrs.evolve(FIRST, orderly=orderly, concurrency=1)
    async with open_push_consumer(
        NAMESRV, "G", ALL, handle, config=config, cluster_config=cluster.config
    ) as consumer:
        await inbox.wait(2)
        request = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, {})
        answer = consumer.on_running_info(FakeChannel(), request, at())
        told = running_info_of("G", "C", Answer.of(answer))
        stuck.set()
    assert [(one.topic, one.queue_id) for one in told.queues if one.topic == "T"] == [
        ("T", 0),
        ("T", 1),
    ]
    first = next(one for one in told.queues if (one.topic, one.queue_id) == ("T", 0))
    assert (first.broker, first.commit_offset, first.cached_messages) == ("a", 1, 2)
    assert first.locked is orderly
    assert told.subscriptions == {"%RETRY%G": "*", "T": "*"}
    assert told.properties["PROP_CONSUMEORDERLY"] == str(orderly).lower()


async def test_a_broadcast_member_reads_all_queues_and_commits_nothing(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.members["G"] = ["!other"]
    put(broker, b"1")
    put(broker, b"2", queue_id=1)
    inbox = Inbox(lambda message: ValueError())
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, model=MessageModel.BROADCASTING)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=config, cluster_config=cluster.config
    ):
        await inbox.wait(2)
        await trio.sleep(30)
    assert sorted(inbox.bodies) == [b"1", b"2"]
    assert not broker.offsets
    assert not broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_iterating_acknowledges_the_message_before(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2", b"3")
    async with open_push_consumer(
        NAMESRV, "G", ALL, config=FIRST, cluster_config=cluster.config
    ) as consumer:
        with trio.fail_after(60):
            assert (await anext(consumer)).body == b"1"
            assert (await anext(consumer)).body == b"2"
            consumer.ack(await anext(consumer))
    assert broker.offsets["G", "T", 0] == 3


async def test_what_was_not_acknowledged_is_not_committed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2")
    async with open_push_consumer(
        NAMESRV, "G", ALL, config=FIRST, cluster_config=cluster.config
    ) as consumer:
        await anext(consumer)
        await anext(consumer)
    assert broker.offsets["G", "T", 0] == 1


async def test_a_cancelled_consumer_still_commits_and_leaves(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1")
    inbox = Inbox()
    with trio.CancelScope() as scope:
        async with open_push_consumer(
            NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
        ):
            await inbox.wait(1)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert broker.offsets["G", "T", 0] == 1
    assert broker.requests[-1].code == RequestCode.UNREGISTER_CLIENT


async def test_ordered_messages_are_handled_one_by_one_and_a_failed_one_is_tried_first(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1", b"2", b"3")
    inbox = Inbox(lambda message: ValueError() if len(inbox.messages) == 2 else None)
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, orderly=True)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=config, cluster_config=cluster.config
    ):
        await inbox.wait(4)
        assert len(broker.locks) == QUEUES
        await trio.sleep(25)
        assert len(broker.asked(RequestCode.LOCK_BATCH_MQ)) == 2
    assert inbox.bodies == [b"1", b"2", b"2", b"3"]
    assert broker.offsets["G", "T", 0] == 3
    assert not broker.locks


async def test_a_queue_somebody_else_has_locked_is_waited_for(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    cluster.namesrv.topics["%RETRY%G"] = 1
    queue = MessageQueue("T", "a", 0)
    broker.locks["G", queue] = "other"
    put(broker, b"1")
    inbox = Inbox()
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, orderly=True)
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=config, cluster_config=cluster.config
    ) as consumer:
        await trio.sleep(19)
        assert queue not in consumer.queues
        assert not inbox.messages
        del broker.locks["G", queue]
        await inbox.wait(1)
        assert queue in consumer.queues


async def test_ordered_consumption_needs_a_handler() -> None:
    with pytest.raises(TriohaError, match="needs a handler"):
        async with open_push_consumer(NAMESRV, "G", ALL, config=PushConsumerConfig(orderly=True)):
            pass


async def test_a_damaged_answer_is_asked_for_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    put(broker, b"1")
    intact = broker.queues["T", 0][0]
    broker.queues["T", 0][0] = intact[:-1] + b"?"  # the properties' last byte; crc covers the body
    broker.queues["T", 0][0] = intact[:90] + b"\xff" + intact[91:]
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await trio.sleep(1)
        assert not inbox.messages
        broker.queues["T", 0][0] = intact
        await inbox.wait(1)


async def test_a_topic_that_does_not_exist_yet_is_consumed_once_it_does(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    del cluster.namesrv.topics["T"]
    inbox = Inbox()
    async with open_push_consumer(
        NAMESRV, "G", ALL, inbox, config=FIRST, cluster_config=cluster.config
    ):
        await trio.sleep(60)
        cluster.namesrv.topics["T"] = QUEUES
        put(broker, b"1")
        await inbox.wait(1)
    assert inbox.bodies == [b"1"]
