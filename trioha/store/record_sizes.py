"""How many whole records a piece of the log holds: what a Raft leader sends to one who lags.

The pieces come from our own log, which recovery has checked; so only size and magic are looked at.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be

from trioha.wire.record import BLANK_MAGIC, BLANK_SIZE, MAGIC, RecordError

_MAGIC: Final = MAGIC - (1 << 32)
_BLANK_MAGIC: Final = BLANK_MAGIC - (1 << 32)


def whole_records(data: bytes) -> int:
    """Bytes of the records and blanks that lie whole in `data`, which begins with one. HOT.

    Errors: RecordError where something else lies.
    """
    stop = len(data)
    position = 0
    while stop - position >= BLANK_SIZE:
        size: int = read_i32_be(data, position)
        magic: int = read_i32_be(data, position + 4)
        if size < BLANK_SIZE or (magic != _MAGIC and magic != _BLANK_MAGIC):
            raise RecordError(f"no record begins {position} bytes further on")
        if size > stop - position:
            break
        position += size
    return position
