"""Orderly consumption: one message of a queue at a time, and only while the broker's lock is ours.

Theory of operation (ConsumeMessageOrderlyService.java). Rebalancing alone lets two members read
one queue for a moment; the lock (group, queue → client id) closes that gap. The broker forgets it
60 s after the last renewal, we renew every 20 s and trust it for 30 s. A message whose handler
fails is tried again after a second, and the queue waits behind it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import trio

from trioha.client.cluster import Cluster, log, success
from trioha.client.delivery import Handler
from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.client.queue_task import QueueTask
from trioha.client.route_table import RouteTable
from trioha.errors import CommandError, Unreachable
from trioha.wire.bodies import LockBatchBody, decode_locked_queues
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

_RENEW_S = 20.0
_TRUST_S = 30.0
_TRY_AGAIN_S = 1.0


class HeldLocks:
    """The locks one client holds at the brokers."""

    def __init__(self, cluster: Cluster, routes: RouteTable, group: str) -> None:
        self._cluster = cluster
        self._routes = routes
        self._group = group
        self._trusted_until_s: dict[MessageQueue, float] = {}
        self._renewed = trio.Event()

    def holds(self, queue: MessageQueue) -> bool:
        return trio.current_time() < self._trusted_until_s.get(queue, -math.inf)

    async def wait_held(self, queue: MessageQueue) -> None:
        while not self.holds(queue):
            await self._renewed.wait()

    async def acquire(self, queues: Iterable[MessageQueue]) -> None:
        """Ask for these locks; `holds` says which were given."""
        for address, group in self._by_master(queues).items():
            asked_s = trio.current_time()
            command = RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=self._body(group))
            try:
                response = success(await self._cluster.request(address, command))
                locked = decode_locked_queues(response.body_bytes())
            except (Unreachable, CommandError) as error:
                log.warning("locks not renewed at %s: %s", address, error)
                continue
            for queue in locked:
                self._trusted_until_s[queue] = asked_s + _TRUST_S
        self._renewed.set()
        self._renewed = trio.Event()

    async def renew_forever(self, queues: Callable[[], Iterable[MessageQueue]]) -> None:
        while True:
            await trio.sleep(_RENEW_S)
            await self.acquire(queues())

    async def release(self, queue: MessageQueue) -> None:
        """Give a lock back, so that the next owner need not wait for it."""
        self._trusted_until_s.pop(queue, None)
        for address, group in self._by_master([queue]).items():
            command = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=self._body(group))
            try:
                success(await self._cluster.request(address, command))
            except (Unreachable, CommandError) as error:
                log.warning("lock of %s not given back: %s", queue, error)

    def _body(self, queues: Sequence[MessageQueue]) -> bytes:
        return LockBatchBody(self._group, self._cluster.client_id, queues).encode()

    def _by_master(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        groups: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            route = self._routes.known(queue.topic)
            master = route.master(queue.broker_name) if route is not None else None
            if master is not None:
                groups.setdefault(master, []).append(queue)
        return groups


class OrderlyInbox:
    """The messages of one queue, waiting for their turn."""

    def __init__(self, task: QueueTask, locks: HeldLocks) -> None:
        self._task = task
        self._locks = locks
        self._messages: deque[ReceivedMessage] = deque()
        self._wake = trio.Event()

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        self._messages.extend(messages)
        self._wake.set()

    def close(self) -> None:
        """The queue was released: `consume` ends after the message it is at."""
        self._messages.clear()
        self._wake.set()

    async def consume(self, handler: Handler) -> None:
        """Handle the queue's messages in order until it is released."""
        while not self._task.released:
            if not self._messages:
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            await self._locks.wait_held(self._task.queue)
            message = self._messages[0]
            try:
                await handler(message)
            except Exception:
                log.exception("handler failed on message %s, its queue waits", message.msg_id)
                await trio.sleep(_TRY_AGAIN_S)
                continue
            self._task.ack(message)
            if self._messages and self._messages[0] is message:
                self._messages.popleft()
