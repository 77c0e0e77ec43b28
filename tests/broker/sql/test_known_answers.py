from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trioha.broker.sql.known_answers import KnownAnswers
from trioha.broker.sql.parser import parse_sql_filter
from trioha.wire.properties import decode_properties, encode_properties

EXPRESSIONS = (
    "a < 3",
    "a IS NULL",
    "a = 'x' OR b > 1",
    "a = b",
    "NOT (a BETWEEN 1 AND 2) AND b IN ('x', '2')",
    "a > 0 OR b > 0 OR c > 0 OR d > 0",
)


def answers_of(text: str) -> KnownAnswers:
    compiled = parse_sql_filter(text)
    return KnownAnswers(compiled.names, compiled.wants)


@given(
    st.sampled_from(EXPRESSIONS),
    st.lists(
        st.dictionaries(
            st.sampled_from("abcde"),
            st.sampled_from(["", "0", "1", "2", "3", "x", "\u00e4", "9" * 80]),
        ),
        max_size=20,
    ),
)
def test_answers_are_those_of_an_evaluation(text: str, messages: list[dict[str, str]]) -> None:
    known, compiled = answers_of(text), parse_sql_filter(text)
    for properties in messages * 2:
        data = encode_properties(properties)
        assert known.wants(data) is compiled.wants(decode_properties(data))


def test_bytes_that_are_no_text_are_judged_as_they_are_read() -> None:
    known = answers_of("a = '\ufffd'")
    assert [known.wants(data) for data in (b"a\x01\xff", b"a\x01\xfe", b"a\x01x", b"")] == [
        True,
        True,
        False,
        False,
    ]


def test_values_that_came_before_are_not_evaluated_again() -> None:
    asked: list[dict[str, str]] = []

    def evaluate(values: dict[str, str]) -> bool:
        asked.append(values)
        return values.get("a") == "1"

    one, two = KnownAnswers(("a",), evaluate), KnownAnswers(("a", "b"), evaluate)
    for _ in range(3):
        assert one.wants(b"a\x011\x02b\x017")
        assert not one.wants(b"b\x011")
    assert asked == [{"a": "1"}, {}]
    asked.clear()
    for _ in range(3):
        assert two.wants(b"a\x011\x02b\x017")
        assert not two.wants(b"b\x017")
        assert two.wants(b"a\x011")
    assert asked == [{"a": "1", "b": "7"}, {"b": "7"}, {"a": "1"}]


def test_the_table_is_bounded() -> None:
    one, two = answers_of("a < 10"), answers_of("a < 10 OR b < 10")
    for known in (one, two):
        taken = [known.wants(b"a\x01%d" % number) for number in range(2000)]
        assert taken.count(True) == 10
        assert not known.wants(b"a\x01" + b"9" * 10_000)
        assert len(known._by_value) + len(known._by_values) <= 256
        for value in known._by_value:
            assert value is None or len(value) <= 64


def test_names_are_those_that_an_evaluation_may_ask_for() -> None:
    assert parse_sql_filter("a < 1 AND (b IS NULL OR a IN ('x'))").names == ("a", "b")
    assert parse_sql_filter("1 < 2 OR TRUE").names == ()


def test_values_that_never_come_twice_are_not_kept() -> None:
    known = answers_of("a < 10")
    for number in range(10_000):
        assert known.wants(b"a\x01%d" % number) is (number < 10)
    assert len(known._by_value) <= 1
    for number in range(40_000):
        assert known.wants(b"a\x01%d" % (number % 20)) is (number % 20 < 10)
    assert len(known._by_value) >= 20, "values that do come twice are kept again"
