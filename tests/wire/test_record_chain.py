"""`record_begins` finds what sizes lead to, and stops where no record can be."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.wire.record import FIXED_SIZE
from trioha.wire.record_chain import record_begins

_SIZE = Struct(">i")
_PLACE = Struct("<q")
sizes = st.lists(st.integers(FIXED_SIZE, FIXED_SIZE + 40), max_size=12)


def _begins(data: bytes, begin: int, stop: int, most: int = 100, lead: int = 0) -> list[int]:
    found = record_begins(data, begin, stop, most, lead)
    return [place for (place,) in _PLACE.iter_unpack(found)]


@given(sizes, st.integers(0, 14), st.sampled_from([0, 48]), st.integers(0, 9))
def test_each_size_leads_to_the_next(some: list[int], most: int, lead: int, before: int) -> None:
    data = b"x" * before
    places = []
    for size in some:
        places.append(len(data))
        data += b"y" * lead + _SIZE.pack(size) + b"z" * (size - 4)
    stop = len(data)
    # Behind the last record lies what is none.
    data += bytes(lead + 4)
    assert _begins(data, before, stop, most, lead) == places[:most]
    assert _begins(data, before, stop + 1, most, lead) == places[:most]


@pytest.mark.parametrize("size", [FIXED_SIZE - 1, 0, -1, -(1 << 31)])
def test_a_size_that_no_record_has_ends_the_chain(size: int) -> None:
    data = _SIZE.pack(FIXED_SIZE) + bytes(FIXED_SIZE - 4) + _SIZE.pack(size) + bytes(100)
    assert _begins(data, 0, len(data) - 4) == [0]


def test_a_size_beyond_the_data_ends_the_chain_behind_its_record() -> None:
    data = _SIZE.pack((1 << 31) - 1) + bytes(FIXED_SIZE)
    assert _begins(data, 0, len(data) - 4) == [0]


def test_nothing_is_found_from_the_stop_on() -> None:
    data = _SIZE.pack(FIXED_SIZE) + bytes(FIXED_SIZE)
    assert _begins(data, 0, 0) == []
    assert _begins(data, 4, 0) == []


def test_a_stop_too_near_the_datas_end_is_an_error() -> None:
    with pytest.raises(IndexError):
        record_begins(b"abc", 0, 3, 1, 0)
