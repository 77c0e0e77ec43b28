"""One seed gives one order of events, and a cluster leaves nothing behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from support.suite.sizes import sized

from trioha.testing import open_cluster, run_on_virtual_time, run_seeded


def test_one_seed_gives_one_order_of_events() -> None:
    first = run_seeded(_logged(7), 7).splitlines()
    for _ in range(sized(2, 99)):
        assert run_seeded(_logged(7), 7).splitlines() == first
    assert run_seeded(_logged(8), 8).splitlines() != first


def test_a_loop_in_another_thread_does_not_disturb_it() -> None:
    """It once did: both loops drew from one source, so the order of events followed real time."""
    first = run_seeded(_logged(7), 7).splitlines()
    over = threading.Event()
    thread = threading.Thread(target=trio.run, args=(_hop_until, over), name="another loop")
    thread.start()
    try:
        for _ in range(3):
            assert run_seeded(_logged(7), 7).splitlines() == first
    finally:
        over.set()
        thread.join()


async def _hop_until(over: threading.Event) -> None:
    async def hop() -> None:
        while not over.is_set():
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hop)
        nursery.start_soon(hop)


def _logged(seed: int) -> Callable[[], Awaitable[bytes]]:
    async def script() -> bytes:
        async with open_cluster("raft", seed=seed) as cluster:
            async with cluster.load("T") as load:
                await load.more(50)
                await (await cluster.master_of()).kill()
                await load.more(50)
            await cluster.consume("T")
            return cluster.timeline.log()

    return script


def test_clusters_leave_nothing_behind() -> None:
    """No task is left (their run would not end), no file and no descriptor."""

    async def script() -> Path:
        async with open_cluster("pair") as cluster:
            await cluster.broker("broker-a", 1).kill()
            return cluster.broker().root.parent

    roots = [run_on_virtual_time(script)]
    gc.collect()
    before = os.listdir("/proc/self/fd")
    roots += [run_on_virtual_time(script) for _ in range(sized(30, 1000))]
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not [root for root in roots if root.exists()]
