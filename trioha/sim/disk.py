"""A disk that keeps what was synced and is free to lose the rest.

A process that is killed loses nothing: the page cache is the kernel's. A machine that loses power
keeps of every file what was flushed, and of what was appended since any prefix, cut anywhere, so
that the last record may be torn. Small files that are saved whole (`TwoSlotFile`) are durable when
`save` returns, and the one before is when it does not.

Every operation is a place to die: `crash_point` is called before and after each, and may raise.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

CrashPoint = Callable[[str], None]


class Crashed(Exception):
    """The machine died within an operation; nothing after it has happened."""


class LogFile:
    """Bytes that are appended, flushed and cut."""

    def __init__(self, crash_point: CrashPoint) -> None:
        self.data = bytearray()
        self.flushed_offset = 0
        """Offset below which the data survives a power loss."""
        self._crash_point = crash_point

    def append(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        self._crash_point("before flush")
        self.flushed_offset = len(self.data)

    def truncate(self, size: int) -> None:
        """Durable when it returns: the caller's fsync is part of it."""
        self._crash_point("before truncate")
        del self.data[size:]
        self.flushed_offset = size
        self._crash_point("after truncate")

    def lose_power(self, rng: Random) -> int:
        """Keep the flushed part and some of the rest; returns how many bytes are gone."""
        end = len(self.data)
        kept = rng.randint(self.flushed_offset, end)
        del self.data[kept:]
        self.flushed_offset = kept
        return end - kept


class SavedBytes:
    """Stand-in for `TwoSlotFile` with the same promise, without files."""

    def __init__(self, crash_point: CrashPoint) -> None:
        self.payload: bytes | None = None
        self._crash_point = crash_point

    def save(self, payload: bytes) -> None:
        self._crash_point("before save")
        self.payload = payload
        self._crash_point("after save")
