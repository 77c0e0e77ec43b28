from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.records import encode_record
from support.stores.small import message

from trioha.broker.raft.records import (
    CHANGES,
    SNAPSHOT,
    SNAPSHOT_CODE,
    Assembly,
    messages_of,
    read_part,
)
from trioha.errors import RemoteProtocolError
from trioha.wire.record import decode_record


def records_of(kind: int, body: bytes, part_bytes: int = 1 << 20) -> list[bytes]:
    return [encode_record(put, 0, 0, 1) for put in messages_of(kind, body, part_bytes, 5)]


def test_a_body_is_one_record_and_comes_back() -> None:
    (record,) = records_of(CHANGES, b"body")
    assert read_part(record) == (CHANGES, 0, 1, b"body")
    assert Assembly().add(7, *read_part(record)) == b"body"


def test_the_first_record_of_a_snapshot_is_tagged_and_no_other() -> None:
    first, second = messages_of(SNAPSHOT, bytes(1500), 1024, 5)
    assert first.tags_code == SNAPSHOT_CODE
    assert second.tags_code == 0
    tags = [decode_record(record).tags for record in records_of(SNAPSHOT, bytes(1500), 1024)]
    assert tags == ["SNAPSHOT", None]
    (change,) = messages_of(CHANGES, b"body", 1024, 5)
    assert change.tags_code == 0


@given(st.binary(min_size=1, max_size=300), st.integers(6, 64))
def test_any_body_comes_back_from_its_parts(body: bytes, part_bytes: int) -> None:
    assembly = Assembly()
    records = records_of(SNAPSHOT, body, part_bytes)
    *begun, done = [
        assembly.add(place, *read_part(record)) for place, record in enumerate(records, 100)
    ]
    assert begun == [None] * (len(records) - 1)
    assert done == body
    assert assembly.phy_offset == 100


def test_what_a_dead_leader_began_is_forgotten_when_the_next_begins() -> None:
    assembly = Assembly()
    begun = records_of(SNAPSHOT, bytes(3000), 1024)[:2]
    for record in begun:
        assert assembly.add(1, *read_part(record)) is None
    (change,) = records_of(CHANGES, b"body")
    assert assembly.add(2, *read_part(change)) == b"body"
    assert assembly.phy_offset == 2


def test_parts_whose_beginning_is_not_there_are_nothing() -> None:
    assembly = Assembly()
    for record in records_of(SNAPSHOT, bytes(3000), 1024)[1:]:
        assert assembly.add(1, *read_part(record)) is None
    (change,) = records_of(CHANGES, b"body")
    assert assembly.add(2, *read_part(change)) == b"body"


@pytest.mark.parametrize(
    "body", [b"", b"\x01\0\0\0\1", b"\x03\0\0\0\1x", b"\x01\0\1\0\1x", b"\x01\0\0\0\0x"]
)
def test_what_is_no_part_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="metadata"):
        read_part(encode_record(message(body), 0, 0, 1))
