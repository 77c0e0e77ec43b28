"""Batch bodies: several messages in one send (MessageDecoder.encodeMessages, decodeMessage).

An element is ``total i32 | magic i32 | crc i32 | flag i32 | body i32+n | properties i16+n``; total
counts the whole element, magic and crc travel as 0. The broker stores each as a record of its own.
How many there are is bounded by the limit on the request's body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from trioha.errors import RemoteProtocolError
from trioha.wire.properties import PROPERTIES_BYTES_MAX
from trioha.wire.remoting_command import Buffer

_HEAD = struct.Struct(">iIIii")
_U16 = struct.Struct(">H")
_ELEMENT_SIZE_MIN = _HEAD.size + _U16.size


class BatchElement(NamedTuple):
    """One message of a batch; body and properties may be views into the batch."""

    flag: int
    body: Buffer
    properties: Buffer


def split_batch(body: Buffer) -> list[BatchElement]:
    """The elements of a batch body, as views into it.

    Errors: RemoteProtocolError when the lengths do not add up.
    """
    view = memoryview(body)
    end = len(view)
    elements: list[BatchElement] = []
    position = 0
    while position < end:
        if end - position < _ELEMENT_SIZE_MIN:
            raise RemoteProtocolError(f"batch element at {position} is cut off")
        total, _, _, flag, body_size = _HEAD.unpack_from(view, position)
        body_at = position + _HEAD.size
        body_end = body_at + body_size
        if body_size < 0 or body_end + 2 > end:
            raise RemoteProtocolError(f"batch element at {position}: body of {body_size} bytes")
        (properties_size,) = _U16.unpack_from(view, body_end)
        properties_at = body_end + 2
        element_end = properties_at + properties_size
        if element_end > end or total != element_end - position:
            raise RemoteProtocolError(f"batch element at {position}: lengths lie, total {total}")
        elements.append(BatchElement(flag, view[body_at:body_end], view[properties_at:element_end]))
        position = element_end
    return elements


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """A batch body. Errors: ValueError when an element's properties are too long."""
    parts: list[Buffer] = []
    for flag, body, properties in elements:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise ValueError(f"properties of {len(properties)} bytes are too long")
        total = _ELEMENT_SIZE_MIN + len(body) + len(properties)
        parts += (_HEAD.pack(total, 0, 0, flag, len(body)), body)
        parts += (_U16.pack(len(properties)), properties)
    return b"".join(parts)
