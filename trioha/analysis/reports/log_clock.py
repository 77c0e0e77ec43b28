"""When a log had grown up to an offset: bytes of a gap into seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import attrs


@attrs.define(eq=False)
class LogClock:
    """When a log had grown up to an offset, from samples of its end.

    Between two samples it grew evenly; before the first there is only a lower bound.
    """

    _at_ms: list[int] = attrs.field(factory=list)
    _ends: list[int] = attrs.field(factory=list)

    def add(self, at_ms: int, end: int) -> None:
        """Samples in the order of their time; what does not grow says nothing new."""
        if not self._ends or end > self._ends[-1]:
            self._at_ms.append(at_ms)
            self._ends.append(end)

    def add_before(self, samples: Iterable[tuple[int, int]]) -> None:
        """Older samples (time, end), rising, from another source, such as the log itself."""
        if self._ends:
            samples = [each for each in samples if each[1] < self._ends[0]]
        older = LogClock()
        for at_ms, end in samples:
            older.add(at_ms, end)
        self._at_ms[:0], self._ends[:0] = older._at_ms, older._ends

    @property
    def first_end(self) -> int | None:
        return self._ends[0] if self._ends else None

    def behind_ms(self, at_ms: int, ack: int, end: int) -> int:
        """How old the oldest byte is that a slave lacks."""
        if ack >= end or not self._ends:
            return 0
        index = bisect_right(self._ends, ack)
        if index == 0:
            return max(0, at_ms - self._at_ms[0])
        if index == len(self._ends):
            # It grew since the last sample that showed growth.
            return max(0, at_ms - self._at_ms[-1])
        low, high = self._ends[index - 1], self._ends[index]
        begin, over = self._at_ms[index - 1], self._at_ms[index]
        grown_ms = begin + (over - begin) * (ack - low) // (high - low)
        return max(0, at_ms - grown_ms)
