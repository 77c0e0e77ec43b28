"""The header of a send, long names or short (SendMessageRequestHeader, …HeaderV2.java)."""

from __future__ import annotations

import attrs

from trioha.errors import RemoteProtocolError
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

_NAMES_V1 = (
    "topic",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "batch",
)
_NAMES_V2 = ("b", "e", "f", "g", "h", "i", "j", "m")
_SHORT = {
    "producerGroup": "a",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
}
_V2_CODES = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
_I32_MAX = 0x7FFFFFFF
_I64_MAX = 0x7FFFFFFFFFFFFFFF


@attrs.define(slots=True, eq=False)
class SendHeader:
    """What every send needs; the rest is read by name when it is needed (`field`)."""

    topic: str
    queue_id: int
    """Below 0: the broker chooses."""
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    is_batch: bool
    """The header says so, not the request code: C++ sends batches with code 310."""


def read_send_header(request: RemotingCommand) -> SendHeader:
    """Read the header by the request's code.

    Errors: RemoteProtocolError when a field is missing, no number, or out of its Java type's range.
    """
    names = _NAMES_V2 if request.code in _V2_CODES else _NAMES_V1
    topic, queue_id, sys_flag, born_timestamp, flag, properties, reconsume_times, batch = names
    fields = request.ext_fields
    try:
        header = SendHeader(
            fields[topic],  # type: ignore[arg-type]
            int(fields[queue_id]),  # type: ignore[arg-type]
            int(fields[sys_flag]),  # type: ignore[arg-type]
            int(fields[born_timestamp]),  # type: ignore[arg-type]
            int(fields[flag]),  # type: ignore[arg-type]
            fields.get(properties) or "",  # type: ignore[arg-type]
            int(fields.get(reconsume_times) or 0),
            fields.get(batch) not in (None, "false") and request.ext_bool(batch),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise _missing_or_no_number(request, names) from None
    if header.topic.__class__ is not str:
        header.topic = request.ext_str(topic)
    if header.properties.__class__ is not str:
        header.properties = request.ext_str(properties)
    if (
        not -_I32_MAX <= header.queue_id <= _I32_MAX
        or not 0 <= header.sys_flag <= _I32_MAX
        or not -_I32_MAX <= header.flag <= _I32_MAX
        or not 0 <= header.reconsume_times <= _I32_MAX
        or not -_I64_MAX <= header.born_timestamp <= _I64_MAX
    ):
        raise RemoteProtocolError(f"request {request.code}: a number is out of range: {header}")
    return header


def field(request: RemotingCommand, name: str) -> str:
    """What a less common field is called in this request's header."""
    return _SHORT[name] if request.code in _V2_CODES else name


def _missing_or_no_number(request: RemotingCommand, names: tuple[str, ...]) -> RemoteProtocolError:
    """Why the quick way failed, by the slow one that names the field."""
    try:
        request.ext_str(names[0])
        for name in names[1:5]:
            request.ext_int(name)
        request.ext_int(names[6], 0)
    except RemoteProtocolError as error:
        return error
    return RemoteProtocolError(f"request {request.code}: unreadable send header")
