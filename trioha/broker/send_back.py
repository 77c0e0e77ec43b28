"""Messages a consumer could not handle: request 36 (SendMessageProcessor.consumerSendMsgBack).

The record is copied, never moved: into the group's retry topic by way of a delay level that grows
with each attempt, or into its dead letter topic when the attempts are used up. The copy remembers
the topic it came from (RETRY_TOPIC) and the id it first had (ORIGIN_MESSAGE_ID). When this fails,
Java consumers send the message to the retry topic themselves, so an error here loses nothing.
"""

from __future__ import annotations

from random import Random

import attrs

from trioha.broker.delay import DelayLevels
from trioha.broker.groups import GroupTable
from trioha.broker.message_fields import copied_message
from trioha.broker.put_message import PutPipeline
from trioha.broker.send import DLQ_QUEUE_NUMS
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore, PutMessage
from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import VERSION_V3_4_9, Perm, RequestCode, ResponseCode
from trioha.wire.names import METADATA_TOPIC, dlq_topic, retry_topic
from trioha.wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    encode_properties,
)
from trioha.wire.record import Record, RecordError, decode_record
from trioha.wire.refusals import no_permission, system_error
from trioha.wire.remoting_command import RemotingCommand

_FIRST_LEVEL = 3  # 10 s by default
_I32_MAX = 0x7FFFFFFF
_UNIT_SUBSCRIPTION = 2  # TopicSysFlag


@attrs.define(eq=False)
class SendBackProcessor:
    """Schedules redeliveries."""

    config: BrokerConfig
    _topics: TopicTable
    _groups: GroupTable
    _store: MessageStore
    _pipeline: PutPipeline
    _levels: DelayLevels
    _rng: Random
    sent_back: dict[str, int] = attrs.Factory(dict)
    """Messages that consumers sent back since the start, by ``topic@group``."""

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Copy the record to a topic that its group reads.

        Errors: CommandError, RemoteProtocolError; the shell answers them.
        """
        phy_offset = request.ext_int("offset")
        delay_level = request.ext_int("delayLevel")
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        group = self._group_of(request, instant)
        if not self.config.broker_permission & Perm.WRITE:
            raise no_permission(
                f"the broker[{self.config.broker_name}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            # The group's owner wants no redelivery: the message is dropped, and that is success.
            return request.response()
        topic = self._retry_topic_of(request, group, instant)
        record = self._record_at(phy_offset)

        properties = dict(record.properties)
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, record.message_id)
        properties[WAIT] = "false"
        properties.pop(DELAY, None)
        # The topic may have fewer queues than the group's settings ask for now.
        queue_nums = max(1, min(group.retry_queue_nums, topic.read_queue_nums))
        message = copied_message(
            record,
            topic.topic_name,
            self._rng.randrange(queue_nums),
            properties,
            encoded=b"",
            attempts_more=1,
        )
        if delay_level < 0 or record.reconsume_times >= _times_max(request, group):
            self._to_dead_letters(message, group, instant)
            message.properties = encode_properties(properties)
        else:
            if delay_level == 0:
                delay_level = _FIRST_LEVEL + record.reconsume_times
            self._levels.divert(message, properties, delay_level, instant.wall_ms)
        outcome = self._pipeline.put(message, wait=False, instant=instant)
        if not outcome.is_stored:
            raise system_error(outcome.remark or outcome.code.name)
        key = f"{properties[RETRY_TOPIC]}@{group.group_name}"
        self.sent_back[key] = self.sent_back.get(key, 0) + 1
        response = request.response()
        if outcome.must_wait:
            # In a group: after a success the consumer relies on the copy and forgets the message.
            self._pipeline.when_safe(outcome, instant, channel, response)
            return None
        return response

    def _group_of(self, request: RemotingCommand, instant: Instant) -> SubscriptionGroupConfig:
        name = request.ext_str("group")
        group = self._groups.find(name, instant.wall_ms)
        if group is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        return group

    def _retry_topic_of(
        self, request: RemotingCommand, group: SubscriptionGroupConfig, instant: Instant
    ) -> TopicConfig:
        topic = self._topics.create_internal(
            retry_topic(group.group_name),
            group.retry_queue_nums,
            Perm.READ | Perm.WRITE,
            instant.wall_ms,
            topic_sys_flag=_UNIT_SUBSCRIPTION if request.ext_bool("unitMode") else 0,
        )
        if not topic.perm & Perm.WRITE:
            raise no_permission(f"the topic[{topic.topic_name}] sending message is forbidden")
        return topic

    def _record_at(self, phy_offset: int) -> Record:
        view = self._store.look_message(phy_offset)
        try:
            record = None if view is None else decode_record(view)
            if record is not None and record.topic != METADATA_TOPIC:
                return record
            reason = "no record there"
        except RecordError as error:
            reason = str(error)
        raise system_error(f"look message by offset failed, {phy_offset}: {reason}")

    def _to_dead_letters(
        self, message: PutMessage, group: SubscriptionGroupConfig, instant: Instant
    ) -> None:
        topic = self._topics.create_internal(
            dlq_topic(group.group_name),
            DLQ_QUEUE_NUMS,
            Perm.READ | Perm.WRITE,
            instant.wall_ms,
        )
        message.topic = topic.topic_name
        message.queue_id = self._rng.randrange(DLQ_QUEUE_NUMS)


def _times_max(request: RemotingCommand, group: SubscriptionGroupConfig) -> int:
    if request.version >= VERSION_V3_4_9:
        return request.ext_int("maxReconsumeTimes", group.retry_max_times)
    return group.retry_max_times
