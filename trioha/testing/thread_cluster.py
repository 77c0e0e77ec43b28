"""A cluster of processes for tests without Trio: it is looked after in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import trio

from trioha.testing.cluster import TriohaCluster
from trioha.testing.machines import Layout
from trioha.testing.process_cluster import ProcessCluster, open_process_cluster

T = TypeVar("T")


class ThreadCluster:
    """A cluster of processes, for a synchronous test or one on asyncio."""

    def __init__(self, cluster: ProcessCluster, token: trio.lowlevel.TrioToken) -> None:
        self.namesrv = cluster.namesrv
        self.environment: Mapping[str, str] = cluster.environment
        """Environment variables that lead stock clients to the cluster."""
        self._cluster = cluster
        self._token = token

    def call(self, function: Callable[[TriohaCluster], Awaitable[T]]) -> T:
        """Await ``function(cluster)`` in the cluster's thread and return the result. Blocks.

        ``cluster.call(lambda cluster: cluster.broker("broker-a", 0).kill())``; on asyncio call it
        by `asyncio.to_thread`.
        """

        async def call() -> T:
            return await function(self._cluster)

        return trio.from_thread.run(call, trio_token=self._token)


@contextmanager
def start_cluster(
    layout: Layout = "pair",
    *,
    seed: int = 0,
    root: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[ThreadCluster]:
    """Start a cluster of processes; it is in sync, and all of them end with the block."""
    opened: Future[ThreadCluster] = Future()
    over = trio.Event()

    async def serve() -> None:
        async with open_process_cluster(
            layout, seed=seed, root=root, settings=settings or {}
        ) as cluster:
            opened.set_result(ThreadCluster(cluster, trio.lowlevel.current_trio_token()))
            await over.wait()

    def run() -> None:
        try:
            trio.run(serve)
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    thread = threading.Thread(target=run, name="trioha cluster")
    thread.start()
    try:
        cluster = opened.result()
        yield cluster
    finally:
        if not opened.exception():
            opened.result()._token.run_sync_soon(over.set)
        thread.join()
