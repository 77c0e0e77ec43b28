"""Requests of a consumer about one queue: messages, limits, progress."""

from __future__ import annotations

import trio

from trioha.client.cluster import Cluster, success
from trioha.client.decode import received_messages
from trioha.client.message import MessageQueue, PullResult, PullStatus, ReceivedMessage
from trioha.client.route import MASTER_ID
from trioha.client.route_table import RouteTable
from trioha.client.subscription import Subscription
from trioha.errors import CommandError, Unreachable
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

_PULL_STATUSES = {status.value: status for status in PullStatus}
_PULL_SLACK_S = 15.0
"""Seconds beyond the time a pull may be parked: the broker looks at its deadlines every 5 s."""


class QueueRequests:
    """Requests of one group. Each raises Unreachable, or CommandError with the broker's code."""

    def __init__(self, cluster: Cluster, routes: RouteTable, group: str) -> None:
        self._cluster = cluster
        self._routes = routes
        self._group = group

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(RequestCode.GET_MIN_OFFSET, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        return await self._offset(RequestCode.GET_MAX_OFFSET, queue)

    async def offset_at(self, queue: MessageQueue, wall_ms: int) -> int:
        """The offset of the message stored nearest to a time."""
        return await self._offset(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, {"timestamp": wall_ms}
        )

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """The group's progress; None when there is none yet."""
        try:
            return await self._offset(
                RequestCode.QUERY_CONSUMER_OFFSET, queue, {"consumerGroup": self._group}
            )
        except CommandError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: MessageQueue, offset: int) -> bool:
        """Set the group's progress; True when the master has it.

        While the master is away a slave takes it, for members that ask there, but forgets it when
        it synchronizes with the master again.
        """
        route = await self._routes.get(queue.topic)
        if route.master(queue.broker_name) is None:
            # It may be back: nobody else would ask before the next 30 s are over.
            route = await self._routes.refresh(queue.topic) or route
        await self._ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            queue,
            {"consumerGroup": self._group, "commitOffset": offset},
        )
        return route.master(queue.broker_name) is not None

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int,
        subscription: Subscription,
        *,
        suspend_s: float = 0.0,
        broker_id: int = MASTER_ID,
        commit_offset: int = -1,
    ) -> PullResult:
        """Return up to `count` messages from `offset` on; at an empty end, wait for `suspend_s`.

        The subscription travels with every pull, so nothing depends on the last heartbeat.
        """
        node = await self._reader(queue, broker_id)
        if node is None:
            raise Unreachable(f"no broker {queue.broker_name} is known for {queue.topic}")
        actual_id, address = node
        flags = PullSysFlag.SUBSCRIPTION
        if suspend_s > 0:
            flags |= PullSysFlag.SUSPEND
        # A slave would take the offset and lose it to its next synchronization.
        if commit_offset >= 0 and actual_id == MASTER_ID:
            flags |= PullSysFlag.COMMIT_OFFSET
        command = RemotingCommand(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": self._group,
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "queueOffset": offset,
                "maxMsgNums": count,
                "sysFlag": flags,
                "commitOffset": max(commit_offset, 0),
                "suspendTimeoutMillis": int(suspend_s * 1000),
                "subscription": subscription.expression,
                "subVersion": subscription.version,
                "expressionType": "TAG",
            },
        )
        client = await self._cluster.connection(address)
        patience_s = suspend_s + _PULL_SLACK_S
        with trio.move_on_after(patience_s) as patience:
            response = await client.request(command)
        if patience.cancelled_caught:
            raise Unreachable(f"{address} did not answer a pull within {patience_s:g} s")
        status = _PULL_STATUSES.get(response.code)
        if status is None:
            raise CommandError(response.code, response.remark or "pull refused")
        found: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            found = received_messages(response.body_bytes(), queue)
            if subscription.tags:
                found = [message for message in found if subscription.matches(message)]
        return PullResult(
            status,
            found,
            response.ext_int("nextBeginOffset"),
            response.ext_int("minOffset", 0),
            response.ext_int("maxOffset", 0),
            response.ext_int("suggestWhichBrokerId", MASTER_ID),
        )

    async def hand_back(
        self, message: ReceivedMessage, delay_level: int, reconsume_times_max: int
    ) -> None:
        """Let the broker redeliver the message through the group's retry topic, or bury it."""
        await self._ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            message.queue,
            {
                "offset": message.phy_offset,
                "group": self._group,
                "delayLevel": delay_level,
                "originMsgId": message.offset_msg_id,
                "originTopic": message.topic,
                "unitMode": False,
                "maxReconsumeTimes": reconsume_times_max,
            },
            with_queue=False,
        )

    async def _offset(
        self,
        code: RequestCode,
        queue: MessageQueue,
        fields: dict[str, ExtValue] | None = None,
    ) -> int:
        return (await self._ask(code, queue, fields or {})).ext_int("offset")

    async def _ask(
        self,
        code: RequestCode,
        queue: MessageQueue,
        fields: dict[str, ExtValue],
        *,
        with_queue: bool = True,
    ) -> RemotingCommand:
        node = await self._reader(queue, MASTER_ID)
        if node is None:
            raise Unreachable(f"no broker {queue.broker_name} is known for {queue.topic}")
        if with_queue:
            fields = {"topic": queue.topic, "queueId": queue.queue_id, **fields}
        return success(await self._cluster.request(node[1], RemotingCommand(code, fields)))

    async def _reader(self, queue: MessageQueue, broker_id: int) -> tuple[int, str] | None:
        route = await self._routes.get(queue.topic)
        return route.reader(queue.broker_name, broker_id)
