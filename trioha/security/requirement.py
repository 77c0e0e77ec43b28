"""The requirement of one request code, and the topics and groups that a request names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

import attrs

from trioha.errors import CommandError
from trioha.wire import fastjson
from trioha.wire.bodies import LockBatchBody
from trioha.wire.codes import FRAME_BYTES_MAX, ResponseCode
from trioha.wire.heartbeat import HeartbeatData, SubscriptionData
from trioha.wire.json_fields import list_of, object_of, text
from trioha.wire.names import RETRY_PREFIX, is_retry_topic, retry_topic
from trioha.wire.remoting_command import RemotingCommand


class Right(Enum):
    """The five kinds of requirements."""

    ANONYMOUS = "anonymous"
    """Any peer."""
    PRODUCE = "produce"
    """An account that may send to the topic."""
    CONSUME = "consume"
    """An account that may consume as the group, and from the topic if one is named."""
    ADMIN = "admin"
    """An admin account."""
    NODE = "node"
    """A node of the cluster, or an admin account."""


class AccountPerm:
    """Bits of a permission (Permission.java)."""

    DENY = 1
    PUB = 4
    SUB = 8


CONTROL_BYTES = 65_536
"""Limit of the body of a request of clients and operators. Most of them have none."""
LIST_BYTES = 262_144
"""Limit of a body that is a list: subscriptions, queues to lock, epochs of a log."""
MESSAGE_BYTES = -1
"""The body is a message or a batch: `maxMessageSize` is its limit."""


class Need(NamedTuple):
    """One permission that a request needs."""

    resource: str
    """A topic; a group as the name of its retry topic."""
    perm: int

    @property
    def words(self) -> str:
        """``topic:t`` or ``group:g``, as Java's broker names it in its answers."""
        if is_retry_topic(self.resource):
            return f"group:{self.resource[len(RETRY_PREFIX) :]}"
        return f"topic:{self.resource}"


TopicAt = Callable[[int], str]
"""Returns the topic of the message at an offset in bytes; empty when there is none."""
ReadBody = Callable[[RemotingCommand], Iterator[Need]]


@attrs.frozen(kw_only=True)
class Requirement:
    """The right that the sender of a request must have, and where the request names its resources.

    A field that is absent or empty asks for nothing: the handler rejects the request if it needs
    the field.
    """

    right: Right
    body_bytes: int
    """Limit of the body in bytes, checked before the body is read; or `MESSAGE_BYTES`."""
    topic: str = ""
    """Name of the field that holds a topic."""
    group: str = ""
    """Name of the field that holds a group."""
    message: str = ""
    """Name of the field that holds the offset in bytes of a stored message."""
    body: ReadBody | None = None
    """Reads topics and groups from the body. Errors: RemoteProtocolError."""
    note: str = ""
    """Words of docs/security.md: the resources in the body, or the handler that checks instead."""
    changes: bool = False
    """An operator changes something by it. A node that asks for no accounts, and has a cluster
    secret, asks for proof of that."""
    audited: bool = False
    """The journal tells who sent it (`trioha.security.audit`)."""
    by_connection: bool = False
    """The handler accepts the request only after a greeting on the same connection, and the
    greeting has its own requirement."""

    @property
    def words(self) -> str:
        """The requirement as docs/security.md shows it."""
        fields = [
            *([self.topic] if self.topic else []),
            *([self.group] if self.group else []),
            *([f"topic of the message at {self.message}"] if self.message else []),
            *(["a change"] if self.changes else []),
            *([self.note] if self.note else []),
        ]
        return f"{self.right.value} ({', '.join(fields)})" if fields else self.right.value

    @property
    def body_words(self) -> str:
        """The limit of the body as docs/security.md shows it."""
        if self.body_bytes == MESSAGE_BYTES:
            return "`maxMessageSize`"
        if self.body_bytes == FRAME_BYTES_MAX:
            return "16 MiB, as any frame"
        return f"{self.body_bytes >> 10} KiB"

    def needs(self, request: RemotingCommand, topic_at: TopicAt) -> Iterator[Need]:
        """Yield the permissions that a request needs.

        Errors: RemoteProtocolError for a body that is none; CommandError for an offset that holds
        no message here. It may hold one at the node that the request would be forwarded to, and
        nothing would check the message's topic there.

        Requests that ask for an admin account or a node need none beside that.
        """
        perm = AccountPerm.PUB if self.right is Right.PRODUCE else AccountPerm.SUB
        if self.topic and (name := request.ext_str(self.topic, "")):
            yield need_of(name, perm)
        if self.group and (name := request.ext_str(self.group, "")):
            yield Need(retry_topic(name), AccountPerm.SUB)
        if self.message:
            phy_offset = request.ext_int(self.message, -1)
            name = topic_at(phy_offset)
            if not name:
                raise CommandError(
                    ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {phy_offset}"
                )
            yield need_of(name, perm)
        if self.body is not None:
            yield from self.body(request)


