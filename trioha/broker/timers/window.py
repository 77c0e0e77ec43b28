"""The pending timer messages that are next, in bounded memory: the core.

Theory of operation. The queue of timer messages is the index: each entry carries the time at which
its message is due. A *key* is that time and the entry's offset in the queue, as one number; keys
order the messages as they are delivered.

`TimerWindow` holds the nearest keys in a heap, and a *limit*: every pending key up to the limit is
in the heap. While all of them fit there is no limit. When there are too many, the later half is
dropped and the limit is what remains; the dropped ones are still in the queue. A new message enters
the heap if its key is within the limit.

When the heap is nearly empty, a `Refill` reads the queue once, in pieces, between deliveries. It
keeps the smallest keys behind the limit, and becomes the rest of the window. So a message is looked
at once for each window until it is delivered: with 10 million pending ones, 1.7 s of reading for
some 150,000 deliveries.

`Refill` also makes the first window of a broker that becomes master: then the *progress* tells
which entries are pending. Every entry before offset `end` whose key is below `next_key` is done.
Cancellations are taken up again for as long as messages of their slot may follow.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

import attrs

from trioha.wire.timers import CANCEL_BIT, CODE_MIN, SLOT_MS

CAPACITY: Final = 131_072
"""Keys of one window. Heap and refill hold at most twice as many each, 20 MB together."""
ENTRY_BYTES: Final = 20
_OFFSET_BITS: Final = 44
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
KEY_MAX: Final = 1 << 120
_LOWER_MAX: Final = (1 << 32) - 1
_UPPER_MIN: Final = CODE_MIN >> 32
_UPPER_MAX: Final = CANCEL_BIT >> 32


def key_of(due_ms: int, offset: int) -> int:
    return due_ms << _OFFSET_BITS | offset


def due_of(key: int) -> int:
    """Return the time of a key in milliseconds."""
    return key >> _OFFSET_BITS


def offset_of(key: int) -> int:
    """Return the queue offset of a key."""
    return key & _OFFSET_MASK


def halves_of(entries: memoryview) -> tuple[array[int], array[int]]:
    """Return the upper and the lower 32 bits of the codes of queue entries."""
    words = array("I", bytes(entries))
    if sys.byteorder == "little":
        words.byteswap()
    return words[3::5], words[4::5]


def bound_of(keys: list[int], floor: int = -1) -> int:
    """Return a bound, above `floor`, that about half of the keys are within.

    Looks at some of them: to sort a quarter of a million takes 80 ms.
    """
    sample = sorted(keys[:: max(1, len(keys) // 1024)])
    return max(sample[len(sample) // 2], floor)


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
        uppers, lowers = halves_of(entries)
        if not uppers:
            return []
        upper = uppers[0]
        if not _UPPER_MIN <= upper < _UPPER_MAX or uppers != array("I", (upper,)) * len(uppers):
            cancel_low = low if cancel_low is None else cancel_low
            return self._odd_keys(uppers, lowers, offset, low, high, cancel_low)
        # The times lie within fifty days. Comparing small numbers is what takes the time.
        base_ms = upper << 32
        low_ms, high_ms = due_of(low) - base_ms, due_of(high) - base_ms
        if low_ms > _LOWER_MAX or high_ms < 0:
            return []
        base = key_of(base_ms, offset)
        found = [
            base + (lower << _OFFSET_BITS) + index
            for index, lower in enumerate(lowers)
            if low_ms <= lower <= high_ms
        ]
        return [key for key in found if low <= key <= high]

    def _odd_keys(
        self,
        uppers: array[int],
        lowers: array[int],
        offset: int,
        low: int,
        high: int,
        cancel_low: int,
    ) -> list[int]:
        found = []
        for index, (upper, lower) in enumerate(zip(uppers, lowers, strict=True), offset):
            code = upper << 32 | lower
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
        """Every pending key up to the limit is in the heap; None: every pending key is."""
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
        """Smallest key that may be pending; 0 if none is pending."""
        if self._heap:
            return self._heap[0]
        return 0 if self.limit is None else self.limit + 1

    @property
    def needs_refill(self) -> bool:
        """Keys are pending behind the limit, and soon none before it."""
        return self.limit is not None and len(self._heap) <= self.capacity // 4

    def add(self, key: int) -> None:
        """Add a new message, if it is among the next."""
        limit = self.limit
        if limit is None or key <= limit:
            heappush(self._heap, key)
            if len(self._heap) > self._count_max:
                self._shrink()

    def _shrink(self) -> None:
        # The limit stays above all that was popped: behind it a refill takes everything. Keys below
        # come late, after the clock was set back or from a group that could not commit.
        bound = bound_of(self._heap, self._popped_max)
        kept = [key for key in self._heap if key <= bound]
        if len(kept) < len(self._heap):
            heapify(kept)
            self._heap, self.limit = kept, bound
        self._count_max = max(2 * self.capacity, 2 * len(kept))

    def pop(self) -> int:
        """Remove and return the smallest key."""
        key = heappop(self._heap)
        if key > self._popped_max:
            self._popped_max = key
        return key

    def nearest(self, count: int) -> list[int]:
        """Return the smallest keys, in order."""
        return nsmallest(count, self._heap)

    def until(self, key_max: int, count: int) -> list[int]:
        """Return some `count` of the keys up to `key_max`, in no order: looks at no others."""
        heap = self._heap
        found: list[int] = []
        places = [0]
        while places and len(found) < count:
            place = places.pop()
            if place < len(heap) and heap[place] <= key_max:
                found.append(heap[place])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def extend(self, keys: list[int], limit: int | None) -> None:
        """Add the keys that follow the old limit, up to the new one."""
        self._heap += keys
        heapify(self._heap)
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
        """Count of pending entries found by a first refill, cancellations included."""
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
            bound = self._bound = bound_of(self._keys)
            self._keys = [key for key in self._keys if key <= bound]

    def finish(self, window: TimerWindow) -> None:
        """Give the keys to the window: the queue was read to its end."""
        window.extend(self._keys, self._bound)
