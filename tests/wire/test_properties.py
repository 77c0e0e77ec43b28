from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.wire.properties import (
    decode_properties,
    encode_properties,
    property_mark,
    raw_property,
)

WORDS = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=9)


@given(st.dictionaries(WORDS, WORDS, max_size=9))
def test_properties_survive_the_round_trip(properties: dict[str, str]) -> None:
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    assert decode_properties(memoryview(data)) == properties
    assert decode_properties(data.decode()) == properties


@given(st.dictionaries(WORDS, WORDS, min_size=1))
def test_no_separator_follows_the_last_pair(properties: dict[str, str]) -> None:
    assert not encode_properties(properties).endswith(b"\x02")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02\x02c\x01d", {"a": "b", "c": "d"}),
        ("\x01b\x02a\x01\x02plain\x02c\x01d", {"c": "d"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
    ],
)
def test_reading_drops_what_javas_reader_drops(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert decode_properties(b"a\x01\xff") == {"a": "\ufffd"}


def test_a_lone_surrogate_is_written_as_java_writes_it() -> None:
    assert encode_properties({"a": "\ud800"}) == b"a\x01?"


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(data: bytes) -> None:
    properties = decode_properties(data)
    assert all(name and value for name, value in properties.items())


@given(st.lists(st.sampled_from([b"a", b"b", b"\x01", b"\x02", b"\xc3", b"\xa4", b"\xff"])))
def test_looking_up_one_name_finds_what_the_table_has(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    table = decode_properties(data)
    for name in ("a", "b", "ab", "aa", "\u00e4"):
        for before in (b"", b"\x02", b"\x02a\x01b", b"a\x01"):
            found = raw_property(before + data, property_mark(name), len(before))
            assert (None if found is None else found.decode("utf-8", "replace")) == table.get(name)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 40])
def test_a_value_is_as_long_as_it_is(size: int) -> None:
    value = b"v" * size
    for data in (b"n\x01" + value, b"x\x01y\x02n\x01" + value, b"n\x01" + value + b"\x02x\x01y"):
        assert raw_property(data, property_mark("n")) == value
