"""Which pending timer messages are next, in bounded memory: the core.

Theory of operation. The queue of timer messages is the index: each entry carries the time at which
its message is due. A *key* is that time and the entry's offset in the queue, as one number; keys
order the messages as they are delivered.

`TimerWindow` holds the nearest keys in a heap, and a *limit*: every pending key up to the limit is
in the heap. While all of them fit there is no limit. When there are too many, the later half is
dropped and the limit is what remains; the dropped ones are still in the queue. A new message enters
the heap if its key is within the limit.

When the heap is nearly empty, a `Refill` reads the queue once, in pieces, between deliveries. It
keeps the smallest keys behind the limit, and becomes the rest of the window. So a message is looked
at once for each window until it is delivered: 10 million pending ones are a hundred windows, or
0.7 s of reading for every 131,072 deliveries.

`Refill` also makes the first window of a broker that becomes master: then the *progress* tells
which entries are pending. Every entry before offset `end` whose key is below `next_key` is done.
Cancellations are taken up again for as long as messages of their slot may follow.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable
from heapq import heappop, heappush, nsmallest
from typing import Final

import attrs

from trioha.wire.timers import CANCEL_BIT, CODE_MIN, SLOT_MS

CAPACITY: Final = 131_072
"""Keys of one window. Heap and refill hold at most twice as many each: 25 MB together."""
ENTRY_BYTES: Final = 20
_OFFSET_BITS: Final = 44
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
KEY_MAX: Final = 1 << 120


def key_of(due_ms: int, offset: int) -> int:
    return due_ms << _OFFSET_BITS | offset


def due_of(key: int) -> int:
    """Return the time of a key in milliseconds."""
    return key >> _OFFSET_BITS


def offset_of(key: int) -> int:
    """Return the queue offset of a key."""
    return key & _OFFSET_MASK


def times_of(entries: memoryview) -> array[int]:
    """Return the codes of queue entries, unsigned. At 10 ns an entry."""
    words = array("I", bytes(entries))
    if sys.byteorder == "little":
        words.byteswap()
    pairs = array("I", bytes(8 * (len(words) // 5)))
    first, second = (1, 0) if sys.byteorder == "little" else (0, 1)
    pairs[first::2], pairs[second::2] = words[3::5], words[4::5]
    return array("Q", pairs.tobytes())


@attrs.define(eq=False)
class EntryReader:
    """Reads keys from pieces of the queue."""

    code_at: Callable[[int], int]
    """Code of the record at a queue offset, for entries that Java's broker wrote."""

    def keys(
        self, entries: memoryview, offset: int, low: int, high: int, cancel_low: int | None = None
    ) -> list[int]:
        """Return the keys from `low` to `high`, for entries that begin at a queue offset.

        Cancellations count from `cancel_low` on, if it is given.
        """
        codes = times_of(entries)
        if not codes:
            return []
        if min(codes) < CODE_MIN or max(codes) >= CANCEL_BIT:
            return self._odd_keys(
                codes, offset, low, high, low if cancel_low is None else cancel_low
            )
        # Times alone first: comparing small numbers is what takes the time.
        low_ms, high_ms = due_of(low), due_of(high)
        found = [
            key_of(code, index)
            for index, code in enumerate(codes, offset)
            if low_ms <= code <= high_ms
        ]
        return [key for key in found if low <= key <= high]

    def _odd_keys(
        self, codes: array[int], offset: int, low: int, high: int, cancel_low: int
    ) -> list[int]:
        found = []
        for index, code in enumerate(codes, offset):
            if not CODE_MIN <= code < 2 * CANCEL_BIT:
                code = self.code_at(index)
            key = key_of(code & ~CANCEL_BIT, index)
            least = cancel_low if code & CANCEL_BIT else low
            if code and least <= key <= high:
                found.append(key)
        return found


class TimerWindow:
    """The nearest keys of one broker."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.limit: int | None = None
        """Every pending key up to it is here; None: every pending key."""
        self._heap: list[int] = []
        self._count_max = 2 * capacity
        self._popped_max = -1

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_key(self) -> int | None:
        return self._heap[0] if self._heap else None

    @property
    def done_below(self) -> int:
        """No smaller key is pending; 0 if none is pending at all."""
        if self._heap:
            return self._heap[0]
        return 0 if self.limit is None else self.limit + 1

    @property
    def needs_refill(self) -> bool:
        """There are keys behind the limit, and soon none before it."""
        return self.limit is not None and len(self._heap) <= self.capacity // 4

    def add(self, key: int) -> None:
        """Take in a new message, if it is among the next."""
        limit = self.limit
        if limit is None or key <= limit:
            heappush(self._heap, key)
            if len(self._heap) > self._count_max:
                self._shrink()

    def _shrink(self) -> None:
        # The limit stays above all that was popped: behind it a refill takes everything. Keys below
        # come late, after the clock was set back or from a group that could not commit.
        self._heap.sort()
        keep = max(self.capacity, bisect_right(self._heap, self._popped_max) + 1)
        if keep < len(self._heap):
            del self._heap[keep:]
            self.limit = self._heap[-1]
        self._count_max = 2 * keep

    def pop(self) -> int:
        """Remove and return the smallest key."""
        key = heappop(self._heap)
        if key > self._popped_max:
            self._popped_max = key
        return key

    def nearest(self, count: int) -> list[int]:
        """Return the smallest keys, in order."""
        return nsmallest(count, self._heap)

    def extend(self, keys: list[int], limit: int | None) -> None:
        """Take in the keys that follow the old limit, up to the new one."""
        self._heap += keys
        self._heap.sort()
        self.limit = limit
        self._count_max = max(2 * self.capacity, 2 * len(self._heap))


class Refill:
    """One reading of the queue for the smallest keys behind a limit."""

    def __init__(
        self, reader: EntryReader, capacity: int, next_key: int, end: int, limit: int | None = None
    ) -> None:
        """`next_key` and `end` are the progress with which this broker became master.

        Without a limit this is its first refill, which counts what is pending, too.
        """
        self.limit = limit
        self.is_first = limit is None
        self.pending_count = 0
        """Of a first refill: entries that are pending, cancellations included."""
        self._reader = reader
        self._capacity = capacity
        self._end = end
        self._floor = 0 if limit is None else limit + 1
        self._old_floor = max(self._floor, next_key)
        slot_ms = max(0, due_of(next_key) - 2 * SLOT_MS)
        self._cancel_floor = max(self._floor, key_of(slot_ms, 0))
        self._keys: list[int] = []
        self._bound: int | None = None

    def take(self, entries: memoryview, offset: int) -> None:
        """Read the next entries of the queue, which begin at `offset`."""
        count = len(entries) // ENTRY_BYTES
        old = min(max(0, self._end - offset), count)
        high = KEY_MAX if self._bound is None or self.is_first else self._bound
        found: list[int] = []
        if old:
            piece = entries[: old * ENTRY_BYTES]
            found = self._reader.keys(piece, offset, self._old_floor, high, self._cancel_floor)
        if old < count:
            piece = entries[old * ENTRY_BYTES :]
            found += self._reader.keys(piece, offset + old, self._floor, high)
        if self.is_first:
            self.pending_count += len(found)
            if self._bound is not None:
                bound = self._bound
                found = [key for key in found if key <= bound]
        self._keys += found
        if len(self._keys) > 2 * self._capacity:
            self._keys.sort()
            del self._keys[self._capacity :]
            self._bound = self._keys[-1]

    def finish(self, window: TimerWindow) -> None:
        """Give the keys to the window: the queue was read to its end."""
        window.extend(self._keys, self._bound)
