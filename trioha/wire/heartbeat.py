"""The body of HEART_BEAT: who a client is, what it produces and consumes (HeartbeatData.java)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Self

import attrs

from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.json_fields import (
    boolean,
    enumerated,
    integer,
    integer_of,
    list_of,
    object_of,
    text,
    texts,
)
from trioha.wire.remoting_command import Buffer

GROUPS_MAX = 1_024
"""Producer groups, and as many consumer groups, of one connection."""
SUBSCRIPTIONS_MAX = 4_096
"""Subscriptions of one heartbeat."""


class ConsumeType(StrEnum):
    """Members in Java's order: C++ sends ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@attrs.frozen
class SubscriptionData:
    """Subscription of one group to one topic."""

    topic: str
    sub_string: str = "*"
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    """Java hashes of the tags."""
    sub_version: int = 0
    """The client's milliseconds when it subscribed; the greater one wins."""
    expression_type: str = "TAG"
    class_filter_mode: bool = False

    def to_dict(self) -> dict[str, object]:
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "subscription")
        codes = list_of(fields.get("codeSet"), "codeSet")
        return cls(
            text(fields, "topic"),
            text(fields, "subString"),
            frozenset(texts(fields, "tagsSet")),
            frozenset(integer_of(code, "codeSet") for code in codes),
            integer(fields, "subVersion"),
            text(fields, "expressionType") or "TAG",
            boolean(fields, "classFilterMode", False),
        )


@attrs.frozen
class ProducerData:
    group_name: str

    def to_dict(self) -> dict[str, object]:
        return {"groupName": self.group_name}

    @classmethod
    def from_dict(cls, value: object) -> Self:
        return cls(text(object_of(value, "producer"), "groupName"))


@attrs.frozen
class ConsumerData:
    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    unit_mode: bool = False
    subscriptions: Sequence[SubscriptionData] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "consumeFromWhere": self.consume_from_where.value,
            "consumeType": self.consume_type.value,
            "groupName": self.group_name,
            "messageModel": self.message_model.value,
            "subscriptionDataSet": _dicts(self.subscriptions),
            "unitMode": self.unit_mode,
        }

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "consumer")
        subscriptions = list_of(fields.get("subscriptionDataSet"), "subscriptionDataSet")
        return cls(
            text(fields, "groupName"),
            enumerated(fields, "consumeType", ConsumeType.CONSUME_PASSIVELY),
            enumerated(fields, "messageModel", MessageModel.CLUSTERING),
            enumerated(fields, "consumeFromWhere", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
            boolean(fields, "unitMode", False),
            tuple(map(SubscriptionData.from_dict, subscriptions)),
        )


@attrs.frozen
class HeartbeatData:
    client_id: str
    producers: Sequence[ProducerData] = ()
    consumers: Sequence[ConsumerData] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "clientID": self.client_id,
            "consumerDataSet": _dicts(self.consumers),
            "producerDataSet": _dicts(self.producers),
        }

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "heartbeat")
        producers = list_of(fields.get("producerDataSet"), "producerDataSet")
        consumers = list_of(fields.get("consumerDataSet"), "consumerDataSet")
        return cls(
            text(fields, "clientID"),
            tuple(map(ProducerData.from_dict, producers)),
            tuple(map(ConsumerData.from_dict, consumers)),
        )

    def encode(self) -> bytes:
        return fastjson.dumps(self.to_dict())

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read a heartbeat. Errors: RemoteProtocolError."""
        value = fastjson.loads(data, dialect_bytes_max=fastjson.REQUEST_DIALECT_BYTES)
        _check_sizes(value)
        return cls.from_dict(value)


def _check_sizes(value: object) -> None:
    """Count before anything is made of it: small objects cost the most for a byte."""
    fields = object_of(value, "heartbeat")
    consumers = list_of(fields.get("consumerDataSet"), "consumerDataSet")
    groups = len(consumers) + len(list_of(fields.get("producerDataSet"), "producerDataSet"))
    if groups > 2 * GROUPS_MAX:
        raise RemoteProtocolError(f"a heartbeat names {groups} groups, at most {2 * GROUPS_MAX}")
    count = sum(
        len(list_of(object_of(one, "consumer").get("subscriptionDataSet"), "subscriptionDataSet"))
        for one in consumers
    )
    if count > SUBSCRIPTIONS_MAX:
        raise RemoteProtocolError(
            f"a heartbeat has {count} subscriptions, at most {SUBSCRIPTIONS_MAX} are read"
        )


def _dicts(
    values: Iterable[SubscriptionData | ProducerData | ConsumerData],
) -> list[dict[str, object]]:
    return [value.to_dict() for value in values]
