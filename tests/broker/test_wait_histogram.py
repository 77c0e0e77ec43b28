from __future__ import annotations

import pytest

from trioha.broker.wait_histogram import WAIT_BINS, WaitHistogram


@pytest.mark.parametrize(
    ("waited_ms", "bin_number"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (16_383, 14), (16_384, 15), (1 << 40, 15)],
)
def test_bins_double_from_one_millisecond(waited_ms: int, bin_number: int) -> None:
    waits = WaitHistogram()
    waits.add(3, waited_ms)
    assert waits.bins[bin_number] == sum(waits.bins) == 3
    assert len(waits.bins) == WAIT_BINS
    assert waits.waited_ms == 3 * waited_ms


def test_the_longest_wait_is_the_one_since_it_was_last_taken() -> None:
    waits = WaitHistogram()
    waits.add(1, 7)
    waits.add(1, 5)
    assert waits.take_longest_ms() == 7
    waits.add(1, 2)
    assert (waits.take_longest_ms(), waits.take_longest_ms()) == (2, 0)
