from __future__ import annotations

import math

import pytest

from trioha.broker.sql.java_values import (
    SqlEvaluationError,
    compare_doubles,
    double_of,
    integer_of,
    long_of,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5.0),
        (" 5.\t", 5.0),
        ("-.5e-1", -0.05),
        ("5d", 5.0),
        ("5F", 5.0),
        ("0x1.8p1", 3.0),
        ("-0X.8P+1f", -1.0),
        ("1e400", math.inf),
        ("-0x1p9999", -math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("9" * 32_000, math.inf),
    ],
)
def test_doubles_are_read_as_java_reads_them(text: str, number: float) -> None:
    assert double_of(text) == number


@pytest.mark.parametrize("text", ["", "x", "inf", "nan", "1_0", "0x10", "5L", "\u0665", "1 2", "."])
def test_what_java_takes_for_no_double_is_none(text: str) -> None:
    with pytest.raises(SqlEvaluationError):
        double_of(text)


def test_integers_have_32_bits_and_longs_64() -> None:
    assert integer_of("2147483647") == 2147483647
    assert integer_of("-2147483648") == -2147483648
    assert long_of("+9223372036854775807") == (1 << 63) - 1
    assert long_of("-" + "0" * 9_000 + "5") == -5
    assert integer_of("\u0665") == 5  # ARABIC-INDIC DIGIT FIVE
    for text in ("2147483648", "5.0", " 5", "1_0", "", "+", "--5", "9" * 32_000, "\U0001d7d9"):
        with pytest.raises(SqlEvaluationError):
            integer_of(text)
    with pytest.raises(SqlEvaluationError):
        long_of("9223372036854775808")


def test_doubles_compare_as_in_java() -> None:
    """Double.compareTo is a total order: -0.0 below 0.0, NaN equal to itself and above all else."""
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for one, first in enumerate(ordered):
        for other, second in enumerate(ordered):
            found = compare_doubles(first, second)
            assert (found > 0) - (found < 0) == (one > other) - (one < other)
