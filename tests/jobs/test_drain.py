"""Draining each kind of broker, in virtual time."""

from __future__ import annotations

import pytest
import trio

from trioha.client import Message
from trioha.client.driving import drive
from trioha.jobs.brokers import list_brokers
from trioha.jobs.drain import DrainOrder, DrainPlan, carry_out_drain, plan_drain, undo_drain
from trioha.jobs.telling import JobScope
from trioha.jobs.topic_changes import carry_out, plan_create
from trioha.testing import TriohaCluster, open_cluster
from trioha.testing.virtual_time import run_on_virtual_time

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


def order(wait_s: float = 60.0) -> DrainOrder:
    return DrainOrder(
        ticket_id="0123456789abcdef",
        operator="anna@ops-1",
        wait_s=wait_s,
        now_ms=lambda: int(trio.current_time() * 1000),
        wall_ms=lambda: int(trio.current_time() * 1000),
    )


async def test_a_master_whose_slave_is_dead_loses_its_write_permission() -> None:
    async with open_cluster("2m-2s-async") as cluster:
        await create(cluster, "T")
        await cluster.broker("broker-a", 1).kill()
        scope = JobScope((cluster.namesrv,), 1.0)
        plan = await drive(plan_drain(scope, "broker-a", None, order()), cluster.operator)
        (note,) = plan.notes
        assert note.startswith("broker-a keeps its mastership: no member can be promoted (")
        assert (plan.way, plan.refusals) == ("write permission", [])
        done = await drive(carry_out_drain(scope, plan, order()), cluster.operator)
        assert done.safe_to_stop
        async with cluster.producer() as producer:
            results = [await producer.send(Message("T", b"x")) for _ in range(6)]
        assert {one.queue.broker_name for one in results} == {"broker-b"}


async def test_the_longest_wait_counts_what_silent_nodes_cost() -> None:
    async with open_cluster("2m-noslave") as cluster, cluster.producer() as producer:
        await create(cluster, "T")
        await producer.send(Message("T", b"x"))
        hung = cluster.broker("broker-b", 0)
        plan = await drive(
            plan_drain(JobScope((cluster.namesrv,)), "broker-a", None, order()), cluster.operator
        )
        await hung.pause()
        # Its address stands for a second name server, which costs a second at each look.
        scope = JobScope((cluster.namesrv, hung.address), 1.0)
        began_s = trio.current_time()
        done = await drive(carry_out_drain(scope, plan, order(wait_s=10.0)), cluster.observer)
        assert not done.safe_to_stop
        assert 10.0 <= trio.current_time() - began_s < 16.0
        assert f"name server {hung.address} does not answer and was not told" in str(done.notes)


async def test_a_broker_that_hangs_is_not_safe_to_stop() -> None:
    async with open_cluster("2m-noslave") as cluster:
        scope = JobScope((cluster.namesrv,), 1.0)
        plan = await drive(plan_drain(scope, "broker-a", None, order()), cluster.operator)
        await cluster.broker("broker-a", 0).pause()
        done = await drive(carry_out_drain(scope, plan, order(wait_s=5.0)), cluster.observer)
        assert not done.safe_to_stop
        assert "after 5 s: " in done.notes[-1]
        assert "did not answer" in done.notes[-1]


async def drained(
    cluster: TriohaCluster, broker_id: int | None = None, wait_s: float = 60.0
) -> DrainPlan:
    scope = JobScope((cluster.namesrv,), 1.0)
    plan = await drive(plan_drain(scope, "broker-a", broker_id, order(wait_s)), cluster.operator)
    assert plan.refusals == []
    return await drive(carry_out_drain(scope, plan, order(wait_s)), cluster.operator)


async def create(cluster: TriohaCluster, topic: str) -> None:
    scope = JobScope((cluster.namesrv,), 1.0)
    plan = await drive(
        plan_create(scope, topic, read_queues=2, write_queues=2, perm="rw", order=False),
        cluster.observer,
    )
    await drive(carry_out(scope, plan), cluster.observer)


async def test_a_leader_hands_over_and_is_safe_to_stop() -> None:
    async with open_cluster("raft") as cluster:
        leader = await cluster.master_of("broker-a")
        done = await drained(cluster)
        assert (done.way, done.done, done.safe_to_stop) == ("transfer", True, True)
        assert done.address == leader.address
        assert await cluster.master_of("broker-a") is not leader
        # A follower has nothing to hand over.
        brokers = (
            await drive(list_brokers(JobScope((cluster.namesrv,))), cluster.operator)
        ).brokers
        follower = await drained(cluster, max(one.id for one in brokers))
        assert (follower.way, follower.safe_to_stop) == ("nothing", True)


async def test_a_master_fails_over_while_clients_send_and_waits_for_them() -> None:
    async with open_cluster("pair") as cluster:
        await create(cluster, "T")
        master = await cluster.master_of("broker-a")
        sent = []

        async def send() -> None:
            async with cluster.producer() as producer:
                while True:
                    sent.append(await producer.send(Message("T", b"x")))
                    await trio.sleep(0.2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            began_s = trio.current_time()
            done = await drained(cluster, wait_s=120.0)
            waited_s = trio.current_time() - began_s
            nursery.cancel_scope.cancel()
        # The producer asks for its route every 30 s; until then its sends are forwarded. And
        # another may send rarely: nothing comes for 30 s before the node is safe to stop.
        assert 31 <= waited_s < 70
        assert (done.way, done.safe_to_stop) == ("failover", True)
        assert await cluster.master_of("broker-a") is not master
        await master.stop()
        await cluster.assert_nothing_lost(sent)


async def test_a_lone_master_is_drained_once_its_groups_have_consumed_all() -> None:
    async with open_cluster("2m-noslave") as cluster:
        await create(cluster, "T")
        async with cluster.producer() as producer:
            for number in range(8):
                await producer.send(Message("T", b"%d" % number))
        assert len(await cluster.consume("T", "readers")) == 8
        async with cluster.producer() as producer:
            for number in range(4):
                await producer.send(Message("T", b"%d" % number))
        early = await drained(cluster, wait_s=5.0)
        assert (early.way, early.safe_to_stop) == ("write permission", False)
        (note,) = [one for one in early.notes if one.startswith("after")]
        assert note == "after 5 s: readers has 2 messages to consume"
        await cluster.consume("T", "readers")
        assert (await drained(cluster)).safe_to_stop
        # Producers turn to the other broker, until it is let back.
        async with cluster.producer() as producer:
            brokers = {
                (await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(6)
            }
        assert brokers == {"broker-b"}
        scope = JobScope((cluster.namesrv,), 1.0)
        assert await drive(undo_drain(scope, "broker-a"), cluster.operator) == []
        async with cluster.producer() as producer:
            brokers = {
                (await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(6)
            }
        assert brokers == {"broker-a", "broker-b"}
