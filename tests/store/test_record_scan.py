"""Records that a walk accepts after a power failure: bytes up to a page's end, then zeros."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.stores.records import encode_record
from support.stores.small import message

from trioha.store.record_scan import walk

BASE = 1 << 20


def record_at(position: int, body: bytes, topic: str, properties: bytes) -> bytes:
    put = message(body, topic=topic, properties=properties)
    return encode_record(put, 0, BASE + position, 1000)


@given(
    st.binary(max_size=40),
    st.text("abZ_%ä", min_size=1, max_size=30),
    st.text("ab=\x01\x02ö", max_size=40),
    st.data(),
)
def test_a_record_whose_end_is_zeros_is_sound_only_if_nothing_is_lost(
    body: bytes, topic: str, properties: str, data: st.DataObject
) -> None:
    first = record_at(0, b"first", "T", b"")
    second = record_at(len(first), body, topic, properties.encode())
    kept = data.draw(st.integers(0, len(second)), label="bytes that reached the disk")
    torn = second[:kept] + bytes(len(second) - kept)
    found = walk(first + torn + bytes(200), 0, len(first + torn) + 200, BASE)
    whole = torn == second
    assert found.records == 1 + whole
    assert found.position == len(first) + (len(second) if whole else 0)


def test_a_torn_topic_is_found_where_a_record_has_no_properties() -> None:
    """A member whose power had failed kept such a record, and its log differed from the group's."""
    body = b"x" * 1000
    record = record_at(0, body, "TRIOHA_METADATA", b"")
    torn = record[:-15] + bytes(15)
    assert walk(torn + bytes(500), 0, len(torn) + 500, BASE).reason == "topic is damaged"
