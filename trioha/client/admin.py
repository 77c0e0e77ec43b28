"""Asks and changes a cluster: topics, routes, offsets, messages by id or key, progress, status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgpack
import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster, success
from trioha.client.decode import received_messages
from trioha.client.errors import NoRoute
from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.client.queue_requests import QueueRequests
from trioha.client.route import TopicRoute
from trioha.client.route_table import RouteTable
from trioha.errors import CommandError, TriohaError
from trioha.wire import fastjson
from trioha.wire.bodies import decode_kv_table, decode_topic_list
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.json_fields import integer, object_of
from trioha.wire.maps import decode_map
from trioha.wire.message_id import decode_message_id
from trioha.wire.names import AUTO_CREATE_TOPIC
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import ClusterInfo

_TOOLS_GROUP = "TOOLS_CONSUMER"
_FAR_FUTURE_MS = 2**63 - 1


@attrs.frozen
class QueueProgress:
    """Progress of a group in one queue."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset


class Admin:
    """Administration requests.

    Errors: every method raises Unreachable, NoRoute, or CommandError with the node's code.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._routes = RouteTable(cluster)

    async def cluster_info(self) -> ClusterInfo:
        """Return every broker and every cluster that the name server knows."""
        response = await self._cluster.ask_namesrv(
            RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        )
        return ClusterInfo.decode(success(response).body_bytes())

    async def topics(self) -> tuple[str, ...]:
        response = await self._cluster.ask_namesrv(
            RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        )
        return decode_topic_list(success(response).body_bytes())

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route, newly asked of the name server."""
        route = await self._routes.refresh(topic)
        if route is None:
            raise NoRoute(f"topic {topic} does not exist")
        return route

    async def create_topic(
        self,
        topic: str,
        *,
        queue_nums: int = 8,
        perm: int = Perm.READ | Perm.WRITE,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Create the topic, or change it, on every master of a cluster or on one broker.

        Without either, on every master. Its route is known once each master has registered it.
        """
        info = await self.cluster_info()
        names = set(info.broker_addr_table)
        if broker is not None:
            names &= {broker}
        if cluster is not None:
            names &= set(info.cluster_addr_table.get(cluster, ()))
        masters = [info.broker_addr_table[name].broker_addrs.get(0) for name in sorted(names)]
        addresses = [address for address in masters if address is not None]
        if not addresses:
            raise TriohaError(f"no master to create {topic} on: cluster {cluster}, broker {broker}")
        for address in addresses:
            fields: dict[str, ExtValue] = {
                "topic": topic,
                "defaultTopic": AUTO_CREATE_TOPIC,
                "readQueueNums": queue_nums,
                "writeQueueNums": queue_nums,
                "perm": perm,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
            command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            success(await self._cluster.request(address, command))

    async def wait_route(self, topic: str, queues: int = 1) -> TopicRoute:
        """Wait until the name server tells a route of `topic` with so many queues to write.

        The caller owns patience. Not ideal: name servers tell nobody, so this asks again.
        """
        while True:
            route = await self._routes.refresh(topic)
            if route is not None and len(route.write_queues) >= queues:
                return route
            await trio.sleep(0.05)

    async def node_status(self, address: str) -> Mapping[str, object]:
        """Return what a trioha node says of itself and its replication links.

        Errors: CommandError 3 from a node that is not trioha.
        """
        command = RemotingCommand(RequestCode.TRIOHA_NODE_STATUS)
        response = success(await self._cluster.request(address, command))
        return decode_map(response.body_bytes(), f"{address}: the status")

    async def resync(
        self, address: str, broker_name: str, *, dry_run: bool, force: bool = False
    ) -> Mapping[str, Any]:
        """Let a trioha slave set its log aside and copy its master's anew; what it gives up.

        Errors: CommandError from a master, from a node of another set, and without `force` from one
        whose log goes further than its master's.
        """
        body = msgpack.packb({"broker_name": broker_name, "dry_run": dry_run, "force": force})
        command = RemotingCommand(RequestCode.HA_RESYNC, {}, body)
        response = success(await self._cluster.request(address, command))
        return decode_map(response.body_bytes(), f"{address}: the answer")

    async def runtime_info(self, address: str) -> dict[str, str]:
        """A broker's own figures, as every RocketMQ broker tells them."""
        command = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        response = success(await self._cluster.request(address, command))
        return decode_kv_table(response.body_bytes())

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """The first offset and the next one, of each queue of the topic."""
        route = await self.route(topic)
        requests = self.queue_requests(_TOOLS_GROUP)
        return {
            queue: (await requests.min_offset(queue), await requests.max_offset(queue))
            for queue in route.read_queues
        }

    async def message_by_id(self, offset_msg_id: str) -> ReceivedMessage:
        """The message of a broker's id, from the broker whose address is in the id."""
        host, port, phy_offset = decode_message_id(offset_msg_id)
        response = await self._cluster.request(
            f"{host}:{port}",
            RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": phy_offset}),
        )
        return received_messages(success(response).body_bytes())[0]

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        count: int = 32,
        begin_ms: int = 0,
        end_ms: int = _FAR_FUTURE_MS,
    ) -> list[ReceivedMessage]:
        """Messages whose KEYS (or UNIQ_KEY, if `unique`) hold `key`, from every broker."""
        route = await self.route(topic)
        found: list[ReceivedMessage] = []
        for name in route.brokers:
            node = route.reader(name)
            if node is None:
                continue
            fields: dict[str, ExtValue] = {
                "topic": topic,
                "key": key,
                "maxNum": count,
                "beginTimestamp": begin_ms,
                "endTimestamp": end_ms,
                "_UNIQUE_KEY_QUERY": "true" if unique else None,
            }
            command = RemotingCommand(RequestCode.QUERY_MESSAGE, fields)
            response = await self._cluster.request(node[1], command)
            if response.code != ResponseCode.QUERY_NOT_FOUND:
                # The index compares hashes; we compare the keys.
                found += [
                    message
                    for message in received_messages(success(response).body_bytes())
                    if (message.msg_id == key if unique else key in message.keys)
                ]
        return found

    async def consumer_progress(self, group: str, topic: str) -> list[QueueProgress]:
        """Return the group's progress in each queue of the topic."""
        route = await self.route(topic)
        progress: list[QueueProgress] = []
        for name in route.brokers:
            node = route.reader(name)
            if node is None:
                continue
            fields: dict[str, ExtValue] = {"consumerGroup": group, "topic": topic}
            command = RemotingCommand(RequestCode.GET_CONSUME_STATS, fields)
            response = success(await self._cluster.request(node[1], command))
            table = object_of(fastjson.loads(response.body_bytes()), "stats").get("offsetTable")
            if not isinstance(table, fastjson.ObjectKeyMap):
                continue  # an empty table reads as a plain object
            for key, value in table.items():
                offsets = object_of(value, "offsets")
                progress.append(
                    QueueProgress(
                        MessageQueue.from_dict(key),
                        integer(offsets, "brokerOffset"),
                        integer(offsets, "consumerOffset"),
                    )
                )
        return sorted(progress, key=lambda entry: entry.queue)

    async def log_end(self, address: str) -> int:
        """Return the end offset of a broker's commitlog, whether it is trioha or Java."""
        try:
            return int(str((await self.node_status(address))["max_phy_offset"]))
        except CommandError:
            return int((await self.runtime_info(address))["commitLogMaxOffset"])

    def queue_requests(self, group: str) -> QueueRequests:
        """Offsets and progress of a group, queue by queue."""
        return QueueRequests(self._cluster, self._routes, group)


@asynccontextmanager
async def open_admin(
    namesrv: str, *, cluster_config: ClusterConfig | None = None
) -> AsyncIterator[Admin]:
    """Administration of the cluster of these name servers."""
    async with open_cluster(namesrv, cluster_config) as cluster:
        yield Admin(cluster)
