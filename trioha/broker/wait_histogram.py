"""Histogram of the waits of sends for a slave: the put pipeline counts, telemetry reads."""

from __future__ import annotations

from typing import Final

WAIT_BINS: Final = 16
"""Waits under 1 ms, under 2, 4, … under 16384, and longer."""


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
