"""Walk over a log: its sound records, the damage between them, and its end.

Theory of operation. A record is sound at a position when its magic is there, PHYSICALOFFSET says
so (a stale record in recycled bytes says otherwise), body, topic and properties fill its size
exactly, and the topic is text. That is more than 128 bits that must agree, and it depends on
nothing but the record's own bytes: a walk and a search judge a position alike. So a log may be cut
into splits anywhere. A split owns the records that begin in it, and the damage directly behind one
of them; a split that begins in the middle of anything goes on to its first record and reports
nothing, for the split before has seen the same.

A record may still have flipped bits inside body, properties or numbers; its checksum covers the
body alone. In a DLEDGER log each record stands in an entry of 48 bytes and more, which says its own
position too; entries that carry no record (NOOP) are walked over.

Where no record follows to the end of the log, zeros are free space, and bytes that begin like a
record and end too early are one being written: that is damage only in a store closed in order.
"""

from __future__ import annotations

import struct

import attrs

from trioha.analysis.log_source import LogSource
from trioha.wire.codes import SysFlag
from trioha.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIXED_SIZE,
    MAGIC,
    PRELUDE,
    SCAN,
    SCAN_SIZE,
    body_position,
)

ENTRY = struct.Struct(">IIqqq")
"""First fields of a DLEDGER entry's header: magic, size, index, term, position."""
ENTRY_SIZE = 48
_RECORD_ENTRY = 1
_EMPTY_ENTRIES = (2, 3)
_ENTRY_BLANK_MAGIC = 0xFFFFFFFF
_MAGIC_V2 = 0xDAA320AB
_MAGIC_BYTES = MAGIC.to_bytes(4, "big")
_SIZE_MAX = 0x7FFFFFFF
_BODY_SIZE = struct.Struct(">I")
_STORE_MS = struct.Struct(">q")
_U16 = struct.Struct(">H")
_ZERO_PIECE_BYTES = 1 << 20


@attrs.frozen
class Sound:
    """One entry of the log that is as it should be; positions are in the file."""

    end: int
    record_at: int
    """-1 when there is no record in it: a NOOP."""
    body_at: int = 0
    properties_at: int = 0
    topic: bytes = b""


@attrs.frozen
class Unsound:
    reason: str


