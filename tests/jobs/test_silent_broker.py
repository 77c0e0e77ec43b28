"""One broker is registered and hangs: what reads goes on without it, says so, and waits once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from trioha.client import Message
from trioha.client.cluster import Cluster, Groups
from trioha.client.cluster import open_cluster as open_client
from trioha.client.driving import drive
from trioha.errors import Unreachable
from trioha.failover.asking import Flow
from trioha.jobs.clients import describe_client, list_clients
from trioha.jobs.dead_letters import list_dead_letters
from trioha.jobs.group_past import read_group_past
from trioha.jobs.groups import describe_group, list_groups
from trioha.jobs.overview import cluster_top, describe_cluster
from trioha.jobs.telling import JobScope
from trioha.jobs.topic_changes import carry_out, plan_create, plan_delete
from trioha.jobs.topics import describe_topic, topic_stats
from trioha.testing import TriohaCluster, open_cluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import RequestCode
from trioha.wire.heartbeat import ConsumerData, SubscriptionData
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

PATIENCE_S = 1.0


@asynccontextmanager
async def operator_of(cluster: TriohaCluster) -> AsyncIterator[Cluster]:
    """Open the connections of a command with ``--timeout 1``."""
    config = attrs.evolve(
        cluster.client_config(), connect_timeout_s=PATIENCE_S, request_timeout_s=PATIENCE_S
    )
    async with open_client(cluster.namesrv, config) as client:
        yield client


@asynccontextmanager
async def java_member(cluster: TriohaCluster, group: str, tags: str) -> AsyncIterator[str]:
    """Open a member that is connected to broker-b alone, and tells what it does (307)."""
    subscription = SubscriptionData("OnlyB", tags)
    groups = Groups(consumers=(ConsumerData(group, subscriptions=(subscription,)),))
    queue = MessageQueue("OnlyB", "broker-b", 0).to_dict()
    info = {
        "mqTable": fastjson.ObjectKeyMap([(queue, {"commitOffset": 0})]),
        "properties": {},
        "subscriptionSet": [{"topic": "OnlyB", "subString": tags}],
    }

    def tell(channel: object, request: RemotingCommand, instant: object) -> RemotingCommand:
        return request.response(body=fastjson.dumps(info))

    handlers = {int(RequestCode.GET_CONSUMER_RUNNING_INFO): tell}
    config = cluster.client_config()
    async with open_client(cluster.namesrv, config, groups=groups, handlers=handlers) as client:
        await client.request(cluster.broker("broker-b", 0).address, client.heartbeat())
        yield client.client_id


@asynccontextmanager
async def two_masters() -> AsyncIterator[TriohaCluster]:
    """A group that has read half of each of two topics."""
    async with open_cluster("2m-noslave") as cluster:
        await create(cluster, "%DLQ%G")
        for topic in ("T", "U"):
            await create(cluster, topic)
            async with cluster.producer() as producer:
                await producer.send(Message(topic, b"x"))
                for _ in range(8):
                    await producer.send(Message(topic, b"x"))
            await cluster.consume(topic, "G")
            async with cluster.producer() as producer:
                for _ in range(8):
                    await producer.send(Message(topic, b"x"))
        yield cluster


async def create(cluster: TriohaCluster, topic: str, broker: str = "") -> None:
    scope = JobScope((cluster.namesrv,), PATIENCE_S)
    plan = plan_create(
        scope, topic, read_queues=2, write_queues=2, perm="rw", order=False, broker=broker
    )
    await drive(carry_out(scope, await drive(plan, cluster.observer)), cluster.observer)


JOBS: dict[str, Callable[[JobScope], Flow[Any]]] = {
    "group list": list_groups,
    "group describe": lambda scope: describe_group(scope, "G"),
    "cluster describe": describe_cluster,
    "cluster top": cluster_top,
    "client list": list_clients,
    "topic describe": lambda scope: describe_topic(scope, "T"),
    "topic stats": lambda scope: topic_stats(scope, "T"),
    "dlq list": list_dead_letters,
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
async def test_what_the_other_broker_knows_is_told(job: str, name: str) -> None:
    scope = JobScope(("10.0.9.1:9876",), PATIENCE_S)
    async with two_masters() as cluster, operator_of(cluster) as operator:
        assert scope.namesrvs == (cluster.namesrv,)
        assert (await drive(JOBS[job](scope), operator)).silent == []
        broker = cluster.broker(name, 0)
        await broker.pause()
        began_s = trio.current_time()
        found = await drive(JOBS[job](scope), operator)
        assert PATIENCE_S <= trio.current_time() - began_s < 1.5 * PATIENCE_S
        reason = f"{broker.address} did not answer within 1 s"
        assert found.silent == [f"{name}/0 is left out: {reason}"]
        if job == "group list":
            (group,) = found.groups
            assert group.name == "G"
            assert group.lag > 0
        if job == "group describe":
            assert {one.broker for one in found.queues} == {"broker-a", "broker-b"} - {name}
        if job == "topic describe":
            assert len(found.queues) == 2
        await broker.resume()
        assert (await drive(JOBS[job](scope), operator)).silent == []


async def test_a_groups_past_is_that_of_the_brokers_that_answer() -> None:
    async with two_masters() as cluster, operator_of(cluster) as operator:
        broker = cluster.broker("broker-a", 0)
        await broker.pause()
        began_s = trio.current_time()
        scope = JobScope((cluster.namesrv,), PATIENCE_S)
        _, notes = await drive(read_group_past(scope, "G", 0), operator)
        assert trio.current_time() - began_s < 1.5 * PATIENCE_S
        away, silent = notes
        assert away.startswith("broker-b tells no past: ")
        assert away.endswith("this node keeps no journal (code 1)")  # as every node in memory
        assert silent == f"broker-a/0 is left out: {broker.address}: no connection in 1 s"


@pytest.mark.parametrize("job", ["group list", "group describe", "cluster top"])
async def test_without_any_broker_there_is_no_answer(job: str) -> None:
    async with two_masters() as cluster, operator_of(cluster) as operator:
        for broker in cluster.brokers:
            await broker.pause()
        began_s = trio.current_time()
        with pytest.raises(Unreachable, match="no connection in 1 s"):
            await drive(JOBS[job](JobScope((cluster.namesrv,), PATIENCE_S)), operator)
        assert trio.current_time() - began_s < 1.5 * PATIENCE_S


async def test_a_name_server_that_hangs_costs_one_patience() -> None:
    async with two_masters() as cluster, operator_of(cluster) as operator:
        hung = cluster.broker("broker-b", 0)
        await hung.pause()
        began_s = trio.current_time()
        # Its address stands for a name server that is asked first each time.
        scope = JobScope((hung.address, cluster.namesrv), PATIENCE_S)
        await drive(list_groups(scope), operator)
        assert trio.current_time() - began_s < 1.5 * PATIENCE_S


async def test_a_plan_needs_every_broker() -> None:
    async with two_masters() as cluster, operator_of(cluster) as operator:
        await cluster.broker("broker-a", 0).pause()
        with pytest.raises(Unreachable, match="no connection in 1 s"):
            await drive(plan_delete(JobScope((cluster.namesrv,), PATIENCE_S), "T"), operator)


async def test_a_member_is_asked_at_a_broker_that_it_is_connected_to() -> None:
    """A Java consumer is connected to the brokers of its topics alone: not to broker-a."""
    async with open_cluster("2m-noslave") as cluster, operator_of(cluster) as operator:
        await create(cluster, "OnlyB", "broker-b")
        scope = JobScope((cluster.namesrv,), PATIENCE_S)
        async with java_member(cluster, "Bs", "x") as first:
            detail = await drive(describe_group(scope, "Bs"), operator)
            assert [one.client_id for one in detail.members] == [first]
            owners = {one.queue_id: one.owner for one in detail.queues if one.topic == "OnlyB"}
            assert owners == {0: first, 1: None}
            info = await drive(describe_client(scope, "Bs"), operator)
            assert (info.client_id, info.queues[0].broker) == (first, "broker-b")
            async with java_member(cluster, "Bs", "y") as second:
                (conflict,) = (await drive(describe_group(scope, "Bs"), operator)).conflicts
                assert conflict == f"{second} reads OnlyB:y, but {first} reads OnlyB:x"
            await cluster.broker("broker-b", 0).pause()
            with pytest.raises(Unreachable, match=r"no consumer of .* Bs is connected; broker-b/0"):
                await drive(describe_client(scope, "Bs"), operator)
