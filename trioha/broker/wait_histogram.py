"""How long sends wait for disk and slave: the put pipeline counts, telemetry reads."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

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
_BOUNDS_MS: Final = [bound_ms for _, bound_ms in PUT_RANGES if bound_ms is not None]


class WaitHistogram:
    """Waits since the start of the broker that ended with an acknowledgement."""

    def __init__(self) -> None:
        self.bins = [0] * WAIT_BINS
        self.waited_ms = 0
        """Sum of all waits."""
        self._longest_ms = 0

    def add(self, count: int, waited_ms: int) -> None:
        """Count the sends that one acknowledgement released after `waited_ms`. HOT."""
        self.waited_ms += count * waited_ms
        if waited_ms > self._longest_ms:
            self._longest_ms = waited_ms
        # 0 → 0, 1 → 1, 2..3 → 2, 4..7 → 3: the number of its bits.
        self.bins[min(waited_ms.bit_length(), WAIT_BINS - 1)] += count

    def take_longest_ms(self) -> int:
        """Return the longest wait since the last call."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms


class PutTimes:
    """How long puts took until their answer, waits for disk and slave included, since the start.

    A put that a lost slave or the end of a role answered is not counted.
    """

    def __init__(self) -> None:
        self.bins = [0] * len(PUT_RANGES)
        self.longest_ms = 0

    def add(self, count: int, took_ms: int) -> None:
        """Count the puts that were answered together, the oldest after `took_ms`. HOT."""
        if took_ms > self.longest_ms:
            self.longest_ms = took_ms
        self.bins[bisect_right(_BOUNDS_MS, took_ms)] += count
