"""Compare the commitlogs of a pair by an own reading of the format, without trioha's code."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import attrs

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
COMPARE_PERIOD_S = 0.1
_HEAD = struct.Struct(">II")


@attrs.frozen
class LogEnd:
    """How far a log is filled with whole records."""

    offset: int
    records: int


def segments(commitlog: Path) -> list[Path]:
    if not commitlog.exists():
        return []
    return sorted(path for path in commitlog.iterdir() if path.name.isdigit())


def end_of_log(commitlog: Path) -> LogEnd:
    """Walk the records from the first segment to the first hole."""
    offset = records = 0
    for segment in segments(commitlog):
        base = int(segment.name)
        data = segment.read_bytes()
        position = 0
        while position + 8 <= len(data):
            size, magic = _HEAD.unpack_from(data, position)
            if magic == BLANK_MAGIC:
                position = len(data)
                break
            if magic != MESSAGE_MAGIC or size == 0:
                return LogEnd(base + position, records)
            records += 1
            position += size
        offset = base + position
    return LogEnd(offset, records)


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
