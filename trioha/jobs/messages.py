"""Finds and reads messages: by id, by key, by place; queue by queue without a group.

Reading is by pulls (11) of the tools' own group that commit nothing, so no application's progress
changes and no consumer is needed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import attrs

from trioha.errors import CommandError, RemoteProtocolError, Unreachable
from trioha.failover.asking import Answer, Ask, Flow, Reply
from trioha.jobs.cluster_map import read_map
from trioha.jobs.telling import Fields, JobScope, NotThere, answered, ask_many, read_one
from trioha.jobs.topics import TopicQueue, addresses_of, existing_route
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode, SysFlag
from trioha.wire.compression import inflate
from trioha.wire.message_id import decode_message_id, unpack_host
from trioha.wire.properties import Property
from trioha.wire.record import Record, decode_records

TOOLS_GROUP = "TOOLS_CONSUMER"
_FAR_FUTURE_MS = 2**63 - 1
KEY_MATCHES_MAX = 64
PULLED_AT_ONCE = 32
"""Messages of one pull; a broker gives at most 32 from its disk."""


@attrs.frozen
class ShownMessage:
    """One message as it is stored."""

    topic: str
    broker: str
    """Empty where the answer does not tell."""
    queue_id: int
    queue_offset: int
    msg_id: str
    """UNIQ_KEY, or the broker's id when the sender gave none."""
    offset_msg_id: str
    tags: str
    keys: list[str]
    born_ms: int
    born_host: str
    stored_ms: int
    reconsume_times: int
    size: int
    properties: dict[str, str]
    body: str | None
    """Null if it is not UTF-8: then `body_base64` has it."""
    body_base64: str | None


@attrs.frozen
class MessageList:
    """Messages that were found, the oldest first."""

    messages: list[ShownMessage]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@attrs.frozen
class FoundMessage:
    """A record and the broker that holds it."""

    record: Record
    broker: str
    body: bytes
    """Inflated if it was compressed by zlib."""

    @property
    def properties(self) -> dict[str, str]:
        return self.record.properties

    @property
    def msg_id(self) -> str:
        return self.properties.get(Property.UNIQ_KEY) or self.record.message_id

    def show(self) -> ShownMessage:
        """Return it as plain values."""
        record = self.record
        try:
            text, encoded = self.body.decode(), None
        except UnicodeDecodeError:
            text, encoded = None, base64.b64encode(self.body).decode()
        return ShownMessage(
            record.topic,
            self.broker,
            record.queue_id,
            record.queue_offset,
            self.msg_id,
            record.message_id,
            record.tags or "",
            list(record.keys),
            record.born_timestamp,
            "{}:{}".format(*unpack_host(record.born_host)),
            record.store_timestamp,
            record.reconsume_times,
            record.size,
            dict(record.properties),
            text,
            encoded,
        )


def stored_messages(body: bytes, broker: str) -> list[FoundMessage]:
    """Read the records of an answer. Errors: RemoteProtocolError."""
    found = []
    for record in decode_records(body):
        text = record.body
        if record.sys_flag & SysFlag.COMPRESSED:
            inflated = inflate(record.body, record.sys_flag)
            text = record.body if inflated is None else inflated
        found.append(FoundMessage(record, broker, text))
    return found


def find_messages(
    scope: JobScope, *, topic: str = "", msg_id: str = "", key: str = ""
) -> Flow[list[FoundMessage]]:
    """Find messages by the broker's id, by the unique id in a topic, or by a key in a topic.

    Errors: NotThere, Unreachable, CommandError.
    """
    if key:
        found = yield from by_key(scope, topic, key)
        what = f"no message of {topic} has the key {key}"
    else:
        found = yield from _by_offset_id(scope, msg_id)
        what = f"no message {msg_id}"
        if not found and topic:
            found = yield from by_key(scope, topic, msg_id, unique=True)
            what = f"no message {msg_id} in {topic}"
        elif not found:
            what += "; a client's id is found with -t TOPIC"
    if not found and scope.silent:
        raise Unreachable("; ".join([what, *scope.silent.values()]))
    if not found:
        raise NotThere(f"{what}; brokers keep messages for fileReservedTime hours")
    return sorted(found, key=lambda one: (one.record.store_timestamp, one.record.phy_offset))


def message_at(
    scope: JobScope, topic: str, broker: str, queue_id: int, offset: int
) -> Flow[FoundMessage]:
    """Return the message at a place. Errors: NotThere with the range that there is."""
    address = yield from _reader_of(scope, topic, broker)
    page = yield from pull(
        scope, address, topic, TopicQueue(broker, queue_id, 0, 0, 0, None), offset
    )
    first = next((one for one in page.messages if one.record.queue_offset == offset), None)
    if first is None:
        raise NotThere(
            f"queue {queue_id} of {broker} has no message at offset {offset} of {topic}; it holds"
            f" {page.min_offset} to {page.max_offset}"
        )
    return first


