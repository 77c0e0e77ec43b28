"""The packed table of a ROCKETMQ header: names and values, back to back (RocketMQSerializable).

``(name length u16 | name | value length i32 | value)*``, all of it UTF-8. What came in is checked
length by length, so that a table which lies about itself is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trioha.errors import RemoteProtocolError
from trioha.wire.json_header import ExtValue

if TYPE_CHECKING:
    from mypy_extensions import i64


def pack_fields(ext_fields: Mapping[str, ExtValue]) -> bytes:
    """``(i16+n name, i32+n value)*``; fields that are None are left out."""
    parts: list[bytes] = []
    for name, value in ext_fields.items():
        if value is None:
            continue
        key = name.encode()
        text = value.encode() if isinstance(value, str) else ext_text(value).encode()
        parts.append(len(key).to_bytes(2, "big"))
        parts.append(key)
        parts.append(len(text).to_bytes(4, "big"))
        parts.append(text)
    return b"".join(parts)


def unpack_fields(data: bytes) -> dict[str, ExtValue]:
    """The reverse of `pack_fields`. Errors: RemoteProtocolError."""
    fields: dict[str, ExtValue] = {}
    position: i64 = 0
    end: i64 = len(data)
    while position < end:
        if end - position < 6:
            raise too_long(end - position)
        name_at: i64 = position + 2
        name_end: i64 = name_at + (data[position] << 8 | data[position + 1])
        value_at: i64 = name_end + 4
        if value_at > end:
            raise too_long(name_end - name_at)
        position = value_at + (
            data[name_end] << 24
            | data[name_end + 1] << 16
            | data[name_end + 2] << 8
            | data[name_end + 3]
        )
        if position > end:
            raise too_long(position - value_at)
        # A zero-length string decodes to null in Java.
        fields[text_of(data[name_at:name_end])] = (
            text_of(data[value_at:position]) if position > value_at else None
        )
    return fields


def text_of(data: bytes) -> str:
    """Errors: RemoteProtocolError for what is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"undecodable ROCKETMQ header: {error}") from None


def too_long(size: int) -> RemoteProtocolError:
    """The error for a length that its header cannot hold."""
    return RemoteProtocolError(f"string or table of {size} bytes exceeds the ROCKETMQ header")


def ext_text(value: ExtValue) -> str:
    """A field's value as peers want it: everything is a string, booleans in Java's spelling."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
