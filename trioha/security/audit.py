"""A journal line for each change that an operator makes: the change and the signing account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgpack

from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

Caller = Callable[[Channel, RemotingCommand], str]
"""Returns the account that signed a request; empty without a right signature."""
_NAMES: Final = (
    *("topic", "group", "groupName", "consumerGroup", "srcGroup", "destGroup"),
    *("namespace", "key", "brokerName", "accessKey", "username", "subject"),
)
"""Fields that name what is changed. None of them holds a secret."""
_CHARS_MAX: Final = 300


def audited(code: int, handler: Handler, caller: Caller, events: EventSink) -> Handler:
    """Return the handler, which tells the journal of each request that it does not reject.

    A request that another node carries out, or that is answered later, is told of when it comes.
    """

    def handle(
        channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        response = handler(channel, request, instant)
        if response is None or response.code == ResponseCode.SUCCESS:
            events.event(
                "operator_change",
                code=code,
                request=RequestCode(code).name,
                what=_what(request),
                peer=channel.peer,
                account=caller(channel, request),
            )
        return response

    return handle


def _what(request: RemotingCommand) -> str:
    fields = request.ext_fields
    named = [f"{name}={fields[name]}" for name in _NAMES if fields.get(name)]
    if request.code == RequestCode.TRIOHA_RAFT_ADMIN:
        named += _raft_change(request.body_bytes())
    return " ".join(named)[:_CHARS_MAX]


def _raft_change(body: bytes) -> list[str]:
    try:
        change = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException):
        return []
    if not isinstance(change, dict):
        return []
    return [f"{name}={change[name]}" for name in ("do", "member") if name in change]
