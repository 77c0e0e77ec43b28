"""Administration of topics: requests 17, 21, 202, 215, 305 and 351 (AdminBrokerProcessor.java)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topic_attributes import altered
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore
from trioha.wire import fastjson
from trioha.wire.bodies import (
    MessageQueue,
    TopicConfig,
    encode_topic_list,
)
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import check_topic
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

QUEUE_NUMS_MAX = 16_384
"""Limit: each queue is a directory with a file. RocketMQ's own topics have 1,024 at most."""
PERM_MAX = 15
SLAVE_REMARK = (
    "Can't modify topic or subscription group from slave broker, "
    "please execute it from master broker."
)


def topic_not_exist(topic: str) -> CommandError:
    return CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic:.127}] not exist")


@attrs.define(eq=False)
class TopicAdminProcessor:
    """Creates, changes, describes and deletes topics."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _offsets: ConsumerOffsetTable
    _is_slave: Callable[[], bool]
    _delete_queues: Callable[[str], None]

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
        }

    def update_topic(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Create or replace a topic; attributes that are not named stay.

        The field `order` is ignored, as by RocketMQ 4.9.
        """
        name = self._writable_topic(request)
        before = self._topics.get(name)
        attributes = altered(
            {} if before is None else dict(before.attributes),
            request.ext_str("attributes", ""),
            is_new=before is None,
        )
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=_within(request, "readQueueNums", 1, QUEUE_NUMS_MAX),
            write_queue_nums=_within(request, "writeQueueNums", 1, QUEUE_NUMS_MAX),
            perm=_within(request, "perm", 0, PERM_MAX),
            topic_filter_type=request.ext_str("topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=request.ext_int("topicSysFlag", 0),
            attributes=tuple(sorted(attributes.items())),
        )
        if topic.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            raise system_error(
                f"topicFilterType is SINGLE_TAG or MULTI_TAG, not {topic.topic_filter_type!r:.40}"
            )
        self._topics.put(topic, instant.wall_ms)
        return request.response()

    def delete_topic(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Delete a topic, its queues and its consumers' progress; an unknown topic is no error.

        With the old progress, consumers would skip the messages of new queues of that name.
        """
        name = self._writable_topic(request)
        self._topics.delete(name, instant.wall_ms)
        self._offsets.delete_topic(name)
        self._delete_queues(name)
        return request.response()

    def all_topics(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=self._topics.encode())

    def topic_stats(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer both ends of each queue, and the time at which it last grew."""
        name = request.ext_str("topic")
        topic = self._topics.get(name)
        if topic is None:
            raise topic_not_exist(name)
        store = self._store
        pairs: list[tuple[object, object]] = []
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            maximum = store.max_offset_in_queue(name, queue_id)
            updated_ms = store.store_time(name, queue_id, maximum - 1) if maximum > 0 else 0
            pairs.append(
                (
                    MessageQueue(name, self._config.broker_name, queue_id).to_dict(),
                    {
                        "lastUpdateTimestamp": max(0, updated_ms),
                        "maxOffset": maximum,
                        "minOffset": store.min_offset_in_queue(name, queue_id),
                    },
                )
            )
        body = fastjson.dumps({"offsetTable": fastjson.ObjectKeyMap(pairs)})
        return request.response(body=body)

    def system_topics(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        names = filter(self._topics.is_system, self._topics.topics)
        return request.response(body=encode_topic_list(names))

    def topic_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        name = request.ext_str("topic")
        topic = self._topics.get(name)
        if topic is None:
            raise topic_not_exist(name)
        return request.response(body=fastjson.dumps(topic.to_dict()))

    def _writable_topic(self, request: RemotingCommand) -> str:
        if self._is_slave():
            raise system_error(SLAVE_REMARK)
        name = request.ext_str("topic")
        check_topic(name)
        if self._topics.is_system(name):
            raise system_error(f"The topic[{name}] is conflict with system topic.")
        return name


def _within(request: RemotingCommand, name: str, least: int, most: int) -> int:
    value = request.ext_int(name)
    if not least <= value <= most:
        raise system_error(f"{name} must be {least} to {most}, not {value}")
    return value
