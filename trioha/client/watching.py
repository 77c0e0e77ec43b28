"""Asks what a collector wants to know, on Trio: the shell around `trioha.watch.collector`.

All questions of a round are out at once, each with its own patience, so one silent node costs the
round that patience and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.errors import TriohaError
from trioha.remoting.channel import Instant
from trioha.watch.collector import Collector, Interest, Raw
from trioha.watch.questions import Question

QUESTIONS_MAX = 128
"""Out at the same time."""
_ONCE_PERIOD_MS = 86_400_000  # so long that nothing is due twice


def addresses_of(namesrv: str) -> tuple[str, ...]:
    """The name servers of ``HOST:PORT;HOST:PORT``."""
    return tuple(part.strip() for part in namesrv.replace(",", ";").split(";") if part.strip())


async def ask_due(cluster: Cluster, collector: Collector) -> None:
    """Ask everything that is due now, and await the answers."""
    await _ask_all(cluster, collector, collector.due(cluster.clock.instant()))


async def look_once(namesrv: str, *, timeout_s: float, interest: Interest | None = None) -> Raw:
    """What a cluster answers to one round of questions, each node with patience of its own.

    Who does not answer is in it, with the reason.

    Errors: TriohaError when `namesrv` is not a list of addresses.
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    collector = Collector(addresses_of(namesrv), period_ms=_ONCE_PERIOD_MS, interest=interest)
    async with open_cluster(namesrv, config) as cluster:
        # Answers name further nodes to ask: until nobody new is named.
        while questions := collector.due(cluster.clock.instant()):
            await _ask_all(cluster, collector, questions)
        return collector.raw(cluster.clock.wall_ms())


async def _ask_all(cluster: Cluster, collector: Collector, questions: Sequence[Question]) -> None:
    limit = trio.CapacityLimiter(QUESTIONS_MAX)
    async with trio.open_nursery() as nursery:
        for question in questions:
            nursery.start_soon(
                _ask, cluster, collector, question, limit, name=f"watch.ask[{question.address}]"
            )


async def _ask(
    cluster: Cluster, collector: Collector, question: Question, limit: trio.CapacityLimiter
) -> None:
    async with limit:
        try:
            response = await cluster.request(question.address, question.command())
        except TriohaError as error:
            collector.failed(question, str(error), _now(cluster))
        else:
            collector.answered(question, response, _now(cluster))


def _now(cluster: Cluster) -> Instant:
    return cluster.clock.instant()
