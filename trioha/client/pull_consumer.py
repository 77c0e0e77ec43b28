"""Reads queues at the caller's pace: which offset, how many, when to commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.message import MessageQueue, PullResult
from trioha.client.queue_requests import QueueRequests
from trioha.client.route_table import RouteTable
from trioha.client.subscription import ALL, Subscription
from trioha.services.loop.background import open_background_nursery


class PullConsumer:
    """Reads for a group without being a member: nobody rebalances because of it.

    Errors: every method raises Unreachable, NoRoute, or CommandError with the broker's code.
    """

    def __init__(self, requests: QueueRequests, routes: RouteTable) -> None:
        self._requests = requests
        self._routes = routes
        # Per queue: where the broker wants the next pull to go.
        self._broker_ids: dict[MessageQueue, int] = {}

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues to read."""
        return (await self._routes.get(topic)).read_queues

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        expression: str = ALL,
        wait_s: float = 0.0,
    ) -> PullResult:
        """Messages from `offset` on; at the end of the queue wait up to `wait_s` for more."""
        result = await self._requests.pull(
            queue,
            offset,
            count,
            Subscription(queue.topic, expression),
            suspend_s=wait_s,
            broker_id=self._broker_ids.get(queue, 0),
        )
        self._broker_ids[queue] = result.suggested_broker_id
        return result

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._requests.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return await self._requests.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, wall_ms: int) -> int:
        """Return the offset of the message stored nearest to a time."""
        return await self._requests.offset_at(queue, wall_ms)

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """The group's progress, None when it has none."""
        return await self._requests.committed_offset(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit `offset`: all below it is handled."""
        await self._requests.commit(queue, offset)


@asynccontextmanager
async def open_pull_consumer(
    namesrv: str, *, group: str, cluster_config: ClusterConfig | None = None
) -> AsyncIterator[PullConsumer]:
    """A reader of queues for the cluster of these name servers."""
    async with (
        open_cluster(namesrv, cluster_config) as cluster,
        open_background_nursery() as nursery,
    ):
        routes = RouteTable(cluster)
        nursery.start_soon(routes.refresh_forever, name="client.routes")
        yield PullConsumer(QueueRequests(cluster, routes, group), routes)
        nursery.cancel_scope.cancel()
