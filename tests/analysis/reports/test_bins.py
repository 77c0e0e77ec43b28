"""Bins in SQL and in Python, percentiles within their bin."""

from __future__ import annotations

from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.analysed import bin_of

from trioha.analysis.reports.bins import Bins, bin_sql

VALUES = st.one_of(
    st.integers(-300, 300), st.integers(-(1 << 41), 1 << 41), st.integers(0, 1 << 45)
)


@given(st.lists(VALUES, min_size=1, max_size=50))
def test_duckdb_and_python_put_a_value_in_the_same_bin(values: list[int]) -> None:
    with duckdb.connect() as database:
        database.register("t", pa.table({"v": pa.array(values, pa.int64())}))
        found = database.execute(f"SELECT v, {bin_sql('v')} FROM t").fetchall()
    assert found == [(value, bin_of(value)) for value in values]


@given(VALUES.filter(lambda value: abs(value) < 1 << 42))
def test_a_bin_is_at_most_a_64th_below_its_value(value: int) -> None:
    magnitude, lower = abs(value), abs(bin_of(value))
    assert lower <= magnitude <= lower + lower // 64
    assert (bin_of(value) < 0) == (value < 0)


@given(st.lists(VALUES, min_size=1, max_size=200), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_lies_in_the_bin_of_the_nearest_rank(values: list[int], percent: int) -> None:
    bins = Bins(bin_of(value) for value in values)
    rank = max(1, -(-len(values) * percent // 100))
    # The bins keep the order of the values, so the rank's bin is the bin of the rank.
    assert bins.percentile(percent) == bin_of(sorted(values)[rank - 1])


@given(st.lists(VALUES, max_size=100))
def test_powers_of_two_count_every_value_once(values: list[int]) -> None:
    powers = Bins(bin_of(value) for value in values).by_power()
    assert sum(count for _, _, count in powers) == len(values)
    for low, high, count in powers:
        assert count == sum(low <= value < high for value in values)
    for (_, high, _), (low, _, _) in pairwise(powers):
        assert high == low


def test_nothing_has_no_percentile() -> None:
    assert Bins().percentiles() == (None, None, None)
    assert Bins().by_power() == []


@pytest.mark.parametrize(("percent", "value"), [(50, 2), (51, 3), (100, 4), (0, 1)])
def test_nearest_rank_of_four_values(percent: int, value: int) -> None:
    assert Bins({1: 1, 2: 1, 3: 1, 4: 1}).percentile(percent) == value
