"""Two operators at once, and things that change between a plan and its carrying out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from trioha.client import ConsumeFrom, Message, PushConsumerConfig
from trioha.client.driving import drive
from trioha.errors import Unreachable
from trioha.failover.asking import Flow
from trioha.jobs.brokers import carry_out_setting, plan_setting
from trioha.jobs.group_changes import carry_out_group, plan_put_group
from trioha.jobs.namesrvs import carry_out_kv, plan_kv
from trioha.jobs.offsets import Goal, To, carry_out_offsets, plan_offsets
from trioha.jobs.telling import JobRefused, JobScope
from trioha.jobs.topic_changes import carry_out, plan_alter, plan_create, plan_delete
from trioha.jobs.topics import describe_topic
from trioha.testing import TriohaCluster, open_cluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


def scope_of(cluster: TriohaCluster) -> JobScope:
    return JobScope((cluster.namesrv,), 1.0)


def create(scope: JobScope, topic: str = "T", queues: int = 2) -> Flow[Any]:
    return plan_create(
        scope, topic, read_queues=queues, write_queues=queues, perm="rw", order=False
    )


Plan = Callable[[JobScope, int], Flow[Any]]
CASES: dict[str, tuple[Plan, Callable[[JobScope, Any], Flow[Any]]]] = {
    "create a topic": (lambda scope, n: create(scope, "New", 2 + n), carry_out),
    "alter a topic": (lambda scope, n: plan_alter(scope, "T", read_queues=4 + n), carry_out),
    "create a group": (
        lambda scope, n: plan_put_group(scope, "G", create=True, retry_max_times=n),
        carry_out_group,
    ),
    "change a setting": (
        lambda scope, n: plan_setting(scope, "broker-a", None, "shortPollingTimeMills", f"7{n}"),
        carry_out_setting,
    ),
    "put an entry": (lambda scope, n: plan_kv(scope, "shop", "region", f"eu-{n}"), carry_out_kv),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_second_of_two_operators_is_told_of_the_first(case: str) -> None:
    plan, do = CASES[case]
    async with open_cluster("single") as cluster:
        scope, driver = scope_of(cluster), cluster.observer
        await drive(carry_out(scope, await drive(create(scope), driver)), driver)
        first = await drive(plan(scope, 1), driver)
        second = await drive(plan(scope, 2), driver)
        assert (await drive(do(scope, first), driver)).done
        with pytest.raises(JobRefused, match="has changed since the plan was made"):
            await drive(do(scope, second), driver)


async def test_a_change_on_the_second_broker_alone_is_noticed() -> None:
    async with open_cluster("2m-noslave") as cluster:
        scope, driver = scope_of(cluster), cluster.observer
        made = await drive(plan_put_group(scope, "G", create=True), driver)
        await drive(carry_out_group(scope, made), driver)
        plan = await drive(plan_put_group(scope, "G", create=False, retry_max_times=3), driver)
        other = await drive(
            plan_put_group(scope, "G", create=False, retry_max_times=9, broker="broker-b"), driver
        )
        assert (await drive(carry_out_group(scope, other), driver)).done
        with pytest.raises(JobRefused, match="group G on broker-b has changed since the plan"):
            await drive(carry_out_group(scope, plan), driver)


async def test_offsets_are_not_set_by_a_plan_made_before_members_came() -> None:
    async with open_cluster("single") as cluster:
        scope, driver = scope_of(cluster), cluster.observer
        await drive(carry_out(scope, await drive(create(scope), driver)), driver)
        async with cluster.producer() as producer:
            for _ in range(4):
                await producer.send(Message("T", b"x"))
        assert len(await cluster.consume("T", "G")) == 4
        goal = Goal(To.EARLIEST)
        plan = await drive(plan_offsets(scope, "G", "T", goal), driver)
        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST)
        async with cluster.consumer("T", group="G", config=config):
            await trio.sleep(1)
            with pytest.raises(JobRefused, match="members of G have come or gone"):
                await drive(carry_out_offsets(scope, plan, goal), driver)


async def test_a_deletion_that_a_dead_broker_stops_tells_what_was_done() -> None:
    async with open_cluster("2m-noslave") as cluster:
        scope, driver = scope_of(cluster), cluster.observer
        await drive(carry_out(scope, await drive(create(scope), driver)), driver)
        plan = await drive(plan_delete(scope, "T"), driver)
        await cluster.broker("broker-b", 0).kill()
        with pytest.raises(Unreachable, match="done before: broker-a"):
            await drive(carry_out(scope, plan), driver)
        await cluster.broker("broker-b", 0).start()
        # Asked again, it deletes the rest.
        plan = await drive(plan_delete(scope, "T"), driver)
        assert (await drive(carry_out(scope, plan), driver)).done


async def test_a_topic_that_is_being_deleted_is_said_to_be() -> None:
    """The brokers have deleted it, the name server still has its route."""
    async with open_cluster("single") as cluster:
        scope, driver = scope_of(cluster), cluster.observer
        await drive(carry_out(scope, await drive(create(scope), driver)), driver)
        flow = carry_out(scope, await drive(plan_delete(scope, "T"), driver))
        effect = next(flow)
        while True:
            assert isinstance(effect, tuple)
            if effect[0].code == RequestCode.DELETE_TOPIC_IN_NAMESRV:
                break
            effect = flow.send(await drive(_pass_on(effect), driver))
        with pytest.raises(JobRefused, match="T is being deleted: broker-a has it no more"):
            await drive(describe_topic(scope, "T"), driver)
        flow.close()


def _pass_on(effect: Any) -> Flow[Any]:
    return (yield effect)