def by_key(
    scope: JobScope, topic: str, key: str, *, unique: bool = False, begin_ms: int = 0
) -> Flow[list[FoundMessage]]:
    """Ask every broker of the topic. Errors: NotThere if there is no such topic, Unreachable."""
    addresses = addresses_of((yield from existing_route(scope, topic)))
    replies = yield from ask_many(
        [
            key_question(scope, address, topic, key, unique, begin_ms)
            for address in addresses.values()
        ]
    )
    found = []
    for (broker, address), reply in zip(addresses.items(), replies, strict=True):
        if isinstance(reply, Answer) or scope.silent is None:
            found += matches(address, broker, reply, key, unique)
    return found


def key_question(
    scope: JobScope, address: str, topic: str, key: str, unique: bool, begin_ms: int = 0
) -> Ask:
    """Return the question for messages by key (12)."""
    fields: Fields = {
        "topic": topic,
        "key": key,
        "maxNum": KEY_MATCHES_MAX,
        "beginTimestamp": begin_ms,
        "endTimestamp": _FAR_FUTURE_MS,
        "_UNIQUE_KEY_QUERY": "true" if unique else None,
    }
    return scope.ask(address, RequestCode.QUERY_MESSAGE, fields)


def matches(address: str, broker: str, reply: Reply, key: str, unique: bool) -> list[FoundMessage]:
    """Return what was found: the index compares hashes, this the keys."""
    if isinstance(reply, Answer) and reply.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    return [
        one
        for one in stored_messages(answered(address, reply).body, broker)
        if (one.msg_id == key if unique else key in one.record.keys)
    ]


def _by_offset_id(scope: JobScope, msg_id: str) -> Flow[list[FoundMessage]]:
    try:
        host, port, phy_offset = decode_message_id(msg_id)
    except RemoteProtocolError:
        return []
    address = f"{host}:{port}"
    known = yield from read_map(scope)
    owners = [name for name, nodes in known.brokers.items() if address in nodes.values()]
    if not owners:
        return []  # a client's id of the same length
    try:
        fields = {"offset": phy_offset}
        answer = yield from read_one(scope, address, RequestCode.VIEW_MESSAGE_BY_ID, fields)
    except CommandError:
        return []
    return stored_messages(answer.body, owners[0])


def _reader_of(scope: JobScope, topic: str, broker: str) -> Flow[str]:
    addresses = addresses_of((yield from existing_route(scope, topic)))
    if broker not in addresses:
        raise NotThere(f"{topic} is not on {broker}; it is on: {', '.join(addresses)}")
    return addresses[broker]


@attrs.frozen
class PulledPage:
    """The answer to one pull."""

    messages: list[FoundMessage]
    next_offset: int
    min_offset: int
    max_offset: int


def pull_question(
    scope: JobScope, address: str, topic: str, queue: TopicQueue, offset: int, tags: str = "*"
) -> Ask:
    """Return one pull of up to `PULLED_AT_ONCE` messages that waits for none."""
    fields: Fields = {
        "consumerGroup": TOOLS_GROUP,
        "topic": topic,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "maxMsgNums": PULLED_AT_ONCE,
        "sysFlag": int(PullSysFlag.SUBSCRIPTION),
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": tags,
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return scope.ask(address, RequestCode.PULL_MESSAGE, fields)


def pull(
    scope: JobScope, address: str, topic: str, queue: TopicQueue, offset: int
) -> Flow[PulledPage]:
    """Pull once. Errors: Unreachable, CommandError."""
    (reply,) = yield from ask_many([pull_question(scope, address, topic, queue, offset)])
    return page_of(address, queue.broker, reply)


def page_of(address: str, broker: str, reply: Reply) -> PulledPage:
    """Read the answer to a pull. Errors: Unreachable, CommandError, RemoteProtocolError."""
    nothing = (
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
    if not (isinstance(reply, Answer) and reply.code in nothing):
        reply = answered(address, reply)
    fields = reply.ext_fields
    found = stored_messages(reply.body, broker) if reply.is_success else []
    return PulledPage(
        found,
        int(fields.get("nextBeginOffset", 0)),
        int(fields.get("minOffset", 0)),
        int(fields.get("maxOffset", 0)),
    )


def by_time(messages: Sequence[FoundMessage]) -> Iterator[FoundMessage]:
    """Sort messages of several queues as they were stored."""
    return iter(
        sorted(messages, key=lambda one: (one.record.store_timestamp, one.record.queue_offset))
    )
