"""A resend that is hurt: two at once, a broker that dies in the middle, an answer that is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import pytest
import trio

from trioha.client import Message
from trioha.client.driving import drive
from trioha.failover.asking import Ask, Failed, Flow, Reply, Wait
from trioha.jobs.browse import Wanted, browse
from trioha.jobs.messages import FoundMessage
from trioha.jobs.resend import (
    ResendOrder,
    ResendProgress,
    ResendResult,
    copy_key,
    resend,
)
from trioha.jobs.telling import JobRefused, JobScope
from trioha.jobs.topic_changes import carry_out, plan_create
from trioha.testing import TriohaCluster, open_cluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

COUNT = 20
SEND = RequestCode.SEND_MESSAGE_V2


async def prepare(cluster: TriohaCluster) -> tuple[JobScope, list[FoundMessage]]:
    """Twenty messages in `source`, and an empty `target`."""
    scope = JobScope((cluster.namesrv,), 1.0)
    for topic in ("source", "target"):
        await drive(_create(scope, topic), cluster.observer)
    async with cluster.producer() as producer:
        for number in range(COUNT):
            await producer.send(Message("source", b"%d" % number))
    found: list[FoundMessage] = []
    await drive(browse(scope, Wanted("source"), found.append), cluster.observer)
    assert len(found) == COUNT
    return scope, found


def _create(scope: JobScope, topic: str, broker: str = "") -> Flow[object]:
    plan = yield from plan_create(
        scope, topic, read_queues=2, write_queues=2, perm="rw", order=False, broker=broker
    )
    return (yield from carry_out(scope, plan))


async def bodies(cluster: TriohaCluster) -> list[int]:
    return sorted(int(one.body) for one in await cluster.messages("target"))


async def drive_and_hurt(
    flow: Flow[ResendResult],
    cluster: TriohaCluster,
    send_number: int,
    hurt: Callable[[], Awaitable[None]],
    *,
    before: bool,
    lost: Failed = Failed("cut off"),  # noqa: B008
) -> ResendResult:
    """Run a resend; at one send, hurt the cluster. The answer to that send is `lost`."""
    sends = 0
    effect = next(flow)
    while True:
        is_it = False
        if isinstance(effect, tuple) and any(one.code == SEND for one in effect):
            sends += 1
            is_it = sends == send_number
        if is_it and before:
            await hurt()
        replies: list[Reply] = []
        if not is_it or lost.may_have_happened:
            replies = await drive(_pass_on(effect), cluster.observer)
        if is_it and not before:
            await hurt()
        if is_it:
            replies = [lost]
        try:
            effect = flow.send(replies)
        except StopIteration as end:
            result: ResendResult = end.value
            return result


def _pass_on(effect: tuple[Ask, ...] | Wait) -> Flow[list[Reply]]:
    return (yield effect)


@pytest.mark.parametrize("before", [True, False])
async def test_a_broker_that_dies_at_a_send_gets_the_rest_later_and_nothing_twice(
    before: bool,
) -> None:
    async with open_cluster("single") as cluster:
        scope, found = await prepare(cluster)
        order = ResendOrder("source", "target")
        broker = cluster.broker("broker-a", 0)
        flow = resend(scope, order, found)
        result = await drive_and_hurt(flow, cluster, 7, broker.kill, before=before)
        assert not result.done
        assert result.sent == 6
        (unknown,) = result.unknown
        assert unknown.startswith(f"{found[6].msg_id}: it is not known whether its copy ")
        await broker.start()
        # The lock of the one that broke off is still there: the same operator goes on.
        again = await drive(resend(scope, order, found), cluster.observer)
        assert (again.done, again.present) == (True, 6 if before else 7)
        assert await bodies(cluster) == list(range(COUNT))


async def test_a_send_that_did_not_leave_is_known_not_to_have_happened() -> None:
    """Its broker has died: sends to it are skipped, sends to the other broker are made."""
    async with open_cluster("2m-noslave") as cluster:
        scope, found = await prepare(cluster)
        order = ResendOrder("source", "target")
        broker = cluster.broker("broker-a", 0)
        first = next(number for number, one in enumerate(found, 1) if one.broker == "broker-a")
        flow = resend(scope, order, found)
        lost = Failed("broker-a:10911: Connection refused", may_have_happened=False)
        result = await drive_and_hurt(flow, cluster, first, broker.kill, before=True, lost=lost)
        mine = [one for one in found if one.broker == "broker-a"]
        assert (result.unknown, result.sent) == ([], COUNT - len(mine))
        assert len(result.skipped) == len(mine)
        assert result.skipped[0].endswith(f"broker-a can not be reached: {lost.reason}")
        assert result.skipped[-1].endswith("target takes no messages on broker-a now")
        await broker.start()
        again = await drive(resend(scope, order, found), cluster.observer)
        assert (again.sent, again.present) == (len(mine), COUNT - len(mine))
        assert await bodies(cluster) == list(range(COUNT))


async def test_a_name_server_that_dies_at_a_send_leaves_no_message_in_doubt() -> None:
    async with open_cluster("single") as cluster:
        scope, found = await prepare(cluster)
        flow = resend(scope, ResendOrder("source", "target"), found)
        result = await drive_and_hurt(flow, cluster, 7, cluster.stop_namesrv, before=False)
        assert (result.done, result.sent) == (True, COUNT)


async def test_a_failover_before_a_send_is_waited_for() -> None:
    async with open_cluster("pair") as cluster:
        scope, found = await prepare(cluster)

        async def fail_over() -> None:
            await cluster.wait_in_sync()
            await cluster.broker("broker-a", 0).kill()
            await cluster.fail_over(force=True)

        lost = Failed("broker-a: Connection refused", may_have_happened=False)
        flow = resend(scope, ResendOrder("source", "target"), found)
        result = await drive_and_hurt(flow, cluster, 7, fail_over, before=True, lost=lost)
        assert (result.done, result.sent, result.skipped) == (True, COUNT, [])
        assert await bodies(cluster) == list(range(COUNT))


async def test_a_failover_at_a_send_is_waited_for() -> None:
    """A pair's slave had the copy before the master died: the resend finds it, and goes on."""
    async with open_cluster("pair") as cluster:
        scope, found = await prepare(cluster)

        async def fail_over() -> None:
            await cluster.broker("broker-a", 0).kill()
            await cluster.fail_over(force=True)

        flow = resend(scope, ResendOrder("source", "target"), found)
        result = await drive_and_hurt(flow, cluster, 7, fail_over, before=False)
        assert (result.done, result.sent, result.unknown) == (True, COUNT, [])
        assert await bodies(cluster) == list(range(COUNT))


