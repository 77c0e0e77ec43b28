"""Finds where records begin that follow one another, by their sizes alone.

Each record states its size, so nothing else has to be read on the way from one to the next. Whether
these are records at all is for the caller to judge: bytes that are none end the chain anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i32_be, write_i64_le

from trioha.wire.record import FIXED_SIZE

if TYPE_CHECKING:
    from mypy_extensions import i64

_SIZE_MIN: Final = FIXED_SIZE


def record_begins(data: bytes, begin: int, stop: int, most: int, lead: int) -> bytes:
    """Return the places where records begin: from `begin` to before `stop`, `most` of them.

    Each place is an i64, little-endian. `lead` bytes of something else stand before each record,
    which begins with these. The chain ends before a size that no record has.

    Errors: IndexError when a record before `stop` has no room for `lead` and its size.
    """
    found = BytesWriter()
    at: i64 = begin
    end: i64 = stop
    left: i64 = most
    before: i64 = lead
    while at < end and left > 0:
        size: int = read_i32_be(data, at + before)
        if size < _SIZE_MIN:
            break
        write_i64_le(found, at)
        at += before + size
        left -= 1
    return found.getvalue()
