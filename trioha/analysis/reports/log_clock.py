"""Time at which a log had grown up to an offset: turns bytes of a gap into milliseconds."""

from __future__ import annotations

from bisect import bisect_right

import attrs


@attrs.frozen
class Behind:
    """Age of the oldest byte that a slave lacks: at least, and at most.

    `most_ms` is None when no sample is old enough to say.
    """

    least_ms: int
    most_ms: int | None

    @property
    def is_exact(self) -> bool:
        return self.least_ms == self.most_ms

    @property
    def figure_ms(self) -> int:
        """The upper bound, or the lower one where there is no other."""
        return self.least_ms if self.most_ms is None else self.most_ms


UP_TO_DATE = Behind(0, 0)


@attrs.define(eq=False)
class LogClock:
    """Samples of a log's end: when each end was first and last seen.

    A log is sampled while it grows, and hardly ever while it is idle. So between two samples
    nothing is interpolated: a byte was written after the last sample that ends before it, and at
    the latest at the first sample that ends behind it.
    """

    _ends: list[int] = attrs.field(factory=list)
    _first_ms: list[int] = attrs.field(factory=list)
    _last_ms: list[int] = attrs.field(factory=list)

    def add(self, at_ms: int, end: int) -> None:
        """Take samples in the order of their time."""
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._first_ms.append(at_ms)
            self._last_ms.append(at_ms)
        elif end == self._ends[-1]:
            self._last_ms[-1] = max(self._last_ms[-1], at_ms)

    def behind(self, at_ms: int, ack: int, end: int) -> Behind:
        """Bounds of the age of the oldest byte that a slave lacks whose log ends at `ack`."""
        if ack >= end:
            return UP_TO_DATE
        index = bisect_right(self._ends, ack)
        is_sampled = index < len(self._ends)
        least_ms = max(0, at_ms - self._first_ms[index]) if is_sampled else 0
        if index == 0:
            return Behind(least_ms, None)
        return Behind(least_ms, max(least_ms, at_ms - self._last_ms[index - 1]))
