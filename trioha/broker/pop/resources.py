"""Topic, group and queues that a request of a popping client names."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import attrs

from trioha.broker.groups import GroupTable
from trioha.broker.pop.handles import pop_retry_topics
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.remoting.channel import Instant
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.names import check_topic
from trioha.wire.refusals import no_permission
from trioha.wire.remoting_command import RemotingCommand

INVISIBLE_MS_MAX: Final = 12 * 3_600_000
"""The limit of Java's proxy, maxInvisibleTimeMills. Messages expire after days."""
_RETRY_FIRST_PERCENT: Final = 20


@attrs.define(eq=False)
class PopResources:
    """Finds and checks them."""

    config: BrokerConfig
    _topics: TopicTable
    _groups: GroupTable
    _rng: Random

    def of(self, request: RemotingCommand, instant: Instant) -> tuple[TopicConfig, str, int]:
        """Return topic, group and queue (-1: all).

        Errors: CommandError with RocketMQ's codes when there are no such, or they forbid it.
        """
        if not self.config.broker_permission & Perm.READ:
            raise no_permission(f"the broker[{self.config.broker_name}] pop message is forbidden")
        name = request.ext_str("topic")
        topic = self._topics.get(name)
        if topic is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name:.127}] not exist, apply first please!"
            )
        if not topic.perm & Perm.READ:
            raise no_permission(f"the topic[{name}] peeking message is forbidden")
        queue_id = max(-1, request.ext_int("queueId"))
        if queue_id >= topic.read_queue_nums:
            raise invalid(
                f"queueId[{queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
        group_name = request.ext_str("consumerGroup")
        group = self._groups.find(group_name, instant.wall_ms)
        if group is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name:.255}] does not exist",
            )
        if not group.consume_enable:
            raise no_permission(f"subscription group no permission, {group_name}")
        # Messages that are delivered again go to this topic.
        check_topic(pop_retry_topics(name, group_name)[0])
        return topic, group_name, queue_id

    def queues(
        self, topic: TopicConfig, group: str, queue_id: int, *, is_ordered: bool
    ) -> Iterator[tuple[str, int]]:
        """Yield the queues in the order in which this pop takes from them."""
        name = topic.topic_name
        turn = self._rng.randrange(100)
        queues = [(name, queue_id)]
        if queue_id < 0:
            count = topic.read_queue_nums
            queues = [(name, (turn + i) % count) for i in range(count)]
        # Both: messages must not wait in one of them after enableRetryTopicV2 was changed.
        found = () if is_ordered else map(self._topics.get, pop_retry_topics(name, group))
        retries = [
            (retry.topic_name, i) for retry in found if retry for i in range(retry.read_queue_nums)
        ]
        if turn < _RETRY_FIRST_PERCENT:
            return iter([*retries, *queues])
        return iter([*queues, *retries])


def check_invisible(invisible_ms: int) -> None:
    """Accept an invisible time. Errors: CommandError(INVALID_PARAMETER)."""
    if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
        raise invalid(
            f"invisibleTime is {invisible_ms} ms, and must be from 0 to {INVISIBLE_MS_MAX} (12 h)"
        )


def invalid(remark: str) -> CommandError:
    """Return the answer to a value that makes no sense."""
    return CommandError(ResponseCode.INVALID_PARAMETER, remark)
