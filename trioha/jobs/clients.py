"""Connected producers and consumers, and what one of them is doing."""

from __future__ import annotations

import attrs

from trioha.errors import Unreachable
from trioha.failover.asking import Answer, Flow
from trioha.jobs.cluster_map import read_map, silent_in_words
from trioha.jobs.groups import list_groups
from trioha.jobs.members import (
    CLIENT_PATIENCE_S,
    RunningInfo,
    member_of,
    read_connections,
    read_running_info,
    version_in_words,
)
from trioha.jobs.messages import FoundMessage
from trioha.jobs.telling import (
    JobScope,
    NotThere,
    ask_many,
    going_on,
    heard_of,
    read_one,
    side_by_side,
)
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import boolean, integer, list_of, object_of, text


@attrs.frozen
class ListedClient:
    """One connected client of a group."""

    kind: str
    """producer or consumer."""
    group: str
    client_id: str
    address: str
    language: str
    version: str


@attrs.frozen
class ClientList:
    """Connected clients."""

    clients: list[ListedClient]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@attrs.frozen
class DirectConsumption:
    """Result of a message that a consumer was given directly."""

    group: str
    client_id: str
    msg_id: str
    result: str
    """CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION, …"""
    remark: str
    spent_ms: int
    order: bool


@going_on
def list_clients(
    scope: JobScope, *, producers: bool = True, consumers: bool = True, group: str = ""
) -> Flow[ClientList]:
    """List connected clients, of one group if named. Errors: Unreachable, CommandError."""
    known = yield from read_map(scope)
    addresses = list(known.readers().values()) if known.brokers else []
    found: dict[tuple[str, str, str], ListedClient] = {}
    if producers:
        code = RequestCode.GET_ALL_PRODUCER_INFO
        replies = yield from ask_many([scope.ask(one, code) for one in addresses])
        for answer in heard_of(scope, addresses, replies).values():
            for one in _producers(answer):
                if group in ("", one.group):
                    found.setdefault((one.kind, one.group, one.client_id), one)
    if consumers:
        if group:
            names = [group]
        else:
            listed = yield from list_groups(scope, everything=True)
            names = [one.name for one in listed.groups if one.members]
        each = yield from side_by_side(read_connections(scope, name, addresses) for name in names)
        for name, told in zip(names, each, strict=True):
            for member in told.members:
                found[("consumer", name, member.client_id)] = ListedClient(
                    "consumer",
                    name,
                    member.client_id,
                    member.address,
                    member.language,
                    member.version,
                )
    return ClientList([found[key] for key in sorted(found)], silent_in_words(scope, known))


@going_on
def describe_client(
    scope: JobScope, group: str, client_id: str = "", *, stacks: bool = False
) -> Flow[RunningInfo]:
    """Ask a consumer what it is doing; the group's only one if none is named.

    Errors: NotThere, Unreachable; CommandError when it does not answer its broker.
    """
    known = yield from read_map(scope)
    told = yield from read_connections(scope, group, list(known.masters().values()))
    try:
        member_id = member_of(told, group, client_id).client_id
    except NotThere as error:
        if missing := silent_in_words(scope, known):  # it may be connected there
            raise Unreachable("; ".join([str(error), *missing])) from error
        raise
    return (
        yield from read_running_info(
            scope, group, member_id, told.seen_at[member_id], stacks=stacks
        )
    )


def consume_directly(
    scope: JobScope, message: FoundMessage, group: str, client_id: str = ""
) -> Flow[DirectConsumption]:
    """Let a consumer consume a message here and now (309); its progress does not change.

    Errors: NotThere, Unreachable; CommandError when it does not answer its broker.
    """
    known = yield from read_map(scope)
    told = yield from read_connections(scope, group, list(known.masters().values()))
    member = member_of(told, group, client_id)
    address = known.masters(broker=message.broker)[message.broker]
    fields = {
        "consumerGroup": group,
        "clientId": member.client_id,
        "msgId": message.record.message_id,
        "brokerName": message.broker,
    }
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    answer = yield from read_one(scope, address, code, fields, patience_s=CLIENT_PATIENCE_S)
    body = object_of(fastjson.loads(answer.body), "result")
    return DirectConsumption(
        group,
        member.client_id,
        message.msg_id,
        text(body, "consumeResult"),
        text(body, "remark"),
        integer(body, "spentTimeMills"),
        boolean(body, "order", False),
    )


def _producers(answer: Answer) -> list[ListedClient]:
    data = object_of(object_of(fastjson.loads(answer.body), "producers").get("data"), "data")
    return [
        ListedClient(
            "producer",
            group,
            text(one, "clientId"),
            text(one, "remoteIP"),
            text(one, "language"),
            version_in_words(integer(one, "version")),
        )
        for group in data
        for one in (object_of(value, "producer") for value in list_of(data[group], group))
    ]
