"""The header of a send, long names or short (SendMessageRequestHeader, …HeaderV2.java).

Fast clients send a packed header with short names. It is read without making a table of texts; an
unusual one goes the other way, which names the fault in its error. In plain Python that way is also
the faster one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trioha.errors import RemoteProtocolError
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from mypy_extensions import i64

_IS_COMPILED: Final = not __file__.endswith(".py")

_NAMES_V1: Final = (
    "topic",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "batch",
)
_NAMES_V2: Final = ("b", "e", "f", "g", "h", "i", "j", "m")
_SHORT: Final = {
    "producerGroup": "a",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
}
_V2_CODES: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
_I32_MAX: Final = 0x7FFFFFFF
_I64_MAX: Final = 0x7FFFFFFFFFFFFFFF


class SendHeader:
    """Fields that every send needs; the others are read by name when needed (`field`)."""

    __slots__ = (
        "born_timestamp",
        "flag",
        "is_batch",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        flag: int,
        properties: bytes,
        reconsume_times: int,
        is_batch: bool,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        """Below 0: the broker chooses."""
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.flag = flag
        self.properties = properties
        """The properties as they came, in UTF-8."""
        self.reconsume_times = reconsume_times
        self.is_batch = is_batch
        """The header says so, not the request code: C++ sends batches with code 310."""


def read_send_header(request: RemotingCommand) -> SendHeader:
    """Read the header by the request's code.

    Errors: RemoteProtocolError when a field is missing, no number, or out of its Java type's range.
    """
    if _IS_COMPILED and request.code in _V2_CODES:
        packed = request.packed_fields
        if packed is not None:
            header = read_packed(packed)
            if header is not None:
                return header
    names = _NAMES_V2 if request.code in _V2_CODES else _NAMES_V1
    fields = request.ext_fields
    try:
        topic = fields[names[0]]
        queue_id = int(fields[names[1]])  # type: ignore[arg-type]
        sys_flag = int(fields[names[2]])  # type: ignore[arg-type]
        born_timestamp = int(fields[names[3]])  # type: ignore[arg-type]
        flag = int(fields[names[4]])  # type: ignore[arg-type]
        properties = fields.get(names[5]) or ""
        reconsume_times = int(fields.get(names[6]) or 0)
        batch = fields.get(names[7])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise _missing_or_no_number(request, names) from None
    # Four comparisons in one, since nearly no number is below 0.
    if (
        not 0 <= queue_id | sys_flag | flag | reconsume_times <= _I32_MAX
        or not 0 <= born_timestamp <= _I64_MAX
    ) and (
        not -_I32_MAX <= queue_id <= _I32_MAX
        or not 0 <= sys_flag <= _I32_MAX
        or not -_I32_MAX <= flag <= _I32_MAX
        or not 0 <= reconsume_times <= _I32_MAX
        or not -_I64_MAX <= born_timestamp <= _I64_MAX
    ):
        raise RemoteProtocolError(
            f"request {request.code}: a number is out of range: queue {queue_id}, sysFlag "
            f"{sys_flag}, flag {flag}, reconsumeTimes {reconsume_times}, born {born_timestamp}"
        )
    return SendHeader(
        topic if isinstance(topic, str) else request.ext_str(names[0]),
        queue_id,
        sys_flag,
        born_timestamp,
        flag,
        (properties if isinstance(properties, str) else request.ext_str(names[5])).encode(
            "utf-8", "replace"
        ),
        reconsume_times,
        batch is not None and batch != "false" and request.ext_bool(names[7]),
    )


def read_packed(data: bytes) -> SendHeader | None:
    """Read a packed header with short names; return None if anything in it is unusual. HOT."""
    topic = properties = batch = b""
    queue_id: i64 = -1
    sys_flag: i64 = -1
    born_timestamp: i64 = -1
    flag: i64 = -1
    reconsume_times: i64 = 0
    position: i64 = 0
    end: i64 = len(data)
    # Sizes from 128 on are no ASCII either: then each text is looked at.
    is_ascii = data.isascii()
    while position < end:
        # A value of less than 64 KiB; a name of one letter, unless it is that of an account or so.
        if end - position < 7 or data[position] != 0 or data[position + 1] == 0:
            return None
        size: i64 = data[position + 1]
        begin: i64 = position + size + 6
        if begin > end or data[begin - 4] != 0 or data[begin - 3] != 0:
            return None
        letter: i64 = data[position + 2] if size == 1 else 0
        name_at: i64 = position + 2
        position = begin + (data[begin - 2] << 8 | data[begin - 1])
        if position > end:
            return None
        table: i64 = name_at - 2
        if letter == 97 and table > 0 and data[table : table * 2] == data[:table]:
            # a: Java's client writes the table twice when it signs.
            position = table * 2
            continue
        if not is_ascii and not (
            data[name_at : begin - 4].isascii() and data[begin:position].isascii()
        ):
            return None
        if letter == 98:  # b
            topic = data[begin:position]
        elif letter == 101:  # e
            queue_id = _number(data, begin, position)
        elif letter == 102:  # f
            sys_flag = _number(data, begin, position)
        elif letter == 103:  # g
            born_timestamp = _number(data, begin, position)
        elif letter == 104:  # h
            flag = _number(data, begin, position)
        elif letter == 105:  # i
            properties = data[begin:position]
        elif letter == 106:  # j
            reconsume_times = _number(data, begin, position)
        elif letter == 109:  # m
            batch = data[begin:position]
    if (
        queue_id < 0
        or sys_flag < 0
        or born_timestamp < 0
        or flag < 0
        or reconsume_times < 0
        or queue_id | sys_flag | flag | reconsume_times > _I32_MAX
        or not topic
    ):
        return None
    is_batch = batch == b"true"
    if not is_batch and batch and batch != b"false":
        return None
    return SendHeader(
        topic.decode(),
        queue_id,
        sys_flag,
        born_timestamp,
        flag,
        properties,
        reconsume_times,
        is_batch,
    )


def _number(data: bytes, begin: i64, end: i64) -> i64:
    """Return the digits between the two as a number; -1 for none, too many, or another byte."""
    if end == begin or end - begin > 18:
        return -1
    number: i64 = 0
    while begin < end:
        digit: i64 = data[begin] - 48
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
        begin += 1
    return number


def field(request: RemotingCommand, name: str) -> str:
    """Return the name of a less common field in this request's header."""
    return _SHORT[name] if request.code in _V2_CODES else name


def _missing_or_no_number(request: RemotingCommand, names: tuple[str, ...]) -> RemoteProtocolError:
    """Return the error of the slow way, which names the field, after the quick way failed."""
    try:
        request.ext_str(names[0])
        for name in names[1:5]:
            request.ext_int(name)
        request.ext_int(names[6], 0)
    except RemoteProtocolError as error:
        return error
    return RemoteProtocolError(f"request {request.code}: unreadable send header")
