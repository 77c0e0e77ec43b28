"""One queue while it is ours: finds where to begin, pulls, bounds what is under way, commits.

Theory of operation (DefaultMQPushConsumerImpl.pullMessage). One pull at a time, parked at the
broker when there is nothing. The next pull goes to the node the broker suggests; a failed one goes
back to the master, or to the node that the refreshed route still lists: so reading moves to the
slave when the master is gone, and back. When messages pile up here the pulls pause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from trioha.client.cluster import log
from trioha.client.errors import NoRoute
from trioha.client.message import (
    ConsumeFrom,
    MessageModel,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
)
from trioha.client.process_queue import FlowLimits, ProcessQueue
from trioha.client.queue_requests import QueueRequests
from trioha.client.route import MASTER_ID
from trioha.client.route_table import RouteTable
from trioha.client.subscription import Subscription
from trioha.errors import CommandError, RemoteProtocolError, Unreachable
from trioha.wire.names import is_retry_topic

_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 3.0
_NO_PROGRESS_PAUSE_S = 1.0
_LAST_COMMIT_S = 2.0
_FAILURES = (Unreachable, NoRoute, CommandError, RemoteProtocolError)


@attrs.frozen(kw_only=True)
class PushConsumerConfig:
    """Settings of a push consumer."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Position at which a group without progress begins."""
    consume_timestamp_ms: int = 0
    """Store time for ConsumeFrom.TIMESTAMP, in milliseconds since 1970."""
    model: MessageModel = MessageModel.CLUSTERING
    orderly: bool = False
    """One message of a queue at a time, in order; a failed one is tried until it succeeds."""
    concurrency: int = 20
    """Handlers at a time, all queues together; in orderly mode it is one per queue."""
    pull_count: int = 32
    suspend_s: float = 15.0
    """Longest time that the broker may park a pull."""
    limits: FlowLimits = FlowLimits()
    commit_interval_s: float = 5.0
    rebalance_interval_s: float = 20.0
    reconsume_times_max: int = 16
    """Redeliveries after which the broker moves a message to the group's DLQ."""
    retry_delay_level: int = 0
    """Delay level of redeliveries; 0: the broker's ladder, 10 s first."""


