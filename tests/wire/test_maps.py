"""Bytes that are no map are a RemoteProtocolError, whatever they are."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire.maps import decode_map


def test_numbers_are_keys_too() -> None:
    assert decode_map(msgpack.packb({1: "a", "b": [2]})) == {1: "a", "b": [2]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "x is not msgpack"),
        (b"\xc1", "x is not msgpack"),
        (b"\x81\x90\x01", "x is not msgpack: .*unhashable"),
        (b"\x81\x80\x01", "x is not msgpack: .*unhashable"),
        (b"\x91" * 5000, "x is not msgpack"),
        (b"\x81\xa1\xff\x01", "x is not msgpack"),
        (b"\x80\x80", "x is not msgpack"),
        (b"\x90", "x is not a map"),
    ],
)
def test_what_is_no_map_is_named(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode_map(data, "x")


@given(st.binary(max_size=64))
@example(b"\x81\xa1a\x01")
def test_any_bytes_are_a_map_or_an_error_of_ours(data: bytes) -> None:
    try:
        fields: object = decode_map(data)
    except RemoteProtocolError:
        return
    assert isinstance(fields, dict)
