"""Progress of groups: requests 208, 300, 303, 314 and 317 (AdminBrokerProcessor.java).

Progress is the committed offset beside the queue's end; tools compute lag and delay from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from trioha.broker.admin_topics import SLAVE_REMARK, topic_not_exist
from trioha.broker.clients import ConsumerManager
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import RequestCode
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

QUEUES_SHOWN_MAX = 50_000
"""Limit of request 317: 10 MB of JSON, and half a second in which the broker does nothing else."""


@attrs.define(eq=False)
class ProgressAdminProcessor:
    """Shows and copies the progress of groups."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: GroupTable
    _consumers: ConsumerManager
    _offsets: ConsumerOffsetTable
    _is_slave: Callable[[], bool]

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.consume_time_span,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_progress,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
        }

    def consume_stats(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Return a group's progress in each queue of one topic, or of all it has read."""
        group = request.ext_str("consumerGroup")
        if topic := request.ext_str("topic", ""):
            topics = [topic]
        elif topic_list := request.ext_str("topicList", ""):
            topics = [name for name in topic_list.split(";") if name]
        else:
            topics = self._offsets.topics_of(group)
        return request.response(body=fastjson.dumps(self._stats(group, topics)[0]))

    def broker_consume_stats(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Return every group's progress in every queue; with `isOrder`, in ordered topics only.

        With `ranges`, which RocketMQ does not know, also what the queue still holds for the group:
        `minOffset`, and `nextTimestamp`, the store time of the oldest message not consumed.

        Errors: CommandError(SYSTEM_ERROR) when that is more than one answer should hold.
        """
        ordered_only = request.ext_bool("isOrder")
        ranges = request.ext_bool("ranges")
        topics_of = self._offsets.topics_by_group()
        groups: list[object] = []
        total = queue_count = 0
        for group in self._groups.groups:
            one_each: list[object] = []
            for topic in topics_of.get(group, ()):
                config = self._topics.get(topic)
                if config is None or (ordered_only and not config.order):
                    continue
                queue_count += config.read_queue_nums
                if queue_count > QUEUES_SHOWN_MAX:
                    raise system_error(
                        f"groups read more than {QUEUES_SHOWN_MAX} queues: ask group by group"
                    )
                stats, lag = self._stats(group, [topic], ranges=ranges)
                one_each.append(stats)
                total += lag
            groups.append({group: one_each})
        address = f"{self._config.broker_ip1}:{self._config.listen_port}"
        body = {"brokerAddr": address, "consumeStatsList": groups, "totalDiff": total}
        return request.response(body=fastjson.dumps(body))

    def groups_of_topic(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Groups that are subscribed to a topic now or have read it once."""
        topic = request.ext_str("topic")
        groups = dict.fromkeys(self._consumers.groups_subscribed_to(topic))
        groups.update(dict.fromkeys(self._offsets.groups_of(topic)))
        return request.response(body=fastjson.dumps({"groupList": list(groups)}))

    def consume_time_span(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Return each queue's time span, and the age of the message that the group reads next."""
        topic = request.ext_str("topic")
        group = request.ext_str("group")
        config = self._topics.get(topic)
        if config is None:
            raise topic_not_exist(topic)
        spans = [
            self._time_span(group, topic, queue_id, instant.wall_ms)
            for queue_id in range(config.write_queue_nums)
        ]
        return request.response(body=fastjson.dumps({"consumeTimeSpanSet": spans}))

    def clone_progress(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Copy one group's offsets to another group, in one topic or in all that it has read.

        As a group that connects, the other one is created if the configuration allows it: lists
        of groups have no group that only has offsets.
        """
        if self._is_slave():
            raise system_error(SLAVE_REMARK)
        source, target = request.ext_str("srcGroup"), request.ext_str("destGroup")
        topic = request.ext_str("topic", "")
        for name in [topic] if topic else self._offsets.topics_of(source):
            if self._topics.get(name) is None:
                continue
            if not request.ext_bool("offline") and self._has_left(source, name):
                continue
            if offsets := dict(self._offsets.queues(source, name)):
                self._groups.find(target, instant.wall_ms)
            for queue_id, offset in offsets.items():
                self._offsets.commit(target, name, queue_id, offset)
        return request.response()

    def _stats(
        self, group: str, topics: Sequence[str], *, ranges: bool = False
    ) -> tuple[dict[str, object], int]:
        """Return a group's rates and its lag. Topics that it has left do not count."""
        pairs: list[tuple[object, object]] = []
        lag = 0
        for name in topics:
            config = self._topics.get(name)
            if config is None or self._has_left(group, name):
                continue
            for queue_id in range(config.read_queue_nums):
                committed = self._offsets.query(group, name, queue_id)
                consumed = max(0, committed)
                last_ms = self._store.store_time(name, queue_id, consumed - 1) if consumed else 0
                end = max(0, self._store.max_offset_in_queue(name, queue_id))
                lag += end - consumed
                progress = {
                    "brokerOffset": end,
                    "consumerOffset": consumed,
                    "lastTimestamp": max(0, last_ms),
                }
                # A group without an offset has not begun: it has lost nothing.
                if ranges and committed >= 0:
                    progress |= self._range(name, queue_id, consumed, end)
                pairs.append((self._queue(name, queue_id), progress))
        return {"consumeTps": 0.0, "offsetTable": fastjson.ObjectKeyMap(pairs)}, lag

    def _range(self, topic: str, queue_id: int, consumed: int, end: int) -> dict[str, int]:
        """Return what a queue still holds for a group."""
        told = {"minOffset": max(0, self._store.min_offset_in_queue(topic, queue_id))}
        next_ms = self._store.store_time(topic, queue_id, consumed) if consumed < end else -1
        return told | {"nextTimestamp": next_ms} if next_ms >= 0 else told

    def _has_left(self, group: str, topic: str) -> bool:
        """Return whether the group's members are connected and none of them reads the topic."""
        members = self._consumers.find(group)
        if members is None or not members.subscriptions:
            return False
        return topic not in members.subscriptions

    def _time_span(self, group: str, topic: str, queue_id: int, wall_ms: int) -> dict[str, object]:
        store_time = self._store.store_time
        maximum = self._store.max_offset_in_queue(topic, queue_id)
        first_ms = store_time(topic, queue_id, self._store.min_offset_in_queue(topic, queue_id))
        consumed = self._offsets.query(group, topic, queue_id)
        next_ms = store_time(topic, queue_id, consumed) if 0 <= consumed < maximum else -1
        return {
            "consumeTimeStamp": store_time(topic, queue_id, consumed - 1)
            if consumed > 0
            else first_ms,
            "delayTime": max(0, wall_ms - next_ms) if next_ms >= 0 else 0,
            "maxTimeStamp": store_time(topic, queue_id, maximum - 1),
            "messageQueue": self._queue(topic, queue_id),
            "minTimeStamp": first_ms,
        }

    def _queue(self, topic: str, queue_id: int) -> dict[str, object]:
        return MessageQueue(topic, self._config.broker_name, queue_id).to_dict()