async def test_a_second_operator_is_told_of_the_first() -> None:
    async with open_cluster("single") as cluster:
        scope, found = await prepare(cluster)
        first = resend(scope, ResendOrder("source", "target", client_id="anna"), found)
        effect = next(first)
        for _ in range(8):  # the locks are held, and some are sent
            effect = first.send(await drive(_pass_on(effect), cluster.observer))
        second = resend(scope, ResendOrder("source", "target", client_id="bert"), found)
        with pytest.raises(JobRefused, match="another operator resends or purges queue"):
            await drive(second, cluster.observer)
        # The first is interrupted: its locks end, and nothing is sent twice.
        first.close()
        await trio.sleep(61)
        second = resend(scope, ResendOrder("source", "target", client_id="bert"), found)
        result = await drive(second, cluster.observer)
        assert (result.done, result.sent + result.present) == (True, COUNT)
        assert await bodies(cluster) == list(range(COUNT))


async def test_locks_are_held_between_two_messages_that_are_minutes_apart() -> None:
    async with open_cluster("single") as cluster:
        scope, found = await prepare(cluster)
        slow = resend(
            scope, ResendOrder("source", "target", rate_per_s=1 / 300, client_id="anna"), found
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, slow, cluster.operator)
            for _ in range(4):
                await trio.sleep(70)
                other = resend(scope, ResendOrder("source", "target", client_id="bert"), found)
                with pytest.raises(JobRefused, match="another operator"):
                    await drive(other, cluster.observer)
            nursery.cancel_scope.cancel()


async def test_locks_are_renewed_while_every_answer_takes_long() -> None:
    """Without a clock, the job counts its patience with each answer."""
    async with open_cluster("single") as cluster:
        scope, found = await prepare(cluster)
        flow = resend(attrs.evolve(scope, patience_s=10.0), ResendOrder("source", "target"), found)
        asked: list[int] = []
        effect = next(flow)
        with suppress(StopIteration):
            while True:
                assert isinstance(effect, tuple)
                asked += [one.code for one in effect]
                effect = flow.send(await drive(_pass_on(effect), cluster.observer))
        sends, locks = asked.count(SEND), asked.count(RequestCode.LOCK_BATCH_MQ)
        assert sends == COUNT
        assert locks >= COUNT // 2  # two requests of 10 s for each message, a lock lasts 60 s


async def test_what_no_master_can_lock_is_not_sent() -> None:
    """A slave tells the messages, and the target is on another broker: nothing else holds it up."""
    async with open_cluster("2m-2s-async") as cluster:
        scope, found = await prepare(cluster)
        await drive(_create(scope, "elsewhere", "broker-b"), cluster.observer)
        await cluster.wait_in_sync()
        await cluster.broker("broker-a", 0).kill()
        found.clear()
        await drive(browse(scope, Wanted("source"), found.append), cluster.observer)
        assert len(found) == COUNT
        order = ResendOrder("source", "elsewhere")
        result = await drive(resend(scope, order, found), cluster.observer)
        mine = [one for one in found if one.broker == "broker-a"]
        assert (result.sent, len(result.skipped)) == (COUNT - len(mine), len(mine))
        assert all("broker-a has no master now" in one for one in result.skipped)


async def test_a_rate_is_kept_and_progress_is_told() -> None:
    async with open_cluster("single") as cluster:
        scope, found = await prepare(cluster)
        told: list[int] = []

        def note(progress: ResendProgress) -> None:
            told.append(progress.sent)

        began_s = trio.current_time()
        order = ResendOrder("source", "target", rate_per_s=2.0)
        await drive(resend(scope, order, found, note), cluster.observer)
        assert told == list(range(1, COUNT + 1))
        assert 10.0 <= trio.current_time() - began_s < 12.0


async def test_a_copy_has_always_the_same_id_and_another_for_another_target() -> None:
    async with open_cluster("single") as cluster:
        _, found = await prepare(cluster)
        ids = {copy_key(one, target) for one in found for target in ("a", "b", "a")}
        assert len(ids) == 2 * COUNT
        assert all(len(one) == 32 for one in ids)
