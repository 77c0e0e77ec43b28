from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.records import split_batch

from trioha.errors import RemoteProtocolError
from trioha.wire.batch import BatchElement, encode_batch, split_fields

ELEMENTS = st.lists(
    st.builds(
        BatchElement,
        st.integers(-(2**31), 2**31 - 1),
        st.binary(max_size=40),
        st.binary(max_size=40),
    ),
    max_size=6,
)


def plain(elements: list[BatchElement]) -> list[tuple[int, bytes, bytes]]:
    return [(flag, bytes(body), bytes(properties)) for flag, body, properties in elements]


@given(ELEMENTS)
def test_batches_survive_the_round_trip(elements: list[BatchElement]) -> None:
    assert plain(split_batch(encode_batch(elements))) == plain(elements)


def test_an_element_is_laid_out_as_java_lays_it_out() -> None:
    batch = encode_batch([BatchElement(7, b"hello", b"TAGS\x01A")])
    assert batch.hex(" ", 4) == bytes.fromhex(
        "00000021 00000000 00000000 00000007 00000005 68656c6c6f 0006 544147530141"
    ).hex(" ", 4)


@given(ELEMENTS)
def test_fields_are_those_of_the_elements(elements: list[BatchElement]) -> None:
    assert split_fields(encode_batch(elements))[0] == plain(elements)


@given(ELEMENTS.filter(bool), st.data())
def test_a_cut_batch_is_refused_unless_cut_between_elements(
    elements: list[BatchElement], data: st.DataObject
) -> None:
    batch = encode_batch(elements)
    cut = data.draw(st.integers(0, len(batch) - 1))
    ends = [len(encode_batch(elements[:count])) for count in range(len(elements))]
    if cut in ends:
        assert len(split_batch(batch[:cut])) == ends.index(cut)
    else:
        with pytest.raises(RemoteProtocolError):
            split_batch(batch[:cut])


@given(st.binary(max_size=80))
def test_any_bytes_split_or_are_refused(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        split_batch(data)


def test_properties_too_long_for_their_field_are_our_mistake() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode_batch([BatchElement(0, b"", b"x" * 32768)])


@given(ELEMENTS, st.integers(1, 4))
def test_a_batch_can_be_split_a_few_at_a_time(elements: list[BatchElement], count: int) -> None:
    batch, position, found = encode_batch(elements), 0, []
    while position < len(batch):
        some, position = split_fields(batch, position, count)
        assert 0 < len(some) <= count
        found += some
    assert found == plain(elements)
