"""JSON bodies about topics, groups, queues and offsets (org.apache.rocketmq.common.*).

Keys are written in fastjson's order, the alphabet's. Reading ignores unknown keys (5.x sends
some) and takes Java's defaults for absent ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import attrs

from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.json_fields import (
    Json,
    boolean,
    integer,
    integer_of,
    list_of,
    object_of,
    text,
    texts,
)
from trioha.wire.remoting_command import Buffer

_TOPIC_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


def _attributes(value: object) -> tuple[tuple[str, str], ...]:
    fields = object_of(value, "attributes")
    return tuple(sorted((key, text(fields, key)) for key in fields))


@attrs.frozen(order=False)
class DataVersion:
    """Version of a table. Two are equal when both numbers are (gotcha 28)."""

    timestamp: int = 0
    counter: int = 0

    def next(self, wall_ms: int) -> DataVersion:
        """The version of the table after one more change."""
        return DataVersion(wall_ms, self.counter + 1)

    def to_dict(self) -> dict[str, object]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "dataVersion")
        return cls(integer(fields, "timestamp"), integer(fields, "counter"))

    def encode(self) -> bytes:
        return fastjson.dumps(self.to_dict())

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        return cls.from_dict(fastjson.loads(data))


@attrs.frozen
class TopicConfig:
    """One topic as its broker keeps it (TopicConfig.java)."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    """Pairs of RocketMQ 5, in the order of their names; RocketMQ 4.9 has none."""

    def to_dict(self) -> dict[str, object]:
        # Without attributes the same bytes as RocketMQ 4.9's.
        attributes = {"attributes": dict(self.attributes)} if self.attributes else {}
        return {
            **attributes,
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_dict(cls, value: object, topic_name: str = "") -> Self:
        """Read a topic; `topic_name` is the key it stood under, should it not name itself."""
        fields = object_of(value, "topic config")
        filter_type = text(fields, "topicFilterType", "SINGLE_TAG")
        if filter_type not in _TOPIC_FILTER_TYPES:
            filter_type = "MULTI_TAG" if filter_type == "1" else "SINGLE_TAG"
        return cls(
            text(fields, "topicName", topic_name),
            integer(fields, "readQueueNums", 16),
            integer(fields, "writeQueueNums", 16),
            integer(fields, "perm", 6),
            filter_type,
            integer(fields, "topicSysFlag"),
            boolean(fields, "order", False),
            _attributes(fields.get("attributes")),
        )


@attrs.frozen
class SubscriptionGroupConfig:
    """One consumer group as its broker keeps it (SubscriptionGroupConfig.java)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    """Id of the broker from which a consumer that keeps up pulls."""
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool = False
    """A proxy of RocketMQ 5 pops for this group in order. Brokers of 4.9 have no such field."""

    def to_dict(self) -> dict[str, object]:
        orderly = {"consumeMessageOrderly": True} if self.consume_message_orderly else {}
        return orderly | {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def from_dict(cls, value: object, group_name: str = "") -> Self:
        """Read a group; `group_name` is the key it stood under, should it not name itself."""
        fields = object_of(value, "group config")
        return cls(
            text(fields, "groupName", group_name),
            boolean(fields, "consumeEnable", True),
            boolean(fields, "consumeFromMinEnable", True),
            boolean(fields, "consumeBroadcastEnable", True),
            integer(fields, "retryQueueNums", 1),
            integer(fields, "retryMaxTimes", 16),
            integer(fields, "brokerId"),
            integer(fields, "whichBrokerWhenConsumeSlowly", 1),
            boolean(fields, "notifyConsumerIdsChangedEnable", True),
            boolean(fields, "consumeMessageOrderly", False),
        )


def topic_table_to_dict(
    version: DataVersion, topics: Mapping[str, TopicConfig]
) -> dict[str, object]:
    """The body of code 21, of `topics.json` and of a registration's wrapper."""
    return {
        "dataVersion": version.to_dict(),
        "topicConfigTable": {name: topic.to_dict() for name, topic in topics.items()},
    }


def topic_table_from_dict(value: object) -> tuple[DataVersion, dict[str, TopicConfig]]:
    fields = object_of(value, "topic table")
    table = object_of(fields.get("topicConfigTable"), "topicConfigTable")
    topics = {name: TopicConfig.from_dict(topic, name) for name, topic in table.items()}
    return DataVersion.from_dict(fields.get("dataVersion")), topics


def group_table_to_dict(
    version: DataVersion, groups: Mapping[str, SubscriptionGroupConfig]
) -> dict[str, object]:
    """The body of code 201 and of `subscriptionGroup.json`."""
    return {
        "dataVersion": version.to_dict(),
        "subscriptionGroupTable": {name: group.to_dict() for name, group in groups.items()},
    }


def group_table_from_dict(value: object) -> tuple[DataVersion, dict[str, SubscriptionGroupConfig]]:
    fields = object_of(value, "group table")
    table = object_of(fields.get("subscriptionGroupTable"), "subscriptionGroupTable")
    groups = {name: SubscriptionGroupConfig.from_dict(group, name) for name, group in table.items()}
    return DataVersion.from_dict(fields.get("dataVersion")), groups


def consumer_offset_table_to_dict(
    offsets: Mapping[str, Mapping[int, int]],
) -> dict[str, object]:
    """The body of code 43 and of `consumerOffset.json`: ``topic@group`` -> queue -> offset."""
    return {"offsetTable": {key: fastjson.IntKeys(queues) for key, queues in offsets.items()}}


def consumer_offset_table_from_dict(value: object) -> dict[str, dict[int, int]]:
    table = object_of(object_of(value, "offset table").get("offsetTable"), "offsetTable")
    return {key: _integers(queues, key) for key, queues in table.items()}


def delay_offset_table_to_dict(offsets: Mapping[int, int]) -> dict[str, object]:
    """The body of code 45 and of `delayOffset.json`: level -> offset."""
    return {"offsetTable": fastjson.IntKeys(offsets)}


def delay_offset_table_from_dict(value: object) -> dict[int, int]:
    return _integers(object_of(value, "delay offsets").get("offsetTable"), "offsetTable")


@attrs.frozen(order=True)
class MessageQueue:
    """One queue of one broker, as clients name it."""

    topic: str
    broker_name: str
    queue_id: int

    def to_dict(self) -> dict[str, object]:
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "message queue")
        return cls(text(fields, "topic"), text(fields, "brokerName"), integer(fields, "queueId"))


