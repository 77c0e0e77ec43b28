"""Puts a message whose invisible time is over into the retry topic, or the dead letter topic.

As PopReviveService.java: the copy goes into queue 0 of the retry topic. It counts one delivery
more, and keeps the time of the first pop (1ST_POP_TIME). RocketMQ's broker does so without end and
leaves it to clients to stop. Here it goes to ``%DLQ%group`` once it
was redelivered `retryMaxTimes` times, as messages do that consumers send back.
"""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from trioha.broker.message_fields import copied_message
from trioha.broker.pop.handles import pop_retry_topics
from trioha.broker.put_message import PutPipeline
from trioha.broker.send import DLQ_QUEUE_NUMS
from trioha.broker.topics import TopicTable
from trioha.errors import CommandError
from trioha.remoting.channel import Instant
from trioha.wire.bodies import SubscriptionGroupConfig
from trioha.wire.codes import Perm
from trioha.wire.names import dlq_topic
from trioha.wire.properties import (
    ORIGIN_MESSAGE_ID,
    PROPERTIES_BYTES_MAX,
    RETRY_TOPIC,
    encode_properties,
)
from trioha.wire.record import Record

FIRST_POP_TIME: Final = "1ST_POP_TIME"
_I32_MAX: Final = 0x7FFFFFFF


@attrs.define(eq=False)
class Redelivery:
    """Makes the copies of one broker."""

    _topics: TopicTable
    _pipeline: PutPipeline
    _rng: Random
    _is_v2: bool
    """enableRetryTopicV2."""
    redelivered_count: int = 0
    dead_count: int = 0

    def redeliver(
        self,
        record: Record,
        topic: str,
        group: SubscriptionGroupConfig,
        pop_time: int,
        instant: Instant,
    ) -> None:
        """Append the copy of one message; `topic` is the topic that the producer sent to.

        Errors: CommandError when the store takes nothing, or no topic more can be created.
        """
        name = group.group_name
        properties = dict(record.properties)
        is_dead = record.reconsume_times >= group.retry_max_times
        if is_dead:
            target, queue_nums = dlq_topic(name), DLQ_QUEUE_NUMS
            properties.setdefault(RETRY_TOPIC, topic)
            properties.setdefault(ORIGIN_MESSAGE_ID, record.message_id)
        else:
            target, queue_nums = pop_retry_topics(topic, name)[self._is_v2], 1
            properties.setdefault(FIRST_POP_TIME, str(pop_time))
        config = self._topics.create_internal(
            target, queue_nums, Perm.READ | Perm.WRITE, instant.wall_ms
        )
        encoded = encode_properties(properties)
        if len(encoded) > PROPERTIES_BYTES_MAX:
            encoded = record.raw_properties
        message = copied_message(
            record,
            config.topic_name,
            self._rng.randrange(queue_nums) if is_dead else 0,
            properties,
            encoded=encoded,
            attempts_more=1,
        )
        outcome = self._pipeline.put(message, wait=False, instant=instant)
        if not outcome.is_stored:
            raise CommandError(outcome.code, outcome.remark or outcome.code.name)
        if is_dead:
            self.dead_count += 1
        else:
            self.redelivered_count += 1
