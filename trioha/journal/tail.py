"""The newest events of a journal, in memory: what a follower is told without touching the disk.

Events come from any thread of the node, followers read from its loop. Sequence numbers in here have
no gap, so the place of a number is known without a search; what is older lies on disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Set
from itertools import islice

import attrs

TAIL_BYTES_MAX = 1_048_576
"""Limit of the payloads held: some ten thousand events, hours of a quiet node."""


@attrs.frozen
class Stretch:
    """Events in order, each as the msgpack array that stands on disk."""

    payloads: tuple[bytes, ...]
    next_sequence: int
    """Sequence of the first event that this does not cover."""


class JournalTail:
    """A ring of events, bounded in bytes."""

    def __init__(self, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._mutex = threading.Lock()
        self._entries: deque[tuple[str, bytes]] = deque()
        self._size = 0
        self._end = 0

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest event in here; `next_sequence` if there is none."""
        return self._end - len(self._entries)

    @property
    def next_sequence(self) -> int:
        """The number that the next event will have."""
        return self._end

    def add(self, sequence: int, name: str, payload: bytes) -> None:
        """Take the next event. After a gap in the numbers, all before it is forgotten."""
        with self._mutex:
            if sequence != self._end:
                self._entries.clear()
                self._size = 0
            self._entries.append((name, payload))
            self._end = sequence + 1
            self._size += len(payload)
            while self._size > self._bytes_max:
                self._size -= len(self._entries.popleft()[1])

    def skip_to(self, sequence: int) -> None:
        """The next event will have this number; what lies between does not exist."""
        with self._mutex:
            if sequence != self._end:
                self._entries.clear()
                self._size = 0
                self._end = sequence

    def since(
        self, sequence: int, names: Set[str], *, count_max: int, bytes_max: int
    ) -> Stretch | None:
        """Events from `sequence` on, of these names (all if empty); None if it begins too early.

        At least one event, should there be one, however large it is.
        """
        with self._mutex:
            first = self._end - len(self._entries)
            if sequence < first:
                return None
            found: list[bytes] = []
            size = 0
            place = sequence
            for name, payload in islice(self._entries, sequence - first, None):
                if not names or name in names:
                    size += len(payload)
                    if found and (len(found) == count_max or size > bytes_max):
                        return Stretch(tuple(found), place)
                    found.append(payload)
                place += 1
            return Stretch(tuple(found), max(place, sequence))

    def sequence_of_last(self, count: int, names: Set[str]) -> int:
        """Return the sequence of the first of the last `count` events of these names held here."""
        with self._mutex:
            place = self._end
            for name, _ in reversed(self._entries):
                if count == 0:
                    break
                place -= 1
                if not names or name in names:
                    count -= 1
            return place
