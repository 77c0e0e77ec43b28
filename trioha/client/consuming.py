"""Opens push consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.delivery import Handler
from trioha.client.message import MessageModel
from trioha.client.push_consumer import PushConsumer
from trioha.client.queue_task import PushConsumerConfig
from trioha.client.subscription import ALL, Subscription, subscriptions_of
from trioha.errors import TriohaError
from trioha.services.loop.background import open_background_nursery
from trioha.wire.names import retry_topic


@asynccontextmanager
async def open_push_consumer(
    namesrv: str,
    group: str,
    subscriptions: Mapping[str, str],
    handler: Handler | None = None,
    *,
    config: PushConsumerConfig | None = None,
    cluster_config: ClusterConfig | None = None,
) -> AsyncIterator[PushConsumer]:
    """A member of `group` that consumes `subscriptions` (topic → ``*`` or ``TagA || TagB``).

    With a handler, it is awaited for every message by `PushConsumerConfig.concurrency` tasks; an
    exception hands the message back for redelivery. Without one, iterate over the consumer: asking
    for the next message says that the one before has been handled.
    At the end of the block progress is committed and the group is told that we left.
    """
    config = config or PushConsumerConfig()
    if config.orderly and handler is None:
        raise TriohaError("orderly consumption needs a handler")
    async with open_cluster(namesrv, cluster_config) as cluster:
        wall_ms = cluster.clock.wall_ms()
        topics = subscriptions_of(subscriptions, wall_ms)
        if config.model is MessageModel.CLUSTERING:
            topic = retry_topic(group)
            topics[topic] = Subscription(topic, ALL, wall_ms)
        try:
            async with open_background_nursery() as nursery:
                consumer = PushConsumer(cluster, nursery, group, topics, handler, config)
                consumer.start()
                try:
                    yield consumer
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            # Every queue task has committed by now.
            await consumer.leave()
