"""Commitlogs by an own reading of the format, without trioha's code: their messages and ends."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from support.histories.messages import Place, Stored, name_of

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
COMPARE_PERIOD_S = 0.1
_HEAD = struct.Struct(">II")
_FIXED = struct.Struct(">IIIiiqqiq8sq8siqi")


@attrs.frozen
class LogEnd:
    """End of a log's whole records, and their number."""

    offset: int
    records: int


def segments(commitlog: Path) -> list[Path]:
    if not commitlog.exists():
        return []
    return sorted(path for path in commitlog.iterdir() if path.name.isdigit())


def _records(commitlog: Path) -> Iterator[tuple[int, int, bytes]]:
    """Offset, size and bytes of each record up to the first hole. A blank has no bytes."""
    for segment in segments(commitlog):
        base = int(segment.name)
        data = segment.read_bytes()
        position = 0
        while position + _HEAD.size <= len(data):
            size, magic = _HEAD.unpack_from(data, position)
            if magic == BLANK_MAGIC:
                yield base + position, len(data) - position, b""
                break
            if magic != MESSAGE_MAGIC or size == 0:
                return
            yield base + position, size, data[position : position + size]
            position += size


def end_of_log(commitlog: Path) -> LogEnd:
    """Walk the records from the first segment to the first hole."""
    records = 0
    end = next((int(segment.name) for segment in segments(commitlog)), 0)
    for offset, size, data in _records(commitlog):
        records += bool(data)
        end = offset + size
    return LogEnd(end, records)


def stored_messages(commitlog: Path, topic: str) -> Iterator[Stored]:
    """The records of one topic, from the first segment to the first hole."""
    for offset, _, data in _records(commitlog):
        if not data:
            continue
        fields = _FIXED.unpack_from(data)
        queue_id, queue_offset, phy_offset = fields[3], fields[5], fields[6]
        topic_at = _FIXED.size + fields[14]
        if data[topic_at + 1 : topic_at + 1 + data[topic_at]].decode() == topic:
            assert phy_offset == offset, f"record at {offset}: {phy_offset}"
            body = data[_FIXED.size : topic_at]
            place = Place(queue_id, queue_offset, phy_offset)
            yield Stored(name_of(body), len(body), zlib.crc32(body), place)


def first_difference(left: Path, right: Path, end: int) -> int | None:
    """The first offset below `end` at which two logs differ; None when they are equal."""
    for one, other in zip(segments(left), segments(right), strict=False):
        if one.name != other.name:
            return min(int(one.name), int(other.name))
        base = int(one.name)
        if base >= end:
            break
        span = end - base
        a, b = one.read_bytes()[:span], other.read_bytes()[:span]
        if a != b:
            pairs = zip(a, b, strict=False)
            return base + next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
    return None


def wait_for_equal_logs(left: Path, right: Path, within_s: float) -> LogEnd:
    """Wait until both logs hold the same records to the byte.

    The header of a long record comes before its body: equal ends alone say little.
    """
    deadline = time.monotonic() + within_s
    while True:
        ends = end_of_log(left), end_of_log(right)
        difference: int | None = min(ends[0].offset, ends[1].offset)
        if ends[0] == ends[1]:
            difference = first_difference(left, right, ends[0].offset)
            if difference is None:
                return ends[0]
        assert time.monotonic() < deadline, (
            f"{left} ends at {ends[0]}, {right} at {ends[1]}: they differ at {difference}"
        )
        time.sleep(COMPARE_PERIOD_S)
