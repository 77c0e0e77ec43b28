"""Batch bodies: several messages in one send (MessageDecoder.encodeMessages, decodeMessage).

An element is ``total i32 | magic i32 | crc i32 | flag i32 | body i32+n | properties i16+n``; total
counts the whole element, magic and crc travel as 0. The broker stores each as a record of its own.
How many there are is bounded by the limit on the request's body: 190,000 in 4 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from librt.strings import read_i32_be

from trioha.errors import RemoteProtocolError
from trioha.wire.properties import PROPERTIES_BYTES_MAX
from trioha.wire.remoting_command import Buffer

_HEAD: Final = struct.Struct(">iIIii")
_U16: Final = struct.Struct(">H")
_HEAD_SIZE: Final = 20
ELEMENT_SIZE_MIN: Final = 22
ALL: Final = 1 << 30


class BatchElement(NamedTuple):
    """One message of a batch."""

    flag: int
    body: Buffer
    properties: Buffer


def split_fields(
    data: bytes, position: int = 0, count_max: int = ALL
) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """Return flag, body and properties of each element from `position` on, and where they end.

    At most `count_max` elements are split: the rest begins at that end.

    Errors: RemoteProtocolError when the lengths do not add up.
    """
    end = len(data)
    elements: list[tuple[int, bytes, bytes]] = []
    while position < end and len(elements) < count_max:
        body_at = position + _HEAD_SIZE
        if body_at + 2 > end:
            raise RemoteProtocolError(f"batch element at {position} is cut off")
        # `int`, or compiled sums with them would wrap at 32 bits.
        total: int = read_i32_be(data, position)
        flag: int = read_i32_be(data, position + 12)
        body_size: int = read_i32_be(data, position + 16)
        body_end = body_at + body_size
        if body_size < 0 or body_end + 2 > end:
            raise RemoteProtocolError(f"batch element at {position}: body of {body_size} bytes")
        properties_at = body_end + 2
        element_end = properties_at + (data[body_end] << 8 | data[body_end + 1])
        if element_end > end or total != element_end - position:
            raise RemoteProtocolError(f"batch element at {position}: lengths lie, total {total}")
        elements.append((flag, data[body_at:body_end], data[properties_at:element_end]))
        position = element_end
    return elements, position


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """A batch body. Errors: ValueError when an element's properties are too long."""
    parts: list[Buffer] = []
    for flag, body, properties in elements:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise ValueError(f"properties of {len(properties)} bytes are too long")
        total = ELEMENT_SIZE_MIN + len(body) + len(properties)
        parts += (_HEAD.pack(total, 0, 0, flag, len(body)), body)
        parts += (_U16.pack(len(properties)), properties)
    return b"".join(parts)
