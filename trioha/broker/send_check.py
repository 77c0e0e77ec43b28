"""May this send go on, and where to? (AbstractSendMessageProcessor.msgCheck)

The order of the checks is RocketMQ's, since clients decide by the first refusal whether to try
another broker: permission of an ordered topic, name, reserved topic, topic (created after its
example if allowed), queue.
"""

from __future__ import annotations

from random import Random
from typing import Final

from trioha.broker.put_message import PutPipeline
from trioha.broker.send_header import SendHeader, field
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Instant
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.names import (
    RESERVED_TOPICS,
    REVIVE_TOPIC_PREFIX,
    check_topic,
    is_retry_topic,
)
from trioha.wire.remoting_command import RemotingCommand

_KNOWN_GOOD_MAX: Final = 65_536  # names; the set starts anew beyond
# Looking a member up in its enum costs more than the comparison it is for.
_SLAVE: Final = BrokerRole.SLAVE
_WRITE: Final = int(Perm.WRITE)
_UNIT_TOPIC: Final = 1  # TopicSysFlag
_UNIT_SUBSCRIPTION: Final = 2


class SendCheck:
    """Finds or creates the topic of a send, and chooses its queue."""

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, pipeline: PutPipeline, rng: Random
    ) -> None:
        self.config = config
        self._topics = topics
        self._pipeline = pipeline
        self._rng = rng
        self._sendable: set[str] = set()

    def topic_of(
        self, request: RemotingCommand, header: SendHeader, instant: Instant
    ) -> TopicConfig:
        """Return the topic of a send that may go on.

        Errors: CommandError, the first of the checks that fails.
        """
        if self._pipeline.role is _SLAVE:
            # RocketMQ checks this in its store, after it has created the topic.
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        name = header.topic
        topic = self._topics.get(name)
        if not self.config.broker_permission & _WRITE and topic is not None and topic.order:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.config.broker_name}] sending message is forbidden",
            )
        if name not in self._sendable:
            self._check_name(name)
        if topic is None:
            topic = self._create_topic(request, header, instant)
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        if header.queue_id >= queues:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic {name} has {queues} queues",
            )
        return topic

    def choose_queue(self, header: SendHeader, topic: TopicConfig) -> int:
        """Return the queue that the send names, or any writable one.

        Errors: CommandError when there is none to choose from.
        """
        if header.queue_id >= 0:
            return header.queue_id
        if topic.write_queue_nums <= 0:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"topic {topic.topic_name} has no queue to write to"
            )
        return self._rng.randrange(topic.write_queue_nums)

    def _check_name(self, name: str) -> None:
        check_topic(name)
        if name in RESERVED_TOPICS or name.startswith(REVIVE_TOPIC_PREFIX):
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        if len(self._sendable) >= _KNOWN_GOOD_MAX:
            self._sendable.clear()
        self._sendable.add(name)

    def _create_topic(
        self, request: RemotingCommand, header: SendHeader, instant: Instant
    ) -> TopicConfig:
        name = header.topic
        is_retry = is_retry_topic(name)
        unit_flag = 0
        if request.ext_bool(field(request, "unitMode")):
            unit_flag = _UNIT_SUBSCRIPTION if is_retry else _UNIT_TOPIC
        topic = self._topics.create_on_send(
            name,
            request.ext_str(field(request, "defaultTopic"), ""),
            request.ext_int(field(request, "defaultTopicQueueNums"), 0),
            instant.wall_ms,
            topic_sys_flag=unit_flag,
        )
        if topic is None and is_retry:
            topic = self._topics.create_internal(
                name, 1, Perm.READ | Perm.WRITE, instant.wall_ms, topic_sys_flag=unit_flag
            )
        if topic is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        return topic
