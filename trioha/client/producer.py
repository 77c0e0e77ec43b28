"""Sends messages (DefaultMQProducerImpl.java, with a clearer word on what is not known).

Theory of operation. A send picks a queue, and with it a broker. A refusal that another broker may
not repeat, a connection that cannot be opened, and one that breaks are tried again elsewhere,
`attempts_max` times in all. What broke after the request had left, and what a DLEDGER master says
that it does not know (it lost its leadership meanwhile), may be stored; if no later
attempt succeeds the caller is told so (SendOutcomeUnknown), never that it failed. A broker that is
silent for `send_timeout_s` is not tried again: the message is most likely stored there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from trioha.client.cluster import NO_HANDLERS, Cluster, ClusterConfig, Groups, open_cluster
from trioha.client.errors import NoRoute, SendOutcomeUnknown, SendRefused
from trioha.client.heartbeat import Heartbeats
from trioha.client.message import Message, MessageQueue, SendResult, SendStatus
from trioha.client.route import QueueSelector, TopicRoute, queue_for_key
from trioha.client.route_table import RouteTable
from trioha.client.send_header import (
    DEFAULT_TOPIC_QUEUE_NUMS,
    recall_command,
    send_batch_command,
    send_command,
)
from trioha.errors import TriohaError, Unreachable
from trioha.remoting.channel import Handler
from trioha.services.loop.background import open_background_nursery
from trioha.wire.codes import ResponseCode
from trioha.wire.heartbeat import ProducerData
from trioha.wire.message_id import UniqueIdGenerator
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.properties import Property
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.timers import RecallHandle

_STORED = {status.value: status for status in SendStatus}
# Java's list, and SYSTEM_BUSY: the broker says it has not looked at the message.
_RETRIABLE = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
}
# The broker may have been demoted: the name server knows the new master.
NOT_MASTER = {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION}
_SAME_BROKER_PAUSE_S = 0.1

Encode = Callable[[MessageQueue], RemotingCommand]


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """Attempts, timeout and size limit of a producer's sends."""

    attempts_max: int = 3
    send_timeout_s: float = 6.0
    """Timeout of one attempt. Above the broker's own waits for disk (5 s) and slave (3 s)."""
    body_bytes_max: int = 4 << 20
    """Largest body in bytes; the broker's default (maxMessageSize)."""


