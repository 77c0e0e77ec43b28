"""Checks of the records in a piece of the log that a Raft leader sends to a lagging follower.

Old bytes are looked at before they go: a body that has rotted here must not become the others'. And
a follower looks at bytes before it appends them: bytes that are no records would end it later, when
it brings its queues up to its log.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be

from trioha.checksum import crc32
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


def misplaced_record(data: bytes, phy_offset: int, segment_rest: int, topics: set[bytes]) -> str:
    """Return why `data` is not whole records and blanks that belong at `phy_offset`. HOT.

    Returns "" if it is. `segment_rest`: bytes from `phy_offset` to the end of its segment.
    `topics`: takes the topics of the records that were looked at.
    Checksums of bodies are not compared: a body that has rotted is no harm to the log.
    """
    stop = len(data)
    position = 0
    last_topic = b""
    while position < stop:
        at = phy_offset + position
        if stop - position < BLANK_SIZE:
            return f"the record at {at} is cut off"
        size: int = read_i32_be(data, position)
        magic: int = read_i32_be(data, position + 4)
        following = position + size
        if magic == _BLANK_MAGIC:
            if following != segment_rest:
                return f"the blank of {size} bytes at {at} does not fill its segment"
            if following > stop:
                return f"the blank at {at} is cut off"
            position = following
            continue
        if magic != _MAGIC or size < _FIXED_SIZE:
            return f"no record begins at {at}"
        if following > stop:
            return f"the record at {at} is cut off"
        # A record never comes so close to its segment's end that no blank fits behind it.
        if following > segment_rest - BLANK_SIZE:
            return f"the record of {size} bytes at {at} does not fit into its segment"
        own_offset: int = read_i64_be(data, position + 28)
        if own_offset != at:
            return f"the record at {at} says that it lies at {own_offset}"
        sys_flag: int = read_i32_be(data, position + 36)
        body_at = position + _BODY_AT
        if sys_flag & _BORN_V6:
            body_at += 12
        if sys_flag & _STORE_V6:
            body_at += 12
        body_size: int = read_i32_be(data, body_at - 4) if body_at < following else -1
        topic_at = body_at + body_size
        if body_size < 0 or topic_at >= following:
            return f"the record at {at} has a body of {body_size} in {size} bytes"
        topic_end = topic_at + 1 + data[topic_at]
        if topic_end + 2 > following:
            return f"the topic of the record at {at} is cut off"
        properties_size: int = read_i16_be(data, topic_end)
        if (properties_size & 0xFFFF) != following - topic_end - 2:
            return f"the lengths in the record at {at} do not add up"
        topic = data[topic_at + 1 : topic_end]
        if topic != last_topic:
            try:
                topic.decode()
            except UnicodeDecodeError:
                return f"the topic of the record at {at} is no UTF-8"
            last_topic = topic
            topics.add(topic)
        position = following
    return ""
