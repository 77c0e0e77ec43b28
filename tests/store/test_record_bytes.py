from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.records import encode_record
from support.stores.small import batch_of

from trioha.store.consume_queue import ENTRY
from trioha.store.interface import PutMessage
from trioha.store.record_bytes import batch_bytes, record_bytes
from trioha.wire.record import FIXED_SIZE, RecordError, decode_records

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
V4 = st.binary(min_size=8, max_size=8)
V6 = st.binary(min_size=20, max_size=20)


@st.composite
def messages(draw: st.DrawFn) -> PutMessage:
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    return PutMessage(
        topic=draw(st.text("abTé", min_size=1, max_size=40)),
        queue_id=draw(I32),
        flag=draw(I32),
        sys_flag=(0x10 if born_v6 else 0) | (0x20 if store_v6 else 0) | 0x1,
        born_timestamp=draw(I64),
        born_host=draw(V6 if born_v6 else V4),
        store_host=draw(V6 if store_v6 else V4),
        body=draw(st.binary(max_size=50)),
        properties=draw(st.binary(max_size=50)),
        reconsume_times=draw(I32),
    )


def topic_field(message: PutMessage) -> bytes:
    topic = message.topic.encode()
    return bytes((len(topic),)) + topic


@settings(deadline=None)
@given(message=messages(), queue_offset=I64, phy_offset=I64, stored_at=I64)
def test_a_record_is_what_the_codec_makes_of_it(
    message: PutMessage, queue_offset: int, phy_offset: int, stored_at: int
) -> None:
    expected = encode_record(message, queue_offset, phy_offset, stored_at)
    made = record_bytes(
        message, topic_field(message), len(expected), queue_offset, phy_offset, stored_at
    )
    assert made == expected


@settings(deadline=None)
@given(message=messages(), bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_a_batch_is_its_records_back_to_back(message: PutMessage, bodies: list[bytes]) -> None:
    expected = b""
    offsets = []
    batch = batch_of([message] * len(bodies))
    batch.entries = [(n, body, b"P" * n, 0, ()) for n, body in enumerate(bodies)]
    batch.entries[-1] = (*batch.entries[-1][:4], (b"K",))
    for number, body in enumerate(bodies):
        message.flag, message.body, message.properties = number, body, b"P" * number
        offsets.append(700 + len(expected))
        expected += encode_record(message, 5 + number, offsets[-1], 1234)
    field = topic_field(message)
    size_min = FIXED_SIZE + len(field) - 1 + len(message.born_host) + len(message.store_host) - 16
    tags = [-number for number in range(len(bodies))]
    made = batch_bytes(batch, field, size_min, tags, 700, 5, 1234)
    assert made.records == expected
    records = list(decode_records(expected))
    assert made.phy_offsets == offsets == [record.phy_offset for record in records]
    sizes = [end - begin for begin, end in pairwise([*offsets, 700 + len(expected)])]
    assert list(ENTRY.iter_unpack(made.entries)) == list(zip(offsets, sizes, tags, strict=True))
    assert made.keyed == [(offsets[-1], 1234, message.topic, b"K")]


def test_a_number_out_of_range_is_told() -> None:
    message = PutMessage("T", 1 << 40, 0, 0, 0, bytes(8), bytes(8), b"", b"")
    with pytest.raises(RecordError, match="does not fit a record"):
        record_bytes(message, b"\x01T", 92, 0, 0, 0)
    with pytest.raises(RecordError, match="does not fit a record"):
        batch_bytes(batch_of([message]), b"\x01T", 92, [0], 0, 0, 0)
