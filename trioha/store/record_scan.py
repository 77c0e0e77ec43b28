"""Walk records in a piece of log without trusting it; shared by recovery and the offline tools.

A record counts as sound when magic, size and inner lengths fit together, PHYSICALOFFSET is where
it stands (a stale record in a recycled page has another), topic and properties are text, and the
body matches its checksum. Checksum 0 is a checksum like any other.

The checksum covers the body alone. Power that fails may leave zeros where topic or properties were,
in a page that never reached the disk, and every length still fits: so no zero may be in them.
"""

from __future__ import annotations

import struct
from mmap import mmap

import attrs

from trioha.checksum import crc32
from trioha.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIXED_SIZE,
    MAGIC,
    PRELUDE,
    RecordError,
    dispatch_fields,
    peek,
)

# size, magic, crc, PHYSICALOFFSET, sysFlag
_HEAD = struct.Struct(">III16xqi")
_BODY_SIZE = struct.Struct(">i")
_MAGIC_BYTES = MAGIC.to_bytes(4, "big")

Source = mmap | bytes


@attrs.frozen
class Walk:
    """Result of a walk through one segment."""

    position: int
    """Position behind the last sound record or blank."""
    records: int
    reason: str
    """Reason why it went no further; empty when the limit was reached."""
    last_position: int
    """Position of the last sound record, or -1."""
    blank_position: int = -1
    """Position of the blank that ended the segment, or -1."""


def walk(
    buffer: Source,
    position: int,
    limit: int,
    base: int,
    *,
    check_crc: bool = True,
    stop: int | None = None,
) -> Walk:
    """Walk sound records from `position` to `limit`, the end of a segment that begins at `base`.

    Records that begin at or behind `stop` are left alone.
    """
    records = 0
    last = -1
    unpack_head = _HEAD.unpack_from
    stop = limit if stop is None else min(stop, limit)
    while position < stop:
        if limit - position < BLANK_SIZE:
            return Walk(position, records, "only a few bytes are left", last)
        size, magic = PRELUDE.unpack_from(buffer, position)
        if magic == BLANK_MAGIC:
            if size != limit - position:
                return Walk(position, records, f"blank of {size} bytes", last)
            return Walk(limit, records, "", last, blank_position=position)
        if magic != MAGIC:
            if magic == 0 and size == 0:
                return Walk(position, records, "end of data", last)
            return Walk(position, records, f"magic {magic:#010x}", last)
        if not FIXED_SIZE <= size <= limit - position:
            return Walk(position, records, f"record of {size} bytes", last)
        _, _, crc, phy_offset, sys_flag = unpack_head(buffer, position)
        if phy_offset != base + position:
            return Walk(position, records, f"record says it begins at {phy_offset}", last)
        try:
            fields = dispatch_fields(buffer, position)
        except RecordError as error:
            return Walk(position, records, str(error), last)
        hosts = 88 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
        body_at = position + hosts
        if check_crc:
            (body_size,) = _BODY_SIZE.unpack_from(buffer, body_at - 4)
            if crc32(buffer[body_at : body_at + body_size]) & 0x7FFFFFFF != crc:
                return Walk(position, records, "body does not match its checksum", last)
        if "\0" in fields.topic:
            return Walk(position, records, "topic is damaged", last)
        if not _is_text(fields.properties) and not _is_plausible(
            buffer, position + size, limit, base
        ):
            # Torn: the body is there, the page with the properties is not. Between two records
            # it is only somebody's strange property.
            return Walk(position, records, "properties are damaged", last)
        last = position
        position += size
        records += 1
    return Walk(position, records, "", last)


def resynchronise(buffer: Source, position: int, limit: int, base: int) -> int:
    """First position at or behind `position` where a record plausibly begins, or `limit`."""
    at = position + 4
    while True:
        at = buffer.find(_MAGIC_BYTES, at, limit)
        if at < 0:
            return limit
        if _is_plausible(buffer, at - 4, limit, base):
            return at - 4
        at += 1


def _is_plausible(buffer: Source, position: int, limit: int, base: int) -> bool:
    # 96 matching bits: chance does not make them.
    if position < 0 or limit - position < FIXED_SIZE:
        return False
    header = peek(buffer, position)
    return (
        header.magic == MAGIC
        and header.phy_offset == base + position
        and FIXED_SIZE <= header.size <= limit - position
    )


def _is_text(properties: bytes) -> bool:
    if b"\0" in properties:
        return False
    if properties.isascii():
        return True
    try:
        properties.decode()
    except UnicodeDecodeError:
        return False
    return True