LOCK_QUEUES_MAX = 16_384


@attrs.frozen
class LockBatchBody:
    """Body of 41 and 42: the queues that a client wants to lock or unlock."""

    consumer_group: str
    client_id: str
    queues: Sequence[MessageQueue] = ()

    def encode(self) -> bytes:
        return fastjson.dumps(
            {
                "clientId": self.client_id,
                "consumerGroup": self.consumer_group,
                "mqSet": [queue.to_dict() for queue in self.queues],
            }
        )

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        loaded = fastjson.loads(data, dialect_bytes_max=fastjson.REQUEST_DIALECT_BYTES)
        fields = object_of(loaded, "lock request")
        count = len(list_of(fields.get("mqSet"), "mqSet"))
        if count > LOCK_QUEUES_MAX:
            raise RemoteProtocolError(
                f"{count} queues in one request, at most {LOCK_QUEUES_MAX} are taken"
            )
        return cls(
            text(fields, "consumerGroup"), text(fields, "clientId"), _queues(fields, "mqSet")
        )


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """Encode the answer to 41: the queues that the client now holds."""
    return fastjson.dumps({"lockOKMQSet": [queue.to_dict() for queue in queues]})


def decode_locked_queues(data: Buffer) -> tuple[MessageQueue, ...]:
    return _queues(object_of(fastjson.loads(data), "lock response"), "lockOKMQSet")


def encode_consumer_list(client_ids: Iterable[str]) -> bytes:
    """Encode the answer to 38: the client ids of a consumer group."""
    return fastjson.dumps({"consumerIdList": list(client_ids)})


def decode_consumer_list(data: Buffer) -> tuple[str, ...]:
    return texts(object_of(fastjson.loads(data), "consumer list"), "consumerIdList")


def encode_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """Encode the answer to 206, 224, 304, 305 and 311-313."""
    body: dict[str, object] = {"topicList": list(topics)}
    if broker_addr is not None:
        body = {"brokerAddr": broker_addr, **body}
    return fastjson.dumps(body)


def decode_topic_list(data: Buffer) -> tuple[str, ...]:
    return texts(object_of(fastjson.loads(data), "topic list"), "topicList")


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """Encode a KVTable: the answer to 28 and 219, and to 103 about ordered topics."""
    return fastjson.dumps({"table": dict(table)})


def decode_kv_table(data: Buffer) -> dict[str, str]:
    fields = object_of(fastjson.loads(data), "KV table")
    table = object_of(fields.get("table"), "table")
    return {key: text(table, key) for key in table}


def _queues(fields: Json, name: str) -> tuple[MessageQueue, ...]:
    return tuple(map(MessageQueue.from_dict, list_of(fields.get(name), name)))


def _integers(value: object, what: str) -> dict[int, int]:
    table = object_of(value, what)
    return {integer_of(key, what): integer_of(number, what) for key, number in table.items()}
