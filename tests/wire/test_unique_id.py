"""The unique id is found, and strings that differ in nothing else are recognised."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioha.wire.properties import decode_properties
from trioha.wire.unique_id import IdShape, id_place

FIRST = b"TAGS\x01A\x02UNIQ_KEY\x01id-1\x02WAIT\x01true"


@pytest.mark.parametrize(
    ("properties", "unique_id"),
    [
        (FIRST, b"id-1"),
        (b"UNIQ_KEY\x01id-1", b"id-1"),
        (b"UNIQ_KEY\x01id-1\x02", b"id-1"),
        (b"UNIQ_KEY\x01\x02TAGS\x01A", b""),
    ],
)
def test_the_id_is_found(properties: bytes, unique_id: bytes) -> None:
    begin, end = id_place(properties)
    assert begin >= 0
    assert properties[begin:end] == unique_id


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01A",
        b"KEYS\x01k\x02UNIQ_KEY\x01id-1",
        b"MY_UNIQ_KEY\x01id-1",
        b"A\x01UNIQ_KEY\x01id-1",
    ],
)
def test_a_string_without_an_id_or_with_keys_has_no_place(properties: bytes) -> None:
    assert id_place(properties) == (-1, -1)


def test_a_string_that_differs_in_its_id_alone_is_recognised() -> None:
    shape = IdShape(FIRST, *id_place(FIRST))
    assert shape.id_of(FIRST) == b"id-1"
    assert shape.id_of(FIRST.replace(b"id-1", b"id-2")) == b"id-2"


@pytest.mark.parametrize(
    "other",
    [
        FIRST.replace(b"id-1", b"id-10"),
        FIRST.replace(b"true", b"fals"),
        FIRST.replace(b"TAGS\x01A", b"TAGS\x01B"),
        FIRST.replace(b"id-1", b"i\x02-1"),
        b"",
    ],
)
def test_any_other_string_is_not(other: bytes) -> None:
    assert IdShape(FIRST, *id_place(FIRST)).id_of(other) is None


PIECES = st.sampled_from(
    [
        "UNIQ_KEY\x01",
        "MY_UNIQ_KEY\x01",
        "KEYS\x01",
        "A\x01",
        "\x01",
        "\x02",
        "aaaa",
        "bbbb",
        "\u00e9",
    ]
)
STRINGS = st.lists(PIECES, max_size=8).map("".join)


@given(first=STRINGS, other=STRINGS)
@example("UNIQ_KEY\x01aaaa", "UNIQ_KEY\x01bbbb")
@example("MY_UNIQ_KEY\x01aaaa\x02UNIQ_KEY\x01aaaa", "MY_UNIQ_KEY\x01bbbb\x02UNIQ_KEY\x01aaaa")
@example("UNIQ_KEY\x01aaaa\x02UNIQ_KEY\x01aaaa", "UNIQ_KEY\x01bbbb\x02UNIQ_KEY\x01aaaa")
def test_what_is_recognised_is_what_decoding_finds(first: str, other: str) -> None:
    data = first.encode()
    begin, end = id_place(data)
    if begin >= end:
        return
    assert data[begin:end].decode() == decode_properties(first)["UNIQ_KEY"]
    unique_id = IdShape(data, begin, end).id_of(other.encode())
    if unique_id is not None:
        values = decode_properties(other)
        assert unique_id.decode() == values["UNIQ_KEY"]
        assert "KEYS" not in values