class LogWalk:
    """Judges positions of one segment. `limit` is where the segment ends, data or not."""

    def __init__(self, source: LogSource, base: int, *, is_dledger: bool) -> None:
        self._source = source
        self._base = base
        self._is_dledger = is_dledger
        self.limit = source.size

    def sound(self, position: int) -> Sound | Unsound:
        """The entry at `position`, read in pieces: a body is passed over however large."""
        if not self._is_dledger:
            return self._record(position, self.limit)
        head = self._source.read(position, ENTRY_SIZE)
        if len(head) < ENTRY_SIZE:
            return Unsound("only a few bytes are left")
        magic, size, _, _, stated = ENTRY.unpack_from(head)
        if magic != _RECORD_ENTRY and magic not in _EMPTY_ENTRIES:
            return Unsound(f"entry magic {magic:#010x}")
        if not ENTRY_SIZE <= size <= self.limit - position:
            return Unsound(f"entry of {size} bytes")
        if stated != self._base + position:
            return Unsound(f"entry says it begins at {stated}")
        end = position + size
        record = self._record(position + ENTRY_SIZE, end)
        if magic in _EMPTY_ENTRIES:
            # No record inside vouches for the entry, so its second length has to.
            (body_size,) = _BODY_SIZE.unpack_from(head, ENTRY_SIZE - _BODY_SIZE.size)
            if isinstance(record, Sound) or body_size != size - ENTRY_SIZE:
                return Unsound(f"entry of kind {magic} and {size} bytes")
            return Sound(end, -1)
        if isinstance(record, Sound) and record.end != end:
            return Unsound(f"entry of {size} bytes holds {record.end - position}")
        return record

    def is_blank(self, position: int) -> bool:
        """Return whether the rest of the segment is filler, or nothing fits there."""
        if self.limit - position < BLANK_SIZE:
            return True
        first, second = PRELUDE.unpack(self._source.read(position, PRELUDE.size))
        if self._is_dledger:
            return bool(first == _ENTRY_BLANK_MAGIC and second == self.limit - position)
        return bool(second == BLANK_MAGIC and first == self.limit - position)

    def find(self, position: int, end: int) -> int:
        """First position in position..end where a record is sound, or -1. NOOPs do not count."""
        lead = 4 + (ENTRY_SIZE if self._is_dledger else 0)
        at = position + lead
        while (at := self._source.find(_MAGIC_BYTES, at, end + lead + 3)) >= 0:
            if isinstance(self.sound(at - lead), Sound):
                return at - lead
            at += 1
        return -1

    def last_byte(self, position: int, end: int) -> int:
        """Position of the last byte in position..end that is not zero, or -1."""
        while end > position:
            begin = max(position, end - _ZERO_PIECE_BYTES)
            piece = self._source.read(begin, end - begin).rstrip(b"\0")
            if piece:
                return begin + len(piece) - 1
            end = begin
        return -1

    def store_ms(self, record: Sound) -> int:
        """storeTimestamp of a record."""
        size = record.body_at - record.record_at
        head = self._source.read(record.record_at, size)
        at = 56 if size == SCAN_SIZE or not head[39] & SysFlag.BORNHOST_V6 else 68
        (value,) = _STORE_MS.unpack_from(head, at)
        return int(value)

    def is_unfinished(self, position: int, last: int) -> bool:
        """Return whether the bytes up to `last` can be the beginning of one entry being written."""
        end = last + 1
        if self._is_dledger:
            head = self._source.read(position, min(ENTRY_SIZE, end - position))
            if len(head) == ENTRY_SIZE:
                magic, size, _, _, stated = ENTRY.unpack_from(head)
                if stated != self._base + position or end >= position + size:
                    return False
                if magic in _EMPTY_ENTRIES:
                    return True
                position += ENTRY_SIZE
            elif len(head) > 3:
                return int.from_bytes(head[:4], "big") in (_RECORD_ENTRY, *_EMPTY_ENTRIES)
        head = self._source.read(position, max(0, min(SCAN_SIZE, end - position)))
        if len(head) < SCAN_SIZE:
            return len(head) < PRELUDE.size or bool(head[4:8] == _MAGIC_BYTES)
        size, magic, stated, _, _ = SCAN.unpack_from(head)
        if magic != MAGIC or stated != self._base + position or end >= position + size:
            return False
        length_at = self._body_end(position, head)
        if end <= length_at:
            return bool(length_at + 3 <= position + size)
        topic_end = length_at + 1 + self._source.read(length_at, 1)[0]
        if end <= topic_end + 2:
            return bool(topic_end + 2 <= position + size)
        (properties_size,) = _U16.unpack(self._source.read(topic_end, 2))
        return bool(topic_end + 2 + properties_size == position + size)

    def _body_end(self, position: int, head: bytes) -> int:
        _, _, _, sys_flag, body_size = SCAN.unpack_from(head)
        at = body_position(sys_flag)
        if at != SCAN_SIZE:
            (body_size,) = _BODY_SIZE.unpack(self._source.read(position + at - 4, 4))
        return position + at + int(body_size)

    def _record(self, position: int, end: int) -> Sound | Unsound:
        head = self._source.read(position, SCAN_SIZE)
        if len(head) < PRELUDE.size:
            return Unsound("only a few bytes are left")
        size, magic = PRELUDE.unpack_from(head)
        if magic != MAGIC:
            if magic == _MAGIC_V2:
                return Unsound("record of RocketMQ 5 with a long topic")
            return Unsound("zeros" if size == magic == 0 else f"magic {magic:#010x}")
        if len(head) < SCAN_SIZE or not FIXED_SIZE <= size <= min(end - position, _SIZE_MAX):
            return Unsound(f"record of {size} bytes")
        _, _, stated, sys_flag, _ = SCAN.unpack_from(head)
        if stated != self._base + position:
            return Unsound(f"record says it begins at {stated}")
        body_at = position + body_position(sys_flag)
        length_at = self._body_end(position, head)
        record_end = position + size
        if not body_at <= length_at <= record_end - 3:
            return Unsound(f"body of {length_at - body_at} bytes in a record of {size}")
        tail = self._source.read(length_at, 1 + 255 + 2)
        topic = tail[1 : 1 + tail[0]]
        properties_at = length_at + 3 + tail[0]
        properties_size = int.from_bytes(tail[1 + tail[0] : 3 + tail[0]], "big")
        if properties_at + properties_size != record_end:
            return Unsound("body, topic and properties do not fill the record")
        if topic_text(topic) is None:
            return Unsound("topic is not text")
        # Properties may end in a NUL, but when nothing follows they are still being written.
        around = self._source.read(record_end - 1, 1 + PRELUDE.size)
        if properties_size and not any(around):
            return Unsound("properties are cut off")
        return Sound(record_end, position, body_at, properties_at, topic)


def topic_text(topic: bytes) -> str | None:
    """A record's topic, or None when it cannot be one."""
    try:
        return None if b"\0" in topic else topic.decode()
    except UnicodeDecodeError:
        return None
