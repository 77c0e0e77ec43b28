"""The client against real processes: trioha's, and with the Java toolchain RocketMQ's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

import pytest
import trio
from support.clusters.pair import SMALL_FILES, Cluster, Make
from support.processes.rig import Processes

from trioha.client import (
    ConsumeFrom,
    ConsumeLater,
    Message,
    NoRoute,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    ReceivedMessage,
    SendOutcomeUnknown,
    SendStatus,
    open_admin,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
)
from trioha.client.cluster import open_cluster, success
from trioha.errors import CommandError, TriohaError, Unreachable
from trioha.failover.asking import Answer
from trioha.jobs.members import running_info_of
from trioha.wire.bodies import TopicConfig, topic_table_from_dict
from trioha.wire.codes import RequestCode
from trioha.wire.fastjson import loads
from trioha.wire.remoting_command import RemotingCommand

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST)
WAIT_S = 120.0
QUEUES = 4

_MAKES = [
    pytest.param(make, marks=pytest.mark.interop if make == "java" else pytest.mark.slow)
    for make in get_args(Make)
]


@pytest.fixture(params=_MAKES)
def pair(request: pytest.FixtureRequest, processes: Processes) -> Cluster:
    """A name server, a master and its slave, all of one make."""
    return Cluster(processes, request.param, settings=SMALL_FILES).start(slave=True)


class Inbox:
    """Received messages by id; `wait` returns once there are so many."""

    def __init__(self) -> None:
        self.messages: dict[str, ReceivedMessage] = {}
        self._more = trio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        if message.body == b"again" and message.reconsume_times < 1:
            raise ConsumeLater(1)
        self.messages[message.msg_id] = message
        self._more.set()

    async def wait(self, count: int) -> None:
        with trio.fail_after(WAIT_S):
            while len(self.messages) < count:
                self._more = trio.Event()
                await self._more.wait()


async def send(producer: Producer, count: int, body: bytes = b"body") -> None:
    for number in range(count):
        result = await producer.send(Message("T", body, tags="AB"[number % 2], keys=f"k{number}"))
        assert result.status is SendStatus.SEND_OK


def queue_count(consumer: PushConsumer) -> int:
    return sum(queue.topic == "T" for queue in consumer.queues)


async def queues_told(cluster: Cluster, consumer: PushConsumer) -> set[tuple[str, int]]:
    """The queues of T that a consumer tells an operator of, by way of its broker."""
    fields = {"consumerGroup": "G", "clientId": consumer.client_id, "jstackEnable": "false"}
    command = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, {**fields})
    async with open_cluster(cluster.namesrv) as nodes:
        response = success(await nodes.request(cluster.master.address, command))
    told = running_info_of("G", consumer.client_id, Answer.of(response))
    return {(queue.broker, queue.queue_id) for queue in told.queues if queue.topic == "T"}


async def wait_until(condition: Callable[[], bool]) -> None:
    # Real processes live in real time: looks again, with a deadline.
    with trio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.02)


async def wait_replicated(cluster: Cluster) -> None:
    async with open_admin(cluster.namesrv) as admin:
        end = await admin.log_end(cluster.master.address)

        async def slave_end() -> int:
            try:
                return await admin.log_end(cluster.slave.address)
            except CommandError:
                return 0  # a Java slave with an empty log fails to say so

        async def slave_topics() -> Mapping[str, TopicConfig]:
            async with open_cluster(cluster.namesrv) as nodes:
                command = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
                response = success(await nodes.request(cluster.slave.address, command))
            return topic_table_from_dict(loads(response.body_bytes()))[1]

        with trio.fail_after(WAIT_S):
            while await slave_end() < end:  # noqa: ASYNC110
                await trio.sleep(0.05)
            # Topics follow on a timer of their own.
            while "T" not in await slave_topics():  # noqa: ASYNC110
                await trio.sleep(0.2)


async def test_the_life_of_messages_and_members(pair: Cluster) -> None:
    async with open_admin(pair.namesrv) as admin:
        await admin.create_topic("T", queue_nums=QUEUES)
        with trio.fail_after(WAIT_S):
            await admin.wait_route("T", QUEUES)
    inbox, other = Inbox(), Inbox()
    async with (
        open_producer(pair.namesrv) as producer,
        open_push_consumer(pair.namesrv, "G", {"T": "*"}, inbox, config=FIRST) as consumer,
    ):
        await send(producer, 20)
        await producer.send_batch([Message("T", b"batched")] * 5)
        await producer.send_oneway(Message("T", b"oneway"))
        await inbox.wait(26)
        # A new member may ask where to begin before the old one has told how far it came.
        await wait_caught_up(pair)
        async with open_push_consumer(pair.namesrv, "G", {"T": "*"}, other, config=FIRST) as second:
            await wait_until(lambda: queue_count(consumer) == queue_count(second) == 2)
            # A queue is told of when it is known where to begin.
            with trio.fail_after(WAIT_S):
                while await queues_told(pair, second) != {  # noqa: ASYNC110
                    (q.broker_name, q.queue_id) for q in second.queues if q.topic == "T"
                }:
                    await trio.sleep(0.05)
            await send(producer, 20)
            await wait_until(lambda: len(inbox.messages | other.messages) == 46)
            if pair.make == "trioha":
                # A Java broker may carry out the last pull of a member that gives a queue up after
                # its last commit. The next member then begins at the pull's older progress.
                assert not inbox.messages.keys() & other.messages.keys()
        await wait_until(lambda: queue_count(consumer) == QUEUES)
        await producer.send(Message("T", b"again"))
        await wait_until(lambda: any(m.body == b"again" for m in inbox.messages.values()))
        assert inbox.messages
        assert other.messages
        await wait_caught_up(pair)
    async with open_admin(pair.namesrv) as admin:
        progress = await admin.consumer_progress("G", "T")
        assert sum(entry.consumer_offset for entry in progress) == 47
        assert [entry for entry in progress if entry.lag] == []
        found = await admin.messages_by_key("T", "k7")
        assert len(found) == 2
        assert (await admin.message_by_id(found[0].offset_msg_id)).body == found[0].body
    async with open_pull_consumer(pair.namesrv, group="P") as puller:
        queues = await puller.queues("T")
        pulled = [await puller.pull(queue, 0, expression="A") for queue in queues]
        tags = {message.tags for result in pulled for message in result.messages}
        assert tags == {"A"}


async def test_consumption_goes_on_from_the_slave_when_the_master_is_killed(pair: Cluster) -> None:
    inbox, late = Inbox(), Inbox()
    async with open_producer(pair.namesrv) as producer:
        await send(producer, 30)
        async with open_push_consumer(
            pair.namesrv, "G", {"T": "*"}, inbox, config=FIRST
        ) as consumer:
            await inbox.wait(30)
            await wait_replicated(pair)
            pair.master.kill()
            with pytest.raises((SendOutcomeUnknown, NoRoute, Unreachable)):
                await producer.send(Message("T", b"nobody takes this"))
            async with open_push_consumer(pair.namesrv, "Late", {"T": "*"}, late, config=FIRST):
                await late.wait(30)
            pair.master.start()
            await wait_sendable(producer)
            await inbox.wait(31)
            assert queue_count(consumer) == QUEUES
            # A Java broker carries out pulls and commits in different threads. The last commit of
            # a consumer that stops at once can so be replaced by the older one of its last pull.
            await wait_caught_up(pair)
    await wait_caught_up(pair)


async def wait_caught_up(cluster: Cluster) -> None:
    """Wait until the group's progress, as the broker has it, is the end of each queue."""
    async with open_admin(cluster.namesrv) as admin:
        with trio.fail_after(WAIT_S):
            while any(one.lag for one in await admin.consumer_progress("G", "T")):  # noqa: ASYNC110
                await trio.sleep(0.1)


async def wait_sendable(producer: Producer) -> None:
    with trio.fail_after(WAIT_S):
        while True:
            try:
                await producer.send(Message("T", b"the master is back"))
                return
            except TriohaError:
                await trio.sleep(0.1)
