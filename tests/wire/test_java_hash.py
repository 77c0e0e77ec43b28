"""Expected values are what `"…".hashCode()` gives in Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.wire.java_hash import index_key_hash, string_hash


def plain_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-le", "surrogatepass")
    for unit in memoryview(data).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("TagA", 2598919), ("polygenelubricants", -(2**31)), ("hello", 99162322)],
)
def test_hashes_are_javas(text: str, expected: int) -> None:
    assert string_hash(text) == expected


@given(st.text(st.characters(), max_size=200))
def test_any_text_hashes_as_the_recurrence_does(text: str) -> None:
    assert string_hash(text) == plain_hash(text)


def test_a_text_of_several_chunks_hashes_as_the_recurrence_does() -> None:
    for size in (64, 65, 128, 129, 300):
        assert string_hash("a" * size) == plain_hash("a" * size)


def test_a_lone_surrogate_is_an_ordinary_unit() -> None:
    assert string_hash("a\ud800") == plain_hash("a\ud800")


@given(
    st.text(max_size=20),
    st.text(max_size=150)
    | st.text("0F", min_size=32, max_size=32)
    | st.text("0F", min_size=56, max_size=56),
)
def test_an_index_key_is_the_absolute_hash_of_topic_and_key(topic: str, key: str) -> None:
    value = abs(plain_hash(f"{topic}#{key}"))
    assert index_key_hash(topic, key) == (0 if value == 2**31 else value)


def test_the_hash_without_absolute_value_counts_as_zero() -> None:
    # Seven units from "@" on, so chosen that the hash of topic#key is Integer.MIN_VALUE.
    weights = [31**power for power in range(6, -1, -1)]
    missing = (-(2**31) - plain_hash("T#") * 31**7 - sum(weights) * ord("@")) % 2**32
    key = "".join(chr(ord("@") + missing // weight % 31) for weight in weights)
    assert plain_hash(f"T#{key}") == -(2**31)
    assert index_key_hash("T", key) == 0
