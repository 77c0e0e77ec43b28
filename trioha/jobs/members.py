"""A group's connected members, and what each says of itself (requests 203 and 307)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from trioha.errors import RemoteProtocolError
from trioha.failover.asking import Answer, Flow
from trioha.jobs.telling import Fields, JobScope, NotThere, ask_many, heard_of, read_one
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import integer, list_of, object_of, text

CLIENT_PATIENCE_S = 12.0
"""A broker waits 10 s for a client."""
_VERSIONS = {395: "4.9.0", 397: "4.9.1", 399: "4.9.2", 400: "4.9.3", 401: "4.9.4", 403: "4.9.5"}


@attrs.frozen
class Member:
    """A connected client of a group."""

    client_id: str
    address: str
    language: str
    version: str


@attrs.frozen
class GroupConnections:
    """Connected clients of a group, and their subscriptions."""

    members: list[Member]
    model: str
    """CLUSTERING or BROADCASTING; empty while nobody is connected."""
    kind: str
    """CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull); empty likewise."""
    subscriptions: dict[str, str]
    """Topic and expression, as the broker heard it last."""
    seen_at: dict[str, str]
    """Address of a broker that each client is connected to, by client id: a stock client is
    connected only to brokers of its topics."""


@attrs.frozen
class RunningInfo:
    """Running info that a consumer reports."""

    group: str
    client_id: str
    properties: dict[str, str]
    subscriptions: dict[str, str]
    """Topic and expression."""
    queues: list[HeldQueue]
    stacks: str | None
    """Stacks of its threads, where they were asked for and the client has them."""


@attrs.frozen
class HeldQueue:
    """A queue that a consumer holds."""

    topic: str
    broker: str
    queue_id: int
    commit_offset: int
    cached_messages: int
    locked: bool


def version_in_words(number: int) -> str:
    """Return a client's version as it is known, ``4.9.4``, or its number (MQVersion.java)."""
    if number >= 401 and number % 2 == 1:
        patch = 4 + (number - 401) // 2
        return f"4.9.{patch}" if patch <= 8 else f"5 ({number})"
    return _VERSIONS.get(number, str(number))


def read_connections(
    scope: JobScope, group: str, addresses: Iterable[str]
) -> Flow[GroupConnections]:
    """Ask every broker for a group's members. Errors: Unreachable, CommandError."""
    addresses = list(addresses)
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    replies = yield from ask_many(
        [scope.ask(one, code, {"consumerGroup": group}) for one in addresses]
    )
    members: dict[str, Member] = {}
    seen_at: dict[str, str] = {}
    subscriptions: dict[str, str] = {}
    model = kind = ""
    told = heard_of(scope, addresses, replies, unless=ResponseCode.CONSUMER_NOT_ONLINE)
    for address, answer in told.items():
        body = object_of(fastjson.loads(answer.body), "connections")
        for value in list_of(body.get("connectionSet"), "connectionSet"):
            one = object_of(value, "connection")
            version = version_in_words(integer(one, "version"))
            member = Member(
                text(one, "clientId"), text(one, "clientAddr"), text(one, "language"), version
            )
            members.setdefault(member.client_id, member)
            seen_at.setdefault(member.client_id, address)
        model = text(body, "messageModel") or model
        kind = text(body, "consumeType") or kind
        table = object_of(body.get("subscriptionTable"), "subscriptions")
        for topic in table:
            subscriptions[topic] = text(object_of(table[topic], topic), "subString")
    return GroupConnections(
        [members[name] for name in sorted(members)],
        model,
        kind,
        dict(sorted(subscriptions.items())),
        seen_at,
    )


def read_running_info(
    scope: JobScope, group: str, client_id: str, address: str, *, stacks: bool = False
) -> Flow[RunningInfo]:
    """Ask one consumer, by way of a broker, what it is doing.

    Errors: Unreachable; CommandError when it does not answer the broker, or cannot tell.
    """
    fields: Fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": stacks}
    answer = yield from read_one(
        scope,
        address,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        fields,
        patience_s=CLIENT_PATIENCE_S,
    )
    return running_info_of(group, client_id, answer)


def read_running_infos(
    scope: JobScope, group: str, told: GroupConnections
) -> Flow[dict[str, RunningInfo]]:
    """Ask all members at once; those that do not tell are left out. Patience as for one."""
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    ids = [one.client_id for one in told.members]
    replies = yield from ask_many(
        [
            scope.ask(
                told.seen_at[one],
                code,
                {"consumerGroup": group, "clientId": one, "jstackEnable": False},
                patience_s=CLIENT_PATIENCE_S,
            )
            for one in ids
        ]
    )
    infos = {}
    for client_id, reply in zip(ids, replies, strict=True):
        if isinstance(reply, Answer) and reply.is_success:
            try:
                infos[client_id] = running_info_of(group, client_id, reply)
            except RemoteProtocolError:
                continue
    return infos


def running_info_of(group: str, client_id: str, answer: Answer) -> RunningInfo:
    """Read ConsumerRunningInfo.java. Errors: RemoteProtocolError."""
    body = object_of(fastjson.loads(answer.body), "running info")
    properties = object_of(body.get("properties"), "properties")
    table = body.get("mqTable")
    queues = []
    for key, value in table.items() if isinstance(table, fastjson.ObjectKeyMap) else ():
        queue, held = MessageQueue.from_dict(key), object_of(value, "queue")
        queues.append(
            HeldQueue(
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                integer(held, "commitOffset"),
                integer(held, "cachedMsgCount"),
                bool(held.get("locked")),
            )
        )
    subscriptions = {}
    for value in list_of(body.get("subscriptionSet"), "subscriptionSet"):
        one = object_of(value, "subscription")
        subscriptions[text(one, "topic")] = text(one, "subString")
    return RunningInfo(
        group,
        client_id,
        {name: str(properties[name]) for name in sorted(properties)},
        dict(sorted(subscriptions.items())),
        sorted(queues, key=lambda one: (one.topic, one.broker, one.queue_id)),
        text(body, "jstack") or None,
    )


def member_of(connections: GroupConnections, group: str, client_id: str) -> Member:
    """Return one member; the only one if `client_id` is empty. Errors: NotThere."""
    members = connections.members
    if not members:
        raise NotThere(f"no consumer of group {group} is connected")
    if not client_id and len(members) == 1:
        return members[0]
    for one in members:
        if one.client_id == client_id:
            return one
    there = ", ".join(one.client_id for one in members)
    which = f"no client {client_id} in group {group}" if client_id else f"{group} has several"
    raise NotThere(f"{which}; its members are: {there}")
