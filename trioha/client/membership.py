"""Our share of the queues: asks a broker for the group's members and allocates."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from trioha.client.allocation import allocate_averagely
from trioha.client.cluster import Cluster, log, success
from trioha.client.errors import NoRoute
from trioha.client.message import MessageQueue
from trioha.client.route import MASTER_ID, TopicRoute
from trioha.client.route_table import RouteTable
from trioha.errors import CommandError, TriohaError, Unreachable
from trioha.wire.bodies import decode_consumer_list
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand


@attrs.define(eq=False)
class Membership:
    """One consumer's view of its group."""

    _cluster: Cluster
    _routes: RouteTable
    _group: str
    _broadcasting: bool = attrs.field(kw_only=True)

    async def shares(self, topics: Iterable[str]) -> dict[str, list[MessageQueue] | None]:
        """Our queues per topic; None where it cannot be known now, so nothing should change."""
        shares: dict[str, list[MessageQueue] | None] = {}
        for topic in topics:
            try:
                shares[topic] = await self._share(topic)
            except (Unreachable, NoRoute, CommandError) as error:
                log.info("share of %s is not known: %s", topic, error)
                shares[topic] = None
        return shares

    async def _share(self, topic: str) -> list[MessageQueue]:
        route = await self._routes.get(topic)
        if self._broadcasting:
            return list(route.read_queues)
        client_ids = await self._client_ids(route)
        if self._cluster.client_id not in client_ids:
            # A broker that has just restarted has not heard our heartbeat yet.
            raise NoRoute(f"the broker does not count us among {self._group}")
        return allocate_averagely(self._cluster.client_id, client_ids, route.read_queues)

    async def _client_ids(self, route: TopicRoute) -> tuple[str, ...]:
        """Return the client ids of the group, as the first broker that answers lists them."""
        failure: TriohaError = NoRoute(f"no broker is known for {route.topic}")
        for broker_name in route.brokers:
            node = route.reader(broker_name, MASTER_ID)
            if node is None:
                continue
            command = RemotingCommand(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
            )
            try:
                response = success(await self._cluster.request(node[1], command))
                return decode_consumer_list(response.body_bytes())
            except (Unreachable, CommandError) as error:
                failure = error
        raise failure
