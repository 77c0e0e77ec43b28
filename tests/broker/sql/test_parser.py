"""Expectations here are verdicts of rocketmq-filter 4.9.7; see tests/interop/test_sql_filter.py."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.sql_filters import drawn_expression, drawn_properties

from trioha.broker.sql.java_values import SqlEvaluationError
from trioha.broker.sql.parser import (
    DEPTH_MAX,
    EXPRESSION_CHARS_MAX,
    OPERATIONS_MAX,
    parse_sql_filter,
)
from trioha.broker.sql.tokens import SqlFilterError, TrailingTextError

MESSAGE = {"n": "7", "d": "2.5", "s": "it's", "t": "true", "big": "3000000000"}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("n > 5 AND s = 'it''s'", True),
        ("n BETWEEN 5 AND 7 and d between 2 and 3.5", None),  # 2.5 is no Integer: below
        ("n NOT BETWEEN 5 AND 7", False),
        ("s IN ('a', 'it''s')", True),
        ("s NOT IN ('a', 'b')", True),
        ("nothing IN ('a')", None),
        ("nothing IS NULL AND s IS NOT NULL", True),
        ("nothing > 1", None),
        ("nothing > 1 OR TRUE", True),
        ("nothing > 1 AND FALSE", False),
        ("NOT (nothing > 1)", None),
        ("nothing = 'x'", None),
        ("'x' = nothing", False),
        ("nothing = nothing2", True),
        ("t", False),  # a property that is there is never TRUE by itself
        ("NOT t", True),
        ("nothing", None),
        ("t = TRUE", True),
        ("s = TRUE", False),
        ("NOT n = 7", False),  # (NOT n) = 7
        ("n = 7L", True),
        ("n >= n", True),
        ("big > 2147483647L", None),  # the literal is an Integer all the same
        ("big > 2147483648", True),
        ("-n IS NULL", True),
        ("n > - -5", True),
        ("n >\t-1 -- a comment\n AND /* * ** */ d > .5", True),
        ("n = 7 -- the end", True),
        ("5 = TRUE", False),
        ("NULL", None),
        ("TRUE or n > s", True),
        # Verdicts of rocketmq-filter 5.3.3.
        ("s CONTAINS 't''s' AND s startswith 'it' AND s EndsWith '''s'", True),
        ("s NOT CONTAINS 'x' AND s NOT STARTSWITH 't' AND s NOT ENDSWITH 'it'", True),
        ("s CONTAINS 'T'", False),
        ("s NOT CONTAINS 't'", False),
        ("nothing CONTAINS 'x'", False),
        ("nothing NOT CONTAINS 'x'", False),
        ("s CONTAINS ''", False),
        ("s NOT ENDSWITH ''", False),
        ("(s >= 5) NOT ENDSWITH ''", False),
        ("'' NOT CONTAINS 'x'", True),
        ("7 CONTAINS '7'", False),
        ("(n = 7) NOT CONTAINS 'x'", False),
        ("s CONTAINS 't' = TRUE", True),
        ("s = 'it' CONTAINS 't'", False),
        ("s > 5 CONTAINS 't'", None),
        # In 4.9 it is the name of a property.
        ("contains IS NULL AND NOT (contains = 'x') OR ENDSWITH = 'x'", None),
    ],
)
def test_verdicts_are_those_of_rocketmq(text: str, verdict: bool | None) -> None:
    wants = parse_sql_filter(text)
    try:
        assert wants.evaluate(MESSAGE) is verdict
    except SqlEvaluationError:
        assert verdict is None
    assert wants.wants(MESSAGE) is (verdict is True)


@pytest.mark.parametrize(
    "text", ["s > 5", "d > 5", "n > s", "big = 5", "(n = 7) = 't'", "n > s OR TRUE", "d = 2"]
)
def test_a_comparison_without_an_answer_cannot_be_made_good(text: str) -> None:
    compiled = parse_sql_filter(text)
    with pytest.raises(SqlEvaluationError):
        compiled.evaluate(MESSAGE)
    assert not compiled.wants(MESSAGE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: expected a property, a value or '(', found the end"),
        ("n >", "character 4: expected a property, a value or '(', found the end"),
        ("n == 5", "character 4: expected a property, a value or '(', found ="),
        ("n != 5", "character 3: cannot read '!= 5'"),
        ("(n > 5", "character 7: expected ), found the end"),
        ("s CONTAINS n", "character 12: expected a string for CONTAINS, found n"),
        ("s = 'x", 'character 5: cannot read "\'x"'),
        ("n IS 5", "character 6: expected NULL, found 5"),
        ("n NOT 5", "character 7: expected BETWEEN, IN, CONTAINS"),
        ("n IN (5)", "character 7: expected a string for IN, found 5"),
        ("5 IN ('x')", "character 11: IN needs a property on its left, not 5"),
        ("n = NULL", "NULL cannot be compared: write IS NULL or IS NOT NULL"),
        ("s > 'x'", "'x' cannot be compared by >, only numbers and properties"),
        ("NOT n > 5", "a condition cannot be compared by >"),
        ("TRUE = 5", "TRUE cannot be compared with 5"),
        ("n BETWEEN 5 AND 4", "BETWEEN 5 AND 4: the first is the greater one"),
        ("n > 9223372036854775808", "is beyond the range of 64 bits"),
        ("n > 0.0", "0.0 is beyond the range of positive doubles"),
        ("n > 1e400", "1e400 is beyond the range of positive doubles"),
        ("5", "5 is no condition"),
        ("n = 5 AND 'x'", "'x' is no condition"),
    ],
)
def test_an_error_names_the_place_and_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SqlFilterError) as error:
        parse_sql_filter(text)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["n = 5 s = 'x'", "s LIKE 'x%'", "n > 5)", "n = 05", "n > 5 - 1"])
def test_what_follows_a_complete_expression_is_an_error(text: str) -> None:
    """RocketMQ ignores it: a forgotten AND would change what a group consumes."""
    with pytest.raises(TrailingTextError, match="nothing may follow a complete expression"):
        parse_sql_filter(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 30_000 + "n" + ")" * 30_000,
        "-" * 60_000 + "5 = n",
        "NOT " * 15_000 + "n",
        "n" + " = n" * 15_000,
        "n" + " IS NULL" * 8_000,
        "(NOT " * 10_000 + "n" + ")" * 10_000,
        " OR ".join(["n = 5"] * 7_000),
        "n = 5 AND " * 6_000 + "n",
        "-(" * 40 + "n" + " BETWEEN 1 AND 2)" * 40 + " IS NULL",
        "n IN ('" + "x" * 65_000,
        "/*" * 32_000,
        "--" * 32_000,
        "'" * 65_001,
        "x" * (EXPRESSION_CHARS_MAX + 1),
        "(" * 1_000_000,
        "9" * 60_000 + " = n",
    ],
    ids=lambda text: f"{text[:12]}...",
)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(SqlFilterError):
        parse_sql_filter(text)


def test_filters_at_the_limits_are_taken() -> None:
    depth = DEPTH_MAX
    deep = parse_sql_filter("(" * depth + "n = 7" + ")" * depth)
    assert deep.wants(MESSAGE)
    long = parse_sql_filter(" OR ".join(["n = 1"] * (OPERATIONS_MAX // 3 - 1) + ["n = 7"]))
    assert long.wants(MESSAGE)
    assert OPERATIONS_MAX - 3 <= long.operations <= OPERATIONS_MAX
    many = parse_sql_filter(f"n IN ({', '.join(repr(str(number)) for number in range(8000))})")
    assert many.wants(MESSAGE)
    assert many.operations == 2


def test_operations_count_what_an_evaluation_looks_at() -> None:
    """BETWEEN takes its left operand twice: nested, that doubles with every level."""
    seen = []

    class Looked:
        def get(self, name: str) -> None:
            seen.append(name)

    text = "n"
    for _ in range(6):
        text = f"-({text} BETWEEN 1 AND 2)"
    compiled = parse_sql_filter(f"{text} IS NULL")
    compiled.evaluate(cast("Mapping[str, str]", Looked()))
    assert len(seen) == 2**6
    assert compiled.operations >= 2**6


@given(st.integers(0).map(random.Random))
def test_any_expression_is_refused_or_has_a_verdict(rng: random.Random) -> None:
    try:
        compiled = parse_sql_filter(drawn_expression(rng))
    except SqlFilterError:
        return
    assert compiled.wants(drawn_properties(rng)) in (True, False)


@given(st.text())
def test_any_text_is_refused_or_has_a_verdict(text: str) -> None:
    try:
        compiled = parse_sql_filter(text)
    except SqlFilterError:
        return
    assert compiled.wants({}) in (True, False)
