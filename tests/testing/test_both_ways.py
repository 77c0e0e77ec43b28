"""The same tests on a pair, a set of three and a DLEDGER group, in process and as processes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import trio

from trioha.errors import TriohaError
from trioha.supervisor import NodeFailed
from trioha.testing import HandFailed, ThreadCluster, TriohaCluster, open_cluster, start_cluster


def everywhere() -> Iterator[Any]:
    for layout, processes in product(["pair", "three", "raft"], [False, True]):
        marks = [pytest.mark.trioha(layout=layout, processes=processes, seed=7)]
        if processes:
            marks.append(pytest.mark.slow)
        where = "processes" if processes else "in process"
        yield pytest.param(layout, marks=marks, id=f"{layout}, {where}")


EVERYWHERE = pytest.mark.parametrize("layout", list(everywhere()))
PROCESSES = pytest.mark.trioha(layout="pair", processes=True)


@EVERYWHERE
async def test_nothing_is_lost_when_the_master_is_killed(
    trioha_cluster: TriohaCluster, layout: str
) -> None:
    async with trioha_cluster.load("orders") as load:
        await load.more(50)
        await (await trioha_cluster.master_of()).kill()
        await trioha_cluster.fail_over(force=True)
        await load.more(50)
    received = await trioha_cluster.consume("orders", "billing")
    await trioha_cluster.assert_nothing_lost(load.sent, handled=received)


@EVERYWHERE
async def test_a_struck_follower_gets_in_sync_again(
    trioha_cluster: TriohaCluster, layout: str
) -> None:
    hand = "pause" if layout == "three" else "kill"
    master = await trioha_cluster.master_of()
    follower = next(broker for broker in trioha_cluster.brokers if broker is not master)
    async with trioha_cluster.load("T") as load:
        await load.more(20)
        await (follower.pause() if hand == "pause" else follower.kill())
        await load.more(20)
        await (follower.resume() if hand == "pause" else follower.start())
        await load.more(20)
    await trioha_cluster.assert_stores_equal()
    await trioha_cluster.assert_nothing_lost(load.sent)


@EVERYWHERE
async def test_a_planned_change_of_masters_is_seen_in_the_events(
    trioha_cluster: TriohaCluster, layout: str
) -> None:
    await trioha_cluster.fail_over(to=1)
    events = trioha_cluster.events()
    master = await trioha_cluster.master_of()
    assert master is trioha_cluster.broker("broker-a", 1)
    await events.wait_for("promoted", node=master.label)


@PROCESSES
@pytest.mark.slow
async def test_hands_that_need_a_cluster_in_process_say_so(trioha_cluster: TriohaCluster) -> None:
    broker = trioha_cluster.broker()
    with pytest.raises(HandFailed, match="cut needs a cluster in this process"):
        trioha_cluster.cut(broker)
    with pytest.raises(HandFailed, match="power_loss of broker-a-0 needs a cluster in this"):
        await broker.power_loss()


async def test_processes_on_virtual_time_are_refused(autojump_clock: Any) -> None:
    with pytest.raises(TriohaError, match="real processes need real time"):
        async with open_cluster("pair", processes=True):
            raise AssertionError("it opened")


@PROCESSES
@pytest.mark.slow
def test_an_application_on_asyncio_outlives_its_master(trioha_cluster: ThreadCluster) -> None:
    async def trioha(*arguments: str, stdin: bytes = b"") -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trioha", *arguments, "-n", trioha_cluster.namesrv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=trioha_cluster.environment,
        )
        out, _ = await process.communicate(stdin)
        assert process.returncode == 0
        return out

    async def script() -> None:
        await trioha("produce", "-t", "T", stdin=b"one\ntwo\n")
        await asyncio.to_thread(trioha_cluster.call, lambda one: one.broker().kill())
        await asyncio.to_thread(trioha_cluster.call, lambda one: one.fail_over(force=True))
        out = await trioha("consume", "-t", "T", "-g", "G", "--count", "2")
        assert b"one" in out
        assert b"two" in out

    asyncio.run(script())


@pytest.mark.slow
def test_a_cluster_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(NodeFailed, match="slaveTimeOuts"),
        start_cluster("single", settings={"slaveTimeOuts": 1}),
    ):
        raise AssertionError("it started")


@pytest.mark.slow
@pytest.mark.release
def test_starting_processes_is_measured(record_property: Any) -> None:
    """Report how long a pair of processes takes; a bound would measure the machine."""

    async def script() -> float:
        began_s = time.perf_counter()
        async with open_cluster("pair", processes=True):
            return time.perf_counter() - began_s

    times = sorted(trio.run(script) for _ in range(30))
    record_property("ready_s_p50", times[len(times) // 2])
