"""Reading at the caller's pace."""

from __future__ import annotations

import pytest
import trio
from support.fakes.cluster import FakeBroker, FakeCluster

from trioha.client import MessageQueue, NoRoute, PullStatus, open_pull_consumer
from trioha.errors import CommandError
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode, ResponseCode

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

QUEUE = MessageQueue("T", "a", 0)


async def test_pulls_commits_and_limits(cluster: FakeCluster, broker: FakeBroker) -> None:
    for number in range(5):
        broker.put("T", 0, b"%d" % number)
    async with open_pull_consumer(
        "127.0.0.1:9876", group="G", cluster_config=cluster.config
    ) as consumer:
        assert list(await consumer.queues("T")) == [QUEUE, MessageQueue("T", "a", 1)]
        result = await consumer.pull(QUEUE, 1, 2)
        assert result.status is PullStatus.FOUND
        assert [message.body for message in result.messages] == [b"1", b"2"]
        assert (result.next_offset, result.min_offset, result.max_offset) == (3, 0, 5)
        assert await consumer.committed_offset(QUEUE) is None
        await consumer.commit(QUEUE, 3)
        assert await consumer.committed_offset(QUEUE) == 3
        assert await consumer.min_offset(QUEUE) == 0
        assert await consumer.max_offset(QUEUE) == 5
        assert await consumer.offset_at(QUEUE, 1004) == 4


async def test_the_end_is_waited_at_when_asked(cluster: FakeCluster, broker: FakeBroker) -> None:
    async with open_pull_consumer(
        "127.0.0.1:9876", group="G", cluster_config=cluster.config
    ) as consumer:
        assert (await consumer.pull(QUEUE, 0)).status is PullStatus.NOT_FOUND
        async with trio.open_nursery() as nursery:

            async def put_later() -> None:
                await trio.sleep(3)
                broker.put("T", 0, b"late")

            nursery.start_soon(put_later)
            result = await consumer.pull(QUEUE, 0, wait_s=10)
        assert [message.body for message in result.messages] == [b"late"]


async def test_an_offset_outside_is_a_result(cluster: FakeCluster, broker: FakeBroker) -> None:
    async with open_pull_consumer(
        "127.0.0.1:9876", group="G", cluster_config=cluster.config
    ) as consumer:
        result = await consumer.pull(QUEUE, 9)
    assert (result.status, result.next_offset) == (PullStatus.OFFSET_MOVED, 0)


async def test_a_refusal_is_an_error_with_its_code(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.scripts[RequestCode.PULL_MESSAGE] = lambda command: command.response(
        ResponseCode.NO_PERMISSION, "no"
    )
    async with open_pull_consumer(
        "127.0.0.1:9876", group="G", cluster_config=cluster.config
    ) as consumer:
        with pytest.raises(CommandError) as caught:
            await consumer.pull(QUEUE, 0)
        assert caught.value.code == ResponseCode.NO_PERMISSION
        with pytest.raises(NoRoute):
            await consumer.queues("Unknown")
