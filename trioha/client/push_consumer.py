"""A member of a consumer group: takes its share of the queues and consumes what they bring.

Nursery tree: routes, heartbeat, commit, rebalance, workers, and one task per assigned queue. The
rebalance task alone decides which queue tasks there are; everything else only asks it to look
again (code 40 from a broker, a changed route, 20 s gone).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from trioha.client.cluster import Cluster, ClusterConfig, Groups, log, open_cluster
from trioha.client.delivery import Delivery, Handler
from trioha.client.heartbeat import Heartbeats
from trioha.client.membership import Membership
from trioha.client.message import MessageModel, MessageQueue, ReceivedMessage
from trioha.client.orderly import HeldLocks, OrderlyInbox
from trioha.client.queue_requests import QueueRequests
from trioha.client.queue_task import PushConsumerConfig, QueueTask
from trioha.client.reset_offset import decode_reset_offsets
from trioha.client.route_table import RouteTable
from trioha.client.running_info import HeldProgress, encode_running_info
from trioha.client.subscription import ALL, Subscription, subscriptions_of
from trioha.errors import RemoteProtocolError, TriohaError
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.channel import Handler as ChannelHandler
from trioha.services.loop.background import open_background_nursery
from trioha.wire.codes import RequestCode
from trioha.wire.heartbeat import ConsumeFromWhere, ConsumerData
from trioha.wire.names import retry_topic
from trioha.wire.remoting_command import RemotingCommand

_REBALANCE_AGAIN_FIRST_S = 1.0
_LAST_WORDS_S = 2.0


class PushConsumer:
    """A consumer that messages are pushed to: through a handler, or by iterating over it."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        group: str,
        subscriptions: dict[str, Subscription],
        handler: Handler | None,
        config: PushConsumerConfig,
    ) -> None:
        self.group = group
        self.client_id = cluster.client_id
        self._nursery = nursery
        self._subscriptions = subscriptions
        self._handler = handler
        self._config = config
        self._routes = RouteTable(cluster, self._look_again)
        self._requests = QueueRequests(cluster, self._routes, group)
        broadcasting = config.model is MessageModel.BROADCASTING
        self._membership = Membership(cluster, self._routes, group, broadcasting=broadcasting)
        self._delivery = Delivery(self._requests, config, nursery, redeliver=not broadcasting)
        self._locks = HeldLocks(cluster, self._routes, group)
        self._heartbeat = Heartbeats(cluster, self._routes.addresses)
        self._namesrv = ";".join(cluster.namesrvs)
        self._start_ms = cluster.clock.wall_ms()
        self._greeted: set[str] = set()
        self._tasks: dict[MessageQueue, QueueTask] = {}
        self._inboxes: dict[MessageQueue, OrderlyInbox] = {}
        self._wanted = trio.Event()
        self._last: ReceivedMessage | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(queue for queue, task in self._tasks.items() if not task.released)

    def start(self) -> None:
        """Start the tasks of this consumer in its nursery."""
        start_soon = self._nursery.start_soon
        start_soon(self._routes.refresh_forever, name="client.routes")
        start_soon(self._heartbeat.send_forever, name="client.heartbeat")
        start_soon(self._commit_forever, name="client.commit")
        start_soon(self._rebalance_forever, name="client.rebalance")
        if self._config.orderly:
            start_soon(self._locks.renew_forever, lambda: self.queues, name="client.locks")
        elif self._handler is not None:
            for number in range(self._config.concurrency):
                start_soon(self._delivery.work, self._handler, name=f"client.worker[{number}]")

    def __aiter__(self) -> PushConsumer:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message. Asking for it says that the one before has been handled."""
        if self._last is not None:
            self.ack(self._last)
            self._last = None
        _, self._last = await self._delivery.take()
        return self._last

    def ack(self, message: ReceivedMessage) -> None:
        """The message has been handled: progress may pass it. For use without a handler."""
        task = self._tasks.get(message.queue)
        if task is not None:
            task.ack(message)

    async def hand_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """The message could not be handled: redeliver it later. For use without a handler."""
        if self._last is message:
            self._last = None
        task = self._tasks.get(message.queue)
        if task is not None:
            await self._delivery.hand_back(task, message, delay_level)

    async def commit(self) -> None:
        """Tell the brokers the progress now."""
        async with trio.open_nursery() as nursery:
            for task in list(self._tasks.values()):
                nursery.start_soon(task.commit, name=f"client.commit[{task.queue}]")

    async def leave(self) -> None:
        """Last words to the brokers, so that the group goes on without us at once."""
        await self._heartbeat.unregister(producer_group=None, consumer_group=self.group)

    async def _commit_forever(self) -> None:
        while True:
            await trio.sleep(self._config.commit_interval_s)
            await self.commit()

    async def _rebalance_forever(self) -> None:
        again_s = _REBALANCE_AGAIN_FIRST_S
        while True:
            self._wanted = trio.Event()
            complete = await self._rebalance()
            if complete:
                again_s = _REBALANCE_AGAIN_FIRST_S
            with trio.move_on_after(self._config.rebalance_interval_s if complete else again_s):
                await self._wanted.wait()
            if not complete:
                again_s = min(again_s * 2, self._config.rebalance_interval_s)

    async def _rebalance(self) -> bool:
        """Make the queue tasks match our share. False when some share is not known yet."""
        for topic in self._subscriptions:
            if self._routes.known(topic) is None:
                await self._membership.shares([topic])
        # A broker lists us only once it has heard of us.
        if self._routes.addresses() - self._greeted:
            self._greeted = self._routes.addresses()
            await self._heartbeat.send()
        shares = await self._membership.shares(self._subscriptions)
        if None in shares.values():
            self._greeted.clear()
        for topic, share in shares.items():
            if share is not None:
                await self._take_share(topic, share)
        return None not in shares.values()

    async def _take_share(self, topic: str, share: list[MessageQueue]) -> None:
        for queue, task in self._tasks.items():
            if queue.topic == topic and queue not in share and not task.released:
                log.info("%s is no longer ours", queue)
                task.release()
        added = [queue for queue in share if queue not in self._tasks]
        if added and self._config.orderly:
            await self._locks.acquire(added)
            added = [queue for queue in added if self._locks.holds(queue)]
        for queue in added:
            log.info("%s is ours", queue)
            task = self._tasks[queue] = QueueTask(
                queue,
                self._subscriptions[topic],
                requests=self._requests,
                routes=self._routes,
                config=self._config,
                deliver=self._deliver,
            )
            self._nursery.start_soon(self._serve_queue, task, name=f"client.queue[{queue}]")

    async def _serve_queue(self, task: QueueTask) -> None:
        queue = task.queue
        try:
            if self._config.orderly:
                await self._serve_in_order(task)
            else:
                await task.run()
        finally:
            del self._tasks[queue]
            # It may be ours again by now.
            self._look_again()

    async def _serve_in_order(self, task: QueueTask) -> None:
        assert self._handler is not None, "orderly consumption without a handler"
        inbox = self._inboxes[task.queue] = OrderlyInbox(task, self._locks)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(inbox.consume, self._handler, name=f"client.order[{task.queue}]")
                await task.run()
                inbox.close()
        finally:
            del self._inboxes[task.queue]
            await task.commit_last()
            with trio.move_on_after(_LAST_WORDS_S, shield=True):
                await self._locks.release(task.queue)

    def _deliver(self, task: QueueTask, messages: Sequence[ReceivedMessage]) -> None:
        if self._config.orderly:
            self._inboxes[task.queue].put(messages)
        else:
            self._delivery.deliver(task, messages)

    def _look_again(self) -> None:
        self._wanted.set()

    def on_members_changed(
        self, channel: Channel, command: RemotingCommand, instant: Instant
    ) -> None:
        """Rebalance: a broker tells that members of the group have come or gone."""
        self._look_again()

    def on_reset_offsets(
        self, channel: Channel, command: RemotingCommand, instant: Instant
    ) -> None:
        """Consume from other offsets, as an operator has asked the broker."""
        try:
            offsets = decode_reset_offsets(command.body_bytes())
        except RemoteProtocolError as error:
            log.warning("reset of offsets by %s not understood: %s", channel.peer, error)
            return
        for queue, offset in offsets.items():
            task = self._tasks.get(queue)
            if task is not None:
                task.reset(offset)

    def on_running_info(
        self, channel: Channel, command: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Tell an operator what this consumer does, by way of the broker that asks."""
        body = encode_running_info(
            self._namesrv,
            self._start_ms,
            self._config.orderly,
            self._config.concurrency,
            [one.data() for one in self._subscriptions.values()],
            [
                HeldProgress(
                    queue,
                    held.commit_offset,
                    held.message_count,
                    held.bytes,
                    self._locks.holds(queue),
                )
                for queue, task in sorted(self._tasks.items())
                if not task.released and (held := task.held) is not None
            ],
        )
        return command.response(body=body)


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
    cluster_config = cluster_config or ClusterConfig()
    wall_ms = cluster_config.clock.wall_ms()
    topics = subscriptions_of(subscriptions, wall_ms)
    if config.model is MessageModel.CLUSTERING:
        topic = retry_topic(group)
        topics[topic] = Subscription(topic, ALL, wall_ms)
    membership = ConsumerData(
        group,
        message_model=config.model,
        consume_from_where=ConsumeFromWhere(config.consume_from.value),
        subscriptions=[subscription.data() for subscription in topics.values()],
    )
    # Brokers ask on connections, and connections are opened for the consumer's requests alone.
    handlers: dict[int, ChannelHandler] = {
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: lambda *told: consumer.on_members_changed(*told),
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: lambda *told: consumer.on_reset_offsets(*told),
        RequestCode.GET_CONSUMER_RUNNING_INFO: lambda *asked: consumer.on_running_info(*asked),
    }
    groups = Groups(consumers=(membership,))
    async with open_cluster(namesrv, cluster_config, groups=groups, handlers=handlers) as cluster:
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
