"""Times that sends wait for disk and slave. The put pipeline counts them, telemetry reads them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

WAIT_BINS: Final = 16
"""Waits under 1 ms, under 2, 4, … under 16384, and longer."""
PUT_RANGES: Final = (
    ("<=0ms", 1),
    ("0~10ms", 10),
    ("10~50ms", 50),
    ("50~100ms", 100),
    ("100~200ms", 200),
    ("200~500ms", 500),
    ("500ms~1s", 1_000),
    ("1~2s", 2_000),
    ("2~3s", 3_000),
    ("3~4s", 4_000),
    ("4~5s", 5_000),
    ("5~10s", 10_000),
    ("10s~", None),
)
"""RocketMQ's ranges (StoreStatsService): name, and the milliseconds below which its times lie."""
_bisect_right: Final = bisect_right
_BIN_ENDS_MS: Final = [1 << number for number in range(WAIT_BINS - 1)]
_RANGE_ENDS_MS: Final = [end_ms for _, end_ms in PUT_RANGES if end_ms is not None]
_ENDS_MS: Final = sorted({*_BIN_ENDS_MS, *_RANGE_ENDS_MS})
"""Ends of the bins that waits are counted in: each bin of the two kinds is a sum of these."""


class PutTimes(NamedTuple):
    """The times that puts took until their answer."""

    counts: list[int]
    """Count of puts in each bin; the bins end at `_ENDS_MS`."""
    longest_ms: int
    """The longest one since the start of the broker."""

    def since(self, then: PutTimes) -> PutTimes:
        """Return the puts that came after those of `then`."""
        counts = [now - before for now, before in zip(self.counts, then.counts, strict=True)]
        return PutTimes(counts, self.longest_ms)

    def ranges(self) -> list[int]:
        """Return how many puts lie in each of RocketMQ's ranges."""
        return _sums(self.counts, _RANGE_ENDS_MS)

    def percentile_ms(self, share: float) -> float:
        """Return a time that `share` of the puts did not exceed, as if a bin's were spread evenly.

        As StoreStatsService.findPutMessageEntireTimePX does, with other bins. 0 without puts.
        """
        rank = share * sum(self.counts)
        for number, count in enumerate(self.counts):
            if count and rank <= count:
                shortest_ms = _ENDS_MS[number - 1] if number else 0
                end_ms = min([*_ENDS_MS[number : number + 1], self.longest_ms])
                return shortest_ms + (end_ms - shortest_ms) * rank / count
            rank -= count
        return 0.0


class WaitHistogram:
    """Waits since the start of the broker, by length."""

    def __init__(self) -> None:
        self.waited_ms = 0
        """Sum of all waits."""
        self.counts = [0] * (len(_ENDS_MS) + 1)
        """Count of waits in each bin; the bins end at `_ENDS_MS`."""
        self._longest_ms = 0
        self._longest_taken_ms = 0

    @property
    def bins(self) -> list[int]:
        """Count of waits in each of `WAIT_BINS` bins, whose ends double from one millisecond."""
        return _sums(self.counts, _BIN_ENDS_MS)

    @property
    def longest_ms(self) -> int:
        """The longest wait since the start."""
        return max(self._longest_ms, self._longest_taken_ms)

    def add(self, count: int, waited_ms: int) -> None:
        """Count the sends that were released together after `waited_ms`. HOT."""
        self.waited_ms += count * waited_ms
        if waited_ms > self._longest_ms:
            self._longest_ms = waited_ms
        self.counts[_bisect_right(_ENDS_MS, waited_ms)] += count

    def take_longest_ms(self) -> int:
        """Return the longest wait since the last call."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        self._longest_taken_ms = max(longest_ms, self._longest_taken_ms)
        return longest_ms


def _sums(counts: list[int], ends_ms: list[int]) -> list[int]:
    """Return the counts in coarser bins, each made of whole ones."""
    sums = [0] * (len(ends_ms) + 1)
    for number, count in enumerate(counts):
        shortest_ms = _ENDS_MS[number - 1] if number else 0
        sums[_bisect_right(ends_ms, shortest_ms)] += count
    return sums