class Producer:
    """A member of a producer group. Any number of tasks may send at once."""

    def __init__(
        self, cluster: Cluster, routes: RouteTable, group: str, config: ProducerConfig
    ) -> None:
        self.group = group
        self._cluster = cluster
        self._routes = routes
        self._config = config
        self._selector = QueueSelector(cluster.config.rng)
        seed = cluster.config.rng.getrandbits(31)
        self._next_id = UniqueIdGenerator(
            cluster.host, cluster.config.process_id & 0xFFFF, seed, cluster.clock.wall_ms
        )

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, key: str | None = None
    ) -> SendResult:
        """Send and await what the broker made of it.

        `queue` or `key` (a sharding key) keep related messages in one queue, so in order; without
        them queues take turns.
        Errors: SendRefused, SendOutcomeUnknown, NoRoute, Unreachable (no name server).
        Cancellation: the message may have been stored.
        """
        self._check_body(message)
        msg_id = message.properties.get(Property.UNIQ_KEY) or self._next_id()
        wall_ms = self._cluster.clock.wall_ms()

        def encode(target: MessageQueue) -> RemotingCommand:
            return send_command(self.group, message, msg_id, target, wall_ms)

        return await self._send(message.topic, msg_id, encode, queue, key)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
    ) -> SendResult:
        """Send several messages of one topic in one request, into one queue.

        They are stored together or not at all. `queue_offset` is the first one's.
        Errors: as `send`; TriohaError for a batch no broker takes.
        """
        if not messages:
            raise TriohaError("a batch needs at least one message")
        topic = messages[0].topic
        for message in messages:
            self._check_body(message)
            is_delayed = message.delay_level or message.delay_s or message.deliver_at_ms
            if message.topic != topic or is_delayed:
                raise TriohaError("a batch is of one topic and without delay")
        ids = [m.properties.get(Property.UNIQ_KEY) or self._next_id() for m in messages]
        wall_ms = self._cluster.clock.wall_ms()

        def encode(target: MessageQueue) -> RemotingCommand:
            return send_batch_command(self.group, messages, ids, target, wall_ms)

        return await self._send(topic, ",".join(ids), encode, queue, key)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, key: str | None = None
    ) -> str:
        """Send and await no answer; returns the `msg_id`. It may be lost without a word.

        Errors: NoRoute, Unreachable.
        """
        self._check_body(message)
        msg_id = message.properties.get(Property.UNIQ_KEY) or self._next_id()
        target, address = await self._target(message.topic, queue, key, ())
        wall_ms = self._cluster.clock.wall_ms()
        command = send_command(self.group, message, msg_id, target, wall_ms)
        await self._cluster.oneway(address, command)
        return msg_id

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take back a delayed message that is not due yet; returns its `msg_id`.

        `recall_handle` is that of the `SendResult`. A second recall succeeds as well.
        Errors: SendRefused when the message is delivered or about to be (ILLEGAL_OPERATION), or
        the broker cannot; TriohaError for no handle; NoRoute, Unreachable.
        """
        try:
            broker_name = RecallHandle.decode(recall_handle).broker_name
        except ValueError as error:
            raise TriohaError(str(error)) from None
        address = (await self._route(topic)).master(broker_name)
        if address is None:
            await self._refresh(topic)
            raise NoRoute(f"no master of {broker_name} is known, where the message waits")
        command = recall_command(self.group, topic, recall_handle, broker_name)
        response = await self._cluster.request(address, command)
        if response.code != ResponseCode.SUCCESS:
            if response.code in NOT_MASTER:
                await self._refresh(topic)
            raise SendRefused(response.code, response.remark or "", broker_name)
        return response.ext_str("msgId", "")

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues that take messages now, in the order `key` counts them."""
        return (await self._route(topic)).write_queues

    async def _send(
        self,
        topic: str,
        msg_id: str,
        encode: Encode,
        queue: MessageQueue | None,
        key: str | None,
    ) -> SendResult:
        avoid: set[str] = set()
        refused: TriohaError | None = None
        unknown: str | None = None
        for _ in range(self._config.attempts_max):
            # Until the request itself, nothing of this attempt has left us.
            try:
                target, address = await self._target(topic, queue, key, avoid)
            except (NoRoute, Unreachable) as error:
                refused = error
                break
            if target.broker_name in avoid:
                await trio.sleep(_SAME_BROKER_PAUSE_S)
            avoid.add(target.broker_name)
            try:
                client = await self._cluster.connection(address)
            except Unreachable as error:
                refused = error
                await self._refresh(topic)
                continue
            try:
                with trio.move_on_after(self._config.send_timeout_s) as patience:
                    response = await client.request(encode(target))
            except Unreachable as error:
                unknown = str(error)
                await self._refresh(topic)
                continue
            if patience.cancelled_caught:
                unknown = f"{address} did not answer within {self._config.send_timeout_s:g} s"
                break
            status = _STORED.get(response.code)
            if status is not None:
                return SendResult(
                    status,
                    msg_id,
                    response.ext_str("msgId", ""),
                    MessageQueue(
                        topic, target.broker_name, response.ext_int("queueId", target.queue_id)
                    ),
                    response.ext_int("queueOffset", 0),
                    response.ext_str("recallHandle", ""),
                )
            if (response.remark or "").startswith(OUTCOME_UNKNOWN):
                unknown = f"{address} says: {response.remark}"
                await self._refresh(topic)
                continue
            refused = SendRefused(response.code, response.remark or "", target.broker_name)
            if response.code not in _RETRIABLE:
                break
            if response.code in NOT_MASTER:
                await self._refresh(topic)
        if unknown is not None:
            raise SendOutcomeUnknown(unknown, msg_id)
        assert refused is not None, f"{self._config.attempts_max} attempts and no reason"
        raise refused

    async def _target(
        self, topic: str, queue: MessageQueue | None, key: str | None, avoid: set[str] | tuple[()]
    ) -> tuple[MessageQueue, str]:
        route = await self._route(topic)
        if queue is not None:
            target: MessageQueue | None = queue
        elif key is not None:
            target = queue_for_key(route, key)
        else:
            target = self._selector.select(route, avoid)
        address = route.master(target.broker_name) if target is not None else None
        if target is None or address is None:
            await self._refresh(topic)
            raise NoRoute(f"no broker takes messages of topic {topic} now")
        return target, address

    async def _route(self, topic: str) -> TopicRoute:
        return await self._routes.get_for_send(topic, DEFAULT_TOPIC_QUEUE_NUMS)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except Unreachable:
            return  # the next attempt says so, if it matters

    def _check_body(self, message: Message) -> None:
        if len(message.body) > self._config.body_bytes_max:
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"body of {len(message.body)} bytes exceeds {self._config.body_bytes_max}",
                "the client",
            )


@attrs.frozen
class ProducerMembership:
    """Parts of a client that a member of a producer group uses."""

    cluster: Cluster
    routes: RouteTable
    heartbeat: Heartbeats
    nursery: trio.Nursery


@asynccontextmanager
async def open_producer(
    namesrv: str,
    *,
    group: str = "DEFAULT_PRODUCER",
    config: ProducerConfig | None = None,
    cluster_config: ClusterConfig | None = None,
) -> AsyncIterator[Producer]:
    """A producer for the cluster of these name servers (``host:port;host:port``)."""
    async with open_membership(namesrv, group, cluster_config) as member:
        yield Producer(member.cluster, member.routes, group, config or ProducerConfig())


@asynccontextmanager
async def open_membership(
    namesrv: str,
    group: str,
    cluster_config: ClusterConfig | None,
    *,
    handlers: Mapping[int, Handler] = NO_HANDLERS,
) -> AsyncIterator[ProducerMembership]:
    """Keep the routes fresh, and this client registered with the brokers of its topics."""
    groups = Groups(producers=(ProducerData(group),))
    async with (
        open_cluster(namesrv, cluster_config, groups=groups, handlers=handlers) as cluster,
        open_background_nursery() as nursery,
    ):
        routes = RouteTable(cluster)
        heartbeat = Heartbeats(cluster, routes.masters)
        nursery.start_soon(routes.refresh_forever, name="client.routes")
        nursery.start_soon(heartbeat.send_forever, name="client.heartbeat")
        try:
            yield ProducerMembership(cluster, routes, heartbeat, nursery)
        finally:
            await heartbeat.unregister(producer_group=group, consumer_group=None)
            nursery.cancel_scope.cancel()
