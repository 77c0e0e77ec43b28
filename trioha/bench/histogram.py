"""A log-linear histogram of times (the idea of HdrHistogram).

Theory of operation. Values under 128 have a cell each. Above that every power of two is cut into
64 cells, so a reported value is at most 1/64 above a recorded one, whatever its size. One cell is
one list item: recording costs two shifts and an increment, and the memory is fixed.
"""

from __future__ import annotations

import attrs

_CELL_BITS = 6
_LINEAR_BITS = _CELL_BITS + 1
_VALUE_BITS_MAX = 44  # 2^44 ns are 4.9 hours
_CELLS = (_VALUE_BITS_MAX - _CELL_BITS + 1) << _CELL_BITS


@attrs.frozen
class LatencySummary:
    """Summary of a histogram, in milliseconds."""

    count: int
    avg_ms: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Histogram:
    """Counts nanoseconds."""

    def __init__(self) -> None:
        self._cells = [0] * _CELLS
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0

    def record(self, value_ns: int, times: int = 1) -> None:
        """Count one value, or one value `times` over."""
        if value_ns < 0:
            value_ns = 0
        elif value_ns > self.max_ns:
            self.max_ns = value_ns
        shift = value_ns.bit_length() - _LINEAR_BITS
        index = (shift << _CELL_BITS) + (value_ns >> shift) if shift > 0 else value_ns
        self._cells[index if index < _CELLS else _CELLS - 1] += times
        self.count += times
        self.total_ns += value_ns * times

    def merge(self, other: Histogram) -> None:
        """Add what another one has counted."""
        self._cells = [
            mine + theirs for mine, theirs in zip(self._cells, other._cells, strict=True)
        ]
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def percentile_ns(self, percent: float) -> int:
        """The smallest value that `percent` of the recorded ones do not exceed."""
        wanted = max(1, -int(-self.count * percent // 100))
        seen = 0
        for index, times in enumerate(self._cells):
            seen += times
            if times and seen >= wanted:
                return min(_highest(index), self.max_ns)
        return 0

    def summary(self) -> LatencySummary:
        """Average, percentiles and maximum, in milliseconds rounded to a microsecond."""
        count = self.count
        return LatencySummary(
            count=count,
            avg_ms=round(self.total_ns / count / 1e6, 3) if count else 0.0,
            p50_ms=self._percentile_ms(50),
            p99_ms=self._percentile_ms(99),
            p999_ms=self._percentile_ms(99.9),
            max_ms=round(self.max_ns / 1e6, 3),
        )

    def _percentile_ms(self, percent: float) -> float:
        return round(self.percentile_ns(percent) / 1e6, 3)


def _highest(index: int) -> int:
    """The largest value that falls into a cell."""
    if index < 1 << _LINEAR_BITS:
        return index
    shift = (index >> _CELL_BITS) - 1
    return (((index - (shift << _CELL_BITS)) + 1) << shift) - 1
