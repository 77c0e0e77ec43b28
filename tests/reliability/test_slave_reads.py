"""A consumer of `trioha.client` carries on from the slave while its master is down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from support.clusters.pair import Cluster
from support.processes.admin import create_topic, wait_for_progress
from support.processes.rig import Node
from support.processes.status import node_status, wait_level

from trioha.client import (
    ClusterConfig,
    ConsumeFrom,
    Message,
    PushConsumerConfig,
    ReceivedMessage,
    open_producer,
    open_push_consumer,
)
from trioha.client.process_queue import FlowLimits

pytestmark = pytest.mark.slow

CARRY_ON_S = 60.0
QUEUES = 4
SETTINGS: dict[str, object] = {"slaveSyncInterval": 300, "flushConsumerOffsetInterval": 300}
# Routes are asked for again so often: a client learns from them that its master is away.
IMPATIENT = ClusterConfig(route_interval_s=0.5, heartbeat_interval_s=1.0)
# It holds little, so that a backlog stays with the brokers.
FROM_FIRST = PushConsumerConfig(
    consume_from=ConsumeFrom.FIRST,
    pull_count=8,
    limits=FlowLimits(messages_max=10),
    commit_interval_s=0.3,
)


class Reader:
    """Takes messages while its gate is open, and counts every delivery."""

    def __init__(self) -> None:
        self.bodies: Counter[str] = Counter()
        self.gate = trio.Event()
        self.gate.set()
        self._changed = trio.Event()

    async def take(self, message: ReceivedMessage) -> None:
        await self.gate.wait()
        self.bodies[bytes(message.body).decode()] += 1
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, bodies: Sequence[str]) -> None:
        with trio.move_on_after(CARRY_ON_S) as patience:
            while not all(body in self.bodies for body in bodies):
                await self._changed.wait()
        missing = [body for body in bodies if body not in self.bodies]
        assert not patience.cancelled_caught, f"{len(missing)} missing, first {missing[:3]}"


async def send(namesrv: str, bodies: Sequence[str]) -> None:
    async with open_producer(namesrv, group="p", cluster_config=IMPATIENT) as producer:
        for body in bodies:
            await producer.send(Message("T", body.encode()))


def progress_reached_slave(slave: Node, group: str) -> bool:
    assert slave.store is not None
    path = slave.store / "config" / "consumerOffset.json"
    return path.exists() and f"T@{group}" in path.read_text()


async def in_thread(function: object, *arguments: object) -> object:
    return await trio.to_thread.run_sync(function, *arguments)  # type: ignore[arg-type]


async def test_a_consumer_reads_on_from_the_slave_and_its_progress_is_right_at_the_master(
    cluster: Cluster,
) -> None:
    cluster.start(slave=True, settings=SETTINGS)
    create_topic(cluster.master.address, cluster.namesrv, "T", QUEUES)
    before = [f"before {number}" for number in range(40)]
    behind = [f"behind {number}" for number in range(400)]
    after = [f"after {number}" for number in range(40)]
    reader, namesrv = Reader(), cluster.namesrv
    async with open_push_consumer(
        namesrv, "g", {"T": "*"}, reader.take, config=FROM_FIRST, cluster_config=IMPATIENT
    ):
        await send(namesrv, before)
        await reader.wait_for(before)
        # Behind a closed gate a backlog grows that only the slave can serve.
        reader.gate = trio.Event()
        await send(namesrv, behind)
        await in_thread(wait_level, cluster.master, cluster.slave)
        cluster.master.kill()
        reader.gate.set()
        await reader.wait_for(behind)
        assert node_status(cluster.slave)["get_total"] > 0

        await in_thread(cluster.master.start)
        await send(namesrv, after)
        await reader.wait_for(after)
        twice = {body: count for body, count in reader.bodies.items() if count > 1}
        assert not twice, twice
        await in_thread(wait_for_progress, cluster.master.address, "g", "T", QUEUES, CARRY_ON_S)
    # An heir of the group finds nothing left to do but what is new.
    heir, last = Reader(), [f"last {number}" for number in range(8)]
    async with open_push_consumer(
        namesrv, "g", {"T": "*"}, heir.take, config=FROM_FIRST, cluster_config=IMPATIENT
    ):
        await send(namesrv, last)
        await heir.wait_for(last)
    assert heir.bodies == Counter(last)


async def test_a_consumer_that_comes_while_the_master_is_down_begins_where_its_group_stopped(
    cluster: Cluster,
) -> None:
    cluster.start(slave=True, settings=SETTINGS)
    create_topic(cluster.master.address, cluster.namesrv, "T", QUEUES)
    first = [f"first {number}" for number in range(40)]
    second = [f"second {number}" for number in range(40)]
    third = [f"third {number}" for number in range(8)]
    reader, namesrv = Reader(), cluster.namesrv
    async with open_push_consumer(
        namesrv, "g", {"T": "*"}, reader.take, config=FROM_FIRST, cluster_config=IMPATIENT
    ):
        await send(namesrv, first)
        await reader.wait_for(first)
        await in_thread(wait_for_progress, cluster.master.address, "g", "T", QUEUES, CARRY_ON_S)
    await in_thread(wait_for_progress, cluster.slave.address, "g", "T", QUEUES, CARRY_ON_S)
    await send(namesrv, second)
    await in_thread(wait_level, cluster.master, cluster.slave)
    cluster.master.kill()
    heir = Reader()
    async with open_push_consumer(
        namesrv, "g", {"T": "*"}, heir.take, config=FROM_FIRST, cluster_config=IMPATIENT
    ):
        await heir.wait_for(second)
        await in_thread(cluster.master.start)
        await send(namesrv, third)
        await heir.wait_for(third)
        await in_thread(wait_for_progress, cluster.master.address, "g", "T", QUEUES, CARRY_ON_S)
    assert heir.bodies == Counter([*second, *third])
