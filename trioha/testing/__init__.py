"""Clusters for tests: whole brokers, hands to hurt them, eyes to see what became of messages.

::

    async with open_cluster("pair", seed=7) as cluster:
        async with cluster.load("orders") as load:
            await load.more(100)
            await cluster.broker("broker-a", 0).kill()
            await cluster.fail_over(to=1, force=True)
            await load.more(100)
        received = await cluster.consume("orders", "billing")
        await cluster.assert_nothing_lost(load.sent, handled=received)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from trioha.testing.cluster import TriohaCluster
from trioha.testing.cluster_broker import ClusterBroker, HandFailed
from trioha.testing.load import Load
from trioha.testing.machines import LAYOUTS, Layout, MachineSpec
from trioha.testing.memory_cluster import open_memory_cluster
from trioha.testing.process_cluster import open_process_cluster
from trioha.testing.story import MessageLost
from trioha.testing.thread_cluster import ThreadCluster, start_cluster
from trioha.testing.timeline import EventStream, NotSeen, TimelineEvent
from trioha.testing.virtual_time import run_on_virtual_time, run_seeded

__all__ = [
    "LAYOUTS",
    "ClusterBroker",
    "EventStream",
    "HandFailed",
    "Layout",
    "Load",
    "MachineSpec",
    "MessageLost",
    "NotSeen",
    "ThreadCluster",
    "TimelineEvent",
    "TriohaCluster",
    "open_cluster",
    "run_on_virtual_time",
    "run_seeded",
    "start_cluster",
]


@asynccontextmanager
async def open_cluster(
    layout: Layout = "pair",
    *,
    seed: int = 0,
    processes: bool = False,
    root: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[TriohaCluster]:
    """Open a cluster that is in sync; all of it ends with the block.

    `layout` is one of `LAYOUTS`, or rows of (broker name, number, role). `settings` are brokers'
    settings by RocketMQ's keys. `root` keeps the stores; else they are deleted.

    Under a `trio.testing.MockClock` with autojump, hours pass in milliseconds, and one seed gives
    one order of events. Under another clock everything runs in real time. With `processes` each
    node is a process on loopback ports, for clients in any language; some hands do not work then.
    """
    open_it = open_process_cluster if processes else open_memory_cluster
    async with open_it(layout, seed=seed, root=root, settings=settings or {}) as cluster:
        yield cluster
