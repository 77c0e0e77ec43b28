"""Asks what a collector wants to know, on Trio: the shell around `trioha.watch.collector`.

Each question is a task with its own patience, so one silent node holds up nobody else.
"""

from __future__ import annotations

import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.errors import TriohaError
from trioha.watch.collector import Collector, Interest, Raw
from trioha.watch.questions import Question
from trioha.wire.address import parse_namesrvs

QUESTIONS_MAX = 128
"""Out at the same time."""
_ONCE_PERIOD_MS = 86_400_000  # so long that nothing is due twice


class Asker:
    """Asks for a collector; its questions are tasks of `nursery`."""

    def __init__(self, cluster: Cluster, collector: Collector, nursery: trio.Nursery) -> None:
        self._cluster = cluster
        self._collector = collector
        self._nursery = nursery
        self._limit = trio.CapacityLimiter(QUESTIONS_MAX)
        self._out_count = 0
        self._quiet = trio.Event()

    def ask_due(self) -> None:
        """Send what is due now, and what the answers then make due."""
        for question in self._collector.due(self._cluster.clock.instant()):
            self._out_count += 1
            name = f"watch.ask[{question.address} {question.key}]"
            self._nursery.start_soon(self._ask, question, name=name)

    async def wait_quiet(self) -> None:
        """Wait until every question is answered or given up. The caller owns patience."""
        while self._out_count:
            self._quiet = trio.Event()
            await self._quiet.wait()

    async def _ask(self, question: Question) -> None:
        clock = self._cluster.clock
        async with self._limit:
            try:
                response = await self._cluster.request(question.address, question.command())
            except TriohaError as error:
                self._collector.failed(question, str(error), clock.instant())
                makes_due = False
            else:
                makes_due = self._collector.answered(question, response, clock.instant())
        if makes_due:
            self.ask_due()
        self._out_count -= 1
        if not self._out_count:
            self._quiet.set()


async def look_once(namesrv: str, *, timeout_s: float, interest: Interest | None = None) -> Raw:
    """Return a cluster's answers to one round of questions, each with a timeout of its own.

    A node that does not answer is in it, with the reason.

    Errors: TriohaError when `namesrv` is not a list of addresses.
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    namesrvs = parse_namesrvs(namesrv)
    collector = Collector(namesrvs, period_ms=_ONCE_PERIOD_MS, interest=interest)
    async with open_cluster(namesrv, config) as cluster, trio.open_nursery() as nursery:
        asker = Asker(cluster, collector, nursery)
        asker.ask_due()
        await asker.wait_quiet()
        return collector.raw(cluster.clock.wall_ms())
