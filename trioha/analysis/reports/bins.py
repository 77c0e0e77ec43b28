"""Percentiles from counts: a log-linear histogram that SQL makes and Python reads.

Theory of operation. Values below 128 have a bin each; above, every power of two is cut into 64
bins, as in HdrHistogram. A value's bin is named by the smallest magnitude in it, so the name is at
most 1/64 below the value. Negative values have bins of their own, mirrored: clock skew stays to be
seen. The SQL is one CASE of comparisons and remainders, which every engine reads alike: no
logarithm that rounds here and there differently.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from trioha.analysis.results import Series

_LINEAR_BITS = 7
_CELL_BITS = 6
_VALUE_BITS_MAX = 42
"""2^42 ms are 139 years; larger values share the bins of the highest power of two."""
PERCENTS = (50, 95, 99)
BOUND_MS = (
    "Times are exact below 128 ms; longer ones are at most 1/64 nearer to zero than measured."
)
BOUND_BYTES = "Percentiles are exact below 128 B; above, at most 1/64 lower than the exact ones."


def bin_sql(expression: str) -> str:
    """SQL for the bin of an integer expression; NULL for NULL."""
    magnitude = f"ABS({expression})"
    arms = [f"WHEN {magnitude} < {1 << _LINEAR_BITS} THEN {magnitude}"]
    for bits in range(_LINEAR_BITS + 1, _VALUE_BITS_MAX + 1):
        width = _width(bits)
        arms.append(f"WHEN {magnitude} < {1 << bits} THEN {magnitude} - {magnitude} % {width}")
    rest = _width(_VALUE_BITS_MAX)
    arms.append(f"ELSE {magnitude} - {magnitude} % {rest}")
    return f"(CASE WHEN {expression} < 0 THEN -1 ELSE 1 END * CASE {' '.join(arms)} END)"


def _width(bits: int) -> int:
    return 1 << max(0, bits - 1 - _CELL_BITS)


class Bins(Counter[int]):
    """Counts by bin."""

    def percentile(self, percent: int) -> int | None:
        """The bin in which the value of that nearest rank lies; None when nothing was counted."""
        rank = max(1, -(-self.total() * percent // 100))
        seen = 0
        for value in sorted(self):
            seen += self[value]
            if seen >= rank:
                return value
        return None

    def percentiles(self) -> tuple[int | None, ...]:
        """p50, p95, p99."""
        return tuple(self.percentile(percent) for percent in PERCENTS)

    def by_power(self) -> list[tuple[int, int, int]]:
        """Counts by power of two, for a chart: (from, below, count), gaps filled with 0.

        0 stands alone, then come 1, 2 to 3, 4 to 7 and so on; mirrored below zero.
        """
        powers: Counter[int] = Counter()
        for value, count in self.items():
            powers[abs(value).bit_length() * (-1 if value < 0 else 1)] += count
        if not powers:
            return []
        steps = range(min(powers), max(powers) + 1)
        return [(*_edges(step), powers[step]) for step in steps]


def powers_by_store(rows: Iterable[Mapping[str, Any]], bin_column: str) -> list[Series]:
    """A chart's series: each store's messages by power of two, from rows that count bins."""
    by_store: defaultdict[str, Bins] = defaultdict(Bins)
    for row in rows:
        by_store[row["store"]][row[bin_column]] += row["messages"]
    return [Series(store, bins.by_power()) for store, bins in by_store.items()]


def _edges(step: int) -> tuple[int, int]:
    if step == 0:
        return 0, 1
    low, high = 1 << abs(step) - 1, 1 << abs(step)
    return (low, high) if step > 0 else (1 - high, 1 - low)
