"""Opens producers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.heartbeat import Heartbeat
from trioha.client.producer import Producer, ProducerConfig
from trioha.client.route_table import RouteTable
from trioha.services.loop.background import open_background_nursery
from trioha.wire.heartbeat import HeartbeatData, ProducerData


@asynccontextmanager
async def open_producer(
    namesrv: str,
    *,
    group: str = "DEFAULT_PRODUCER",
    config: ProducerConfig | None = None,
    cluster_config: ClusterConfig | None = None,
) -> AsyncIterator[Producer]:
    """A producer for the cluster of these name servers (``host:port;host:port``)."""
    async with (
        open_cluster(namesrv, cluster_config) as cluster,
        open_background_nursery() as nursery,
    ):
        routes = RouteTable(cluster)

        def data() -> HeartbeatData:
            return HeartbeatData(cluster.client_id, [ProducerData(group)], [])

        heartbeat = Heartbeat(cluster, data, routes.masters)
        cluster.greeting = heartbeat.command
        nursery.start_soon(routes.refresh_forever, name="client.routes")
        nursery.start_soon(heartbeat.send_forever, name="client.heartbeat")
        try:
            yield Producer(cluster, routes, group, config or ProducerConfig())
        finally:
            await heartbeat.unregister(producer_group=group, consumer_group=None)
            nursery.cancel_scope.cancel()
