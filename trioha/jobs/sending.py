"""Sends one message to a topic that exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from trioha.errors import CommandError, OutcomeUnknown, TriohaError, Unreachable
from trioha.failover.asking import Failed, Flow, ask_all
from trioha.jobs.cluster_map import MASTER_ID
from trioha.jobs.telling import Fields, JobRefused, JobScope, NotThere
from trioha.jobs.topics import existing_route
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.names import AUTO_CREATE_TOPIC
from trioha.wire.properties import Property, encode_properties

_GROUP = "TRIOHA_MESSAGE_SEND"
_STORED = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}


@attrs.frozen
class NewMessage:
    """A message to send."""

    topic: str
    body: bytes
    tag: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict)
    queue: tuple[str, int] | None = None
    """(broker, queue id); None: any that takes messages."""


@attrs.frozen
class SentMessage:
    """A message that is stored."""

    status: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str


def send_message(
    scope: JobScope, message: NewMessage, msg_id: str, born_ms: int
) -> Flow[SentMessage]:
    """Send it once, with this UNIQ_KEY.

    Errors: NotThere; JobRefused when no queue takes messages; OutcomeUnknown when the answer does
    not come; Unreachable; CommandError.
    """
    route = yield from existing_route(scope, message.topic)
    masters = {
        one.broker_name: one.broker_addrs[MASTER_ID]
        for one in route.broker_datas
        if MASTER_ID in one.broker_addrs
    }
    writable = [
        (one.broker_name, queue_id)
        for one in route.queue_datas
        if one.perm & Perm.WRITE and one.broker_name in masters
        for queue_id in range(one.write_queue_nums)
    ]
    if message.queue is None:
        if not writable:
            raise JobRefused(f"no queue of {message.topic} takes messages now")
        broker, queue_id = writable[int(msg_id[-4:], 16) % len(writable)]
    elif message.queue not in writable:
        shown = ", ".join(f"{name}:{number}" for name, number in writable) or "none"
        raise NotThere(
            f"queue {message.queue[0]}:{message.queue[1]} of {message.topic} takes no messages;"
            f" these do: {shown}"
        )
    else:
        broker, queue_id = message.queue
    properties = {Property.UNIQ_KEY: msg_id, **message.properties}
    if message.tag:
        properties[Property.TAGS] = message.tag
    if message.keys:
        properties[Property.KEYS] = " ".join(message.keys)
    if any(sign in text for pair in properties.items() for text in pair for sign in "\x01\x02"):
        raise TriohaError("the bytes 1 and 2 separate properties; leave them out")
    fields: Fields = {
        "a": _GROUP,
        "b": message.topic,
        "c": AUTO_CREATE_TOPIC,
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": born_ms,
        "h": 0,
        "i": encode_properties(properties).decode(),
        "j": 0,
        "k": False,
        "m": False,
    }
    request = scope.ask(masters[broker], RequestCode.SEND_MESSAGE_V2, fields, message.body)
    (reply,) = yield from ask_all(request)
    if isinstance(reply, Failed):
        if not reply.may_have_happened:
            raise Unreachable(reply.reason)
        raise OutcomeUnknown(
            f"it is not known whether {msg_id} is stored: {reply.reason};"
            f" `trioha message get -t {message.topic} {msg_id}` tells"
        )
    if reply.code not in _STORED:
        raise CommandError(reply.code, f"{broker}: {reply.remark or 'refused'}")
    return SentMessage(
        _STORED[ResponseCode(reply.code)],
        message.topic,
        broker,
        int(reply.ext_fields["queueId"]),
        int(reply.ext_fields["queueOffset"]),
        msg_id,
        reply.ext_fields.get("msgId", ""),
    )