def need_of(topic: str, perm: int) -> Need:
    """Return what a topic needs: a retry topic belongs to the consumers of its group."""
    return Need(topic, AccountPerm.SUB if topic.startswith(RETRY_PREFIX) else perm)


def heartbeat_needs(request: RemotingCommand) -> Iterator[Need]:
    """Yield what a heartbeat (34) needs: its consumer groups and their subscriptions."""
    for consumer in HeartbeatData.decode(request.body_bytes()).consumers:
        yield Need(retry_topic(consumer.group_name), AccountPerm.SUB)
        for subscription in consumer.subscriptions:
            yield need_of(subscription.topic, AccountPerm.SUB)


def lock_needs(request: RemotingCommand) -> Iterator[Need]:
    """Yield what a lock or unlock (41, 42) needs: its group, and the topics of its queues."""
    body = LockBatchBody.decode(request.body_bytes())
    yield Need(retry_topic(body.consumer_group), AccountPerm.SUB)
    for topic in {queue.topic for queue in body.queues}:
        yield need_of(topic, AccountPerm.SUB)


def pop_needs(request: RemotingCommand) -> Iterator[Need]:
    """Yield what a request for a popped message needs: the topic that a retry topic is for."""
    group = request.ext_str("consumerGroup", "")
    if topic := request.ext_str("topic", ""):
        yield _popped(topic, group)


def batch_ack_needs(request: RemotingCommand) -> Iterator[Need]:
    """Yield what a batch of acknowledgements (200151) needs: the groups and topics in the body."""
    fields = object_of(fastjson.loads(request.body_bytes()), "batch ack")
    needs: dict[Need, None] = {}
    for ack in list_of(fields.get("acks"), "acks"):
        one = object_of(ack, "ack")
        group = text(one, "c") or text(one, "consumerGroup")
        topic = text(one, "t") or text(one, "topic")
        if group:
            needs[Need(retry_topic(group), AccountPerm.SUB)] = None
        if topic:
            needs[_popped(topic, group)] = None
    yield from needs


def assignment_needs(request: RemotingCommand) -> Iterator[Need]:
    """Yield what a question for an assignment (400) needs: its group and its topic."""
    fields = object_of(fastjson.loads(request.body_bytes()), "query assignment")
    if group := text(fields, "consumerGroup"):
        yield Need(retry_topic(group), AccountPerm.SUB)
    if topic := text(fields, "topic"):
        yield need_of(topic, AccountPerm.SUB)


def _popped(topic: str, group: str) -> Need:
    prefix = retry_topic(group)
    if group and topic.startswith((f"{prefix}_", f"{prefix}+")):
        topic = topic[len(prefix) + 1 :]
    return need_of(topic, AccountPerm.SUB)


def client_config_needs(request: RemotingCommand) -> Iterator[Need]:
    """Yield what a check of a subscription (46) needs: its group and its topic."""
    fields = object_of(fastjson.loads(request.body_bytes()), "client config")
    if group := text(fields, "group"):
        yield Need(retry_topic(group), AccountPerm.SUB)
    if fields.get("subscriptionData") is not None:
        topic = SubscriptionData.from_dict(fields["subscriptionData"]).topic
        yield need_of(topic, AccountPerm.SUB)
