"""Histograms made in SQL: bins by magnitude, and percentiles read from them.

Theory of operation (the idea of HdrHistogram). Numbers below 16 have a bin each; above, every
power of two is cut into 8 bins, so that a bin's lower bound is at most an eighth below any of its
numbers. Negative numbers mirror positive ones. A bin is named by its bound nearest to zero, which
is in itself a number: bins of bins are bins, and both engines agree on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LINEAR_BELOW = 16
_CELL_BITS = 3


def log_bin(value: int) -> int:
    """The bound nearest to zero of the bin that a number falls into."""
    size = -value if value < 0 else value
    if size >= _LINEAR_BELOW:
        shift = size.bit_length() - 1 - _CELL_BITS
        size = (size >> shift) << shift
    return -size if value < 0 else size


def bin_end(low: int) -> int:
    """The first number beyond a bin, away from zero."""
    size = abs(low)
    width = 1 if size < _LINEAR_BELOW else 1 << (size.bit_length() - 1 - _CELL_BITS)
    return low - width if low < 0 else low + width


def percentiles(bins: Iterable[tuple[int, int]], percents: Sequence[float]) -> list[int | None]:
    """Percentiles of (bin, count) pairs, as bounds of bins; None for an empty histogram.

    Each is the bound nearest to zero of the bin in which the percentile lies: exact below 16, at
    most an eighth too near to zero above.
    """
    totals: dict[int, int] = {}
    for low, count in bins:
        totals[low] = totals.get(low, 0) + count
    ordered = sorted(totals.items())
    total = sum(totals.values())
    found: list[int | None] = []
    for percent in percents:
        wanted = max(1, -int(-total * percent // 100))
        seen = 0
        answer = None
        for low, count in ordered:
            seen += count
            if count and seen >= wanted:
                answer = low
                break
        found.append(answer)
    return found
