from __future__ import annotations

import pytest

from trioha.broker.wait_histogram import PUT_RANGES, WAIT_BINS, PutTimes, WaitHistogram


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


@pytest.mark.parametrize(
    ("waited_ms", "name"),
    [
        (0, "<=0ms"),
        (1, "0~10ms"),
        (9, "0~10ms"),
        (10, "10~50ms"),
        (16, "10~50ms"),
        (99, "50~100ms"),
        (100, "100~200ms"),
        (199, "100~200ms"),
        (500, "500ms~1s"),
        (1_024, "1~2s"),
        (4_096, "4~5s"),
        (9_999, "5~10s"),
        (10_000, "10s~"),
        (1 << 40, "10s~"),
    ],
)
def test_the_same_waits_in_the_ranges_of_rocketmq(waited_ms: int, name: str) -> None:
    waits = WaitHistogram()
    waits.add(2, waited_ms)
    ranges = PutTimes(waits.counts, waits.longest_ms).ranges()
    assert dict(zip([range_name for range_name, _ in PUT_RANGES], ranges, strict=True))[name] == 2
    assert sum(ranges) == 2


def test_the_longest_wait_of_all_outlives_its_taking() -> None:
    waits = WaitHistogram()
    waits.add(1, 7)
    waits.take_longest_ms()
    waits.add(1, 5)
    assert waits.longest_ms == 7


def test_percentiles_lie_in_their_bins() -> None:
    waits = WaitHistogram()
    assert PutTimes(waits.counts, 0).percentile_ms(0.99) == 0
    waits.add(98, 0)
    waits.add(1, 5)
    waits.add(1, 20_000)
    times = PutTimes(waits.counts, waits.longest_ms)
    assert times.percentile_ms(0.49) == 0.5
    assert times.percentile_ms(0.99) == 8  # the end of 4 to 8 ms
    assert times.percentile_ms(0.995) == (16_384 + 20_000) / 2
    assert times.percentile_ms(1) == 20_000
