"""Reported values are at most 1/64 above recorded ones."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.bench.histogram import Histogram


def test_an_empty_histogram_reports_zeros() -> None:
    summary = Histogram().summary()
    assert (summary.count, summary.avg_ms, summary.p99_ms, summary.max_ms) == (0, 0.0, 0.0, 0.0)


def test_summary_is_in_milliseconds() -> None:
    histogram = Histogram()
    for _ in range(99):
        histogram.record(1_000_000)
    histogram.record(50_000_000)
    summary = histogram.summary()
    assert summary.count == 100
    assert math.isclose(summary.avg_ms, 1.49)
    assert 1.0 <= summary.p50_ms <= 1.02
    assert 1.0 <= summary.p99_ms <= 1.02
    assert summary.p999_ms == summary.max_ms == 50.0


def test_a_value_recorded_many_times_at_once_counts_as_many() -> None:
    histogram = Histogram()
    histogram.record(7, 10)
    assert (histogram.count, histogram.total_ns, histogram.percentile_ns(50)) == (10, 70, 7)


def test_times_beyond_its_range_are_counted_in_the_last_cell() -> None:
    histogram = Histogram()
    histogram.record(1 << 60)
    assert histogram.percentile_ns(50) >= 1 << 43


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1 << 42), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_percentiles_are_close_to_the_sorted_values(values: list[int], percent: int) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    exact = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
    assert exact <= histogram.percentile_ns(percent) <= exact + exact // 64 + 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1 << 30)), st.lists(st.integers(0, 1 << 30)))
def test_merging_is_recording_both(first: list[int], second: list[int]) -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in first:
        one.record(value)
        both.record(value)
    for value in second:
        other.record(value)
        both.record(value)
    one.merge(other)
    assert one.summary() == both.summary()