@attrs.define(eq=False)
class QueueTask:
    """The life of one assigned queue. `run` it in a nursery, `release` it when it is taken away."""

    queue: MessageQueue
    _subscription: Subscription
    _requests: QueueRequests = attrs.field(kw_only=True)
    _routes: RouteTable = attrs.field(kw_only=True)
    _config: PushConsumerConfig = attrs.field(kw_only=True)
    _deliver: Callable[[QueueTask, Sequence[ReceivedMessage]], None] = attrs.field(kw_only=True)
    held: ProcessQueue | None = attrs.field(default=None, init=False)
    """Messages of the queue; None until it is known where to begin."""
    released: bool = attrs.field(default=False, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _room: trio.Event = attrs.field(factory=trio.Event, init=False)
    _pause_s: float = attrs.field(default=0.0, init=False)
    _riding: int = attrs.field(default=-1, init=False)
    """The progress that a pull without an answer carries; -1: none."""

    async def run(self) -> None:
        """Pull until released or cancelled, then commit what was handled.

        Cancellation: see `commit_last`.
        """
        try:
            with self._scope:
                begin = await self._begin_offset()
                self.held = ProcessQueue(self.queue, begin, self._config.limits)
                await self._pull_forever()
        finally:
            await self.commit_last()
            if self.held is not None:
                self.held.dropped = True

    def release(self) -> None:
        """Stop pulling; the queue now belongs to another member."""
        self.released = True
        self._scope.cancel()

    def ack(self, message: ReceivedMessage) -> None:
        """The message has been handled, or handed back."""
        if self.held is not None:
            self.held.remove(message)
            if self.held.has_room:
                self._room.set()

    def reset(self, offset: int) -> None:
        """Go on at `offset`, whatever is under way. Its progress no longer counts."""
        if self.held is not None:
            self.held.dropped = True
        self.held = ProcessQueue(self.queue, offset, self._config.limits)
        self._room.set()

    async def commit(self) -> None:
        """Tell the broker the progress, if it has changed."""
        held = self.held
        if held is None or self._config.model is MessageModel.BROADCASTING:
            return
        offset = held.uncommitted()
        if offset is None:
            return
        try:
            if await self._requests.commit(self.queue, offset):
                held.committed(offset)
        except _FAILURES as error:
            log.warning("progress %d of %s not committed: %s", offset, self.queue, error)

    async def commit_last(self) -> None:
        """Tell the broker the progress, and look whether it stayed: nobody will tell it again.

        The pull that is under way carries older progress. RocketMQ's broker carries pulls and
        commits out in different threads, so the older one may come last and replace the commit.

        Cancellation: shielded, for two seconds at most.
        """
        with trio.move_on_after(_LAST_COMMIT_S, shield=True):
            await self.commit()
            held = self.held
            if held is None or self._riding in (-1, held.commit_offset):
                return
            try:
                kept = await self._requests.committed_offset(self.queue)
            except _FAILURES as error:
                log.warning("progress of %s not read back: %s", self.queue, error)
                return
            # Any other offset was set by an operator or by the queue's next member.
            if kept == self._riding:
                held.forget_committed()
                await self.commit()

    async def _begin_offset(self) -> int:
        while True:
            try:
                return await self._ask_begin_offset()
            except _FAILURES as error:
                log.warning("where to begin in %s is not known: %s", self.queue, error)
                await self._recover()

    async def _ask_begin_offset(self) -> int:
        config = self._config
        if config.model is MessageModel.CLUSTERING:
            committed = await self._requests.committed_offset(self.queue)
            if committed is not None and committed >= 0:
                return committed
        # Redeliveries are wanted from the first, whatever the group thinks of the past.
        if config.consume_from is ConsumeFrom.FIRST or is_retry_topic(self.queue.topic):
            return await self._requests.min_offset(self.queue)
        if config.consume_from is ConsumeFrom.LAST:
            return await self._requests.max_offset(self.queue)
        return await self._requests.offset_at(self.queue, config.consume_timestamp_ms)

    async def _pull_forever(self) -> None:
        broker_id = MASTER_ID
        while True:
            held = self.held
            assert held is not None, "pulls begin before it is known where"
            if not held.has_room:
                self._room = trio.Event()
                await self._room.wait()
                continue
            self._riding = self._commit_offset(held)
            try:
                result = await self._requests.pull(
                    self.queue,
                    held.next_offset,
                    self._config.pull_count,
                    self._subscription,
                    suspend_s=self._config.suspend_s,
                    broker_id=broker_id,
                    commit_offset=self._riding,
                )
            except _FAILURES as error:
                log.warning("pull from %s: %s", self.queue, error)
                broker_id = MASTER_ID
                await self._recover()
                continue
            self._riding = -1
            self._pause_s = 0.0
            broker_id = result.suggested_broker_id
            if held is self.held:
                await self._take(held, result)

    async def _take(self, held: ProcessQueue, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_MOVED:
            log.warning(
                "offset %d of %s is outside the queue, going on at %d",
                held.next_offset,
                self.queue,
                result.next_offset,
            )
            self.reset(result.next_offset)
            # Two nodes that disagree about the queue would send us to and fro without end.
            await trio.sleep(_NO_PROGRESS_PAUSE_S)
            return
        stands_still = result.next_offset <= held.next_offset
        held.put(result.messages, result.next_offset)
        if result.messages:
            self._deliver(self, result.messages)
        elif stands_still and result.status is PullStatus.NO_MATCHED_MESSAGE:
            # A slave that lacks this offset yet says "retry at once", again and again.
            await trio.sleep(_NO_PROGRESS_PAUSE_S)

    def _commit_offset(self, held: ProcessQueue) -> int:
        return held.commit_offset if self._config.model is MessageModel.CLUSTERING else -1

    async def _recover(self) -> None:
        """Refresh the route after a failure, then wait a little, longer each time.

        A broker that died may have lost the progress that it was told: it is told again.
        """
        if self.held is not None:
            self.held.forget_committed()
        try:
            await self._routes.refresh(self.queue.topic)
        except Unreachable as error:
            log.warning("route of %s: %s", self.queue.topic, error)
        self._pause_s = min(max(_PAUSE_FIRST_S, self._pause_s * 2), _PAUSE_MAX_S)
        await trio.sleep(self._pause_s)
