"""How many whole, sound records a piece of the log holds: what a Raft leader sends to one who lags.

Old bytes are looked at before they go: a body that has rotted here must not become the others'.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from librt.strings import read_i32_be

from trioha.wire.codes import SysFlag
from trioha.wire.record import BLANK_MAGIC, BLANK_SIZE, FIXED_SIZE, MAGIC, SCAN_SIZE, RecordError

_MAGIC: Final = MAGIC - (1 << 32)
_BLANK_MAGIC: Final = BLANK_MAGIC - (1 << 32)
_BORN_V6: Final = int(SysFlag.BORNHOST_V6)
_STORE_V6: Final = int(SysFlag.STOREHOST_V6)
_FIXED_SIZE: Final = FIXED_SIZE
_BODY_AT: Final = SCAN_SIZE


def whole_records(data: bytes, phy_offset: int) -> int:
    """Bytes of the records and blanks that lie whole in `data`, which begins with one, here. HOT.

    Errors: RecordError where something else lies, or where a body does not match its checksum.
    """
    stop = len(data)
    position = 0
    while stop - position >= BLANK_SIZE:
        size: int = read_i32_be(data, position)
        magic: int = read_i32_be(data, position + 4)
        if magic == _MAGIC and size >= _FIXED_SIZE:
            if size > stop - position:
                break
            sys_flag: int = read_i32_be(data, position + 36)
            body_at = position + _BODY_AT
            if sys_flag & _BORN_V6:
                body_at += 12
            if sys_flag & _STORE_V6:
                body_at += 12
            body_size: int = read_i32_be(data, body_at - 4)
            crc: int = read_i32_be(data, position + 8)
            body_end = body_at + body_size
            if (
                body_size < 0
                or body_end > position + size
                or crc32(data[body_at:body_end]) & 0x7FFFFFFF != crc
            ):
                raise RecordError(f"the record at {phy_offset + position} has another checksum")
        elif magic != _BLANK_MAGIC or size < BLANK_SIZE:
            raise RecordError(f"no record begins at {phy_offset + position}")
        elif size > stop - position:
            break
        position += size
    return position
