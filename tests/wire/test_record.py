from __future__ import annotations

import mmap
import struct
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.records import encode_record

from trioha.store.interface import PutMessage
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import pack_host
from trioha.wire.properties import encode_properties
from trioha.wire.record import (
    BLANK_MAGIC,
    MAGIC,
    PRELUDE,
    RecordError,
    body_crc,
    decode_record,
    decode_records,
    dispatch_fields,
    pack_record,
    peek,
    properties_begin,
    properties_of,
    record_size,
)

GOLDEN = bytes.fromhex(
    "00000082daa320a73610a68600000001000000070000000000000000"
    "000000000000000000000000"
    "00000000000003e87f000001000015b3"
    "0000018bcfe56800"
    "0a00000100002a9f00000000000000000000000000000005"
    "68656c6c6f"
    "0154"
    "0021"
    "4b455953016b31206b3202554e49515f4b45590141424302544147530154616741"
)
STORED_AT = 0x18BCFE56800
COPIED_FIELDS = [
    "topic",
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
    "body",
    "reconsume_times",
    "prepared_transaction_offset",
]

INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
TOPICS = st.text("abcXYZ%_-ä", min_size=1, max_size=30)


def golden_message() -> PutMessage:
    return PutMessage(
        topic="T",
        queue_id=1,
        flag=7,
        sys_flag=0,
        born_timestamp=1000,
        born_host=pack_host("127.0.0.1", 5555),
        store_host=pack_host("10.0.0.1", 10911),
        body=b"hello",
        properties=encode_properties({"KEYS": "k1 k2", "UNIQ_KEY": "ABC", "TAGS": "TagA"}),
    )


@st.composite
def messages(draw: st.DrawFn) -> PutMessage:
    flags = draw(INT32) & ~(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)
    hosts = []
    for bit in (SysFlag.BORNHOST_V6, SysFlag.STOREHOST_V6):
        v6 = draw(st.booleans())
        flags |= bit if v6 else 0
        hosts.append(pack_host("2001:db8::1" if v6 else "10.1.2.3", draw(st.integers(0, 65535))))
    return PutMessage(
        topic=draw(TOPICS),
        queue_id=draw(INT32),
        flag=draw(INT32),
        sys_flag=flags,
        born_timestamp=draw(OFFSETS),
        born_host=hosts[0],
        store_host=hosts[1],
        body=draw(st.binary(max_size=60)),
        properties=draw(st.binary(max_size=60)),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(OFFSETS),
    )


def test_the_golden_record_is_packed_byte_for_byte() -> None:
    assert encode_record(golden_message(), 0, 0, STORED_AT) == GOLDEN


def test_the_golden_record_is_read_back() -> None:
    record = decode_record(GOLDEN)
    assert (record.topic, record.queue_id, record.flag, record.body) == ("T", 1, 7, b"hello")
    assert (record.born_timestamp, record.store_timestamp) == (1000, STORED_AT)
    assert record.properties == {"KEYS": "k1 k2", "UNIQ_KEY": "ABC", "TAGS": "TagA"}
    assert record.tags == "TagA"
    assert record.keys == ["k1", "k2"]
    assert record.message_id == "0A00000100002A9F0000000000000000"


@given(messages(), OFFSETS, OFFSETS, OFFSETS)
def test_records_survive_the_round_trip(
    message: PutMessage, queue_offset: int, phy_offset: int, stored_at: int
) -> None:
    data = encode_record(message, queue_offset, phy_offset, stored_at)
    record = decode_record(memoryview(data))
    assert len(data) == record.size
    for name in COPIED_FIELDS:
        assert getattr(record, name) == getattr(message, name), name
    assert record.raw_properties == message.properties
    assert (record.queue_offset, record.phy_offset) == (queue_offset, phy_offset)
    assert record.store_timestamp == stored_at

    header = peek(data, 0)
    assert (header.size, header.magic, header.crc) == (len(data), MAGIC, body_crc(message.body))
    assert (header.queue_id, header.flag, header.sys_flag) == (
        message.queue_id,
        message.flag,
        message.sys_flag,
    )
    assert (header.queue_offset, header.phy_offset) == (queue_offset, phy_offset)
    assert (header.born_timestamp, header.store_timestamp) == (message.born_timestamp, stored_at)
    assert (header.reconsume_times, header.prepared_offset) == (
        message.reconsume_times,
        message.prepared_transaction_offset,
    )

    assert dispatch_fields(b"??" + data, 2) == (
        len(data),
        message.topic,
        message.queue_id,
        queue_offset,
        message.sys_flag,
        stored_at,
        message.properties,
    )


@given(messages())
def test_the_size_is_known_before_packing(message: PutMessage) -> None:
    assert len(encode_record(message, 0, 0, 0)) == record_size(
        len(message.body),
        len(message.topic.encode()),
        len(message.properties),
        len(message.born_host) == 20,
        len(message.store_host) == 20,
    )


def test_a_record_is_packed_into_a_mapping_in_place() -> None:
    with mmap.mmap(-1, 4096) as mapping:
        size = pack_record(mapping, 100, golden_message(), 0, 0, STORED_AT, 0x3610A686)
        assert mapping[100 : 100 + size] == GOLDEN
        assert not any(mapping[:100])
        assert not any(mapping[100 + size :])
        assert decode_record(mapping, 100).body == b"hello"
        assert dispatch_fields(mapping, 100).topic == "T"


@given(st.binary(max_size=30))
def test_a_payload_whose_checksum_is_zero_is_valid_like_any_other(prefix: bytes) -> None:
    """Fault A14: a checksum of 0 was once read as "no checksum" or "invalid"."""
    # Four bytes bring any CRC to 0: those that do it from the start, xor the state so far.
    state = crc32(prefix)
    suffix = struct.pack("<I", struct.unpack("<I", bytes.fromhex("9d0ad96d"))[0] ^ state)
    message = golden_message()
    message.body = prefix + suffix
    assert body_crc(message.body) == 0
    data = encode_record(message, 0, 0, STORED_AT)
    assert decode_record(data).body == message.body
    damaged = bytearray(data)
    damaged[88] ^= 1
    with pytest.raises(RecordError, match="checksum"):
        decode_record(damaged)


def test_an_empty_body_is_a_body() -> None:
    message = golden_message()
    message.body = b""
    assert decode_record(encode_record(message, 0, 0, STORED_AT)).body == b""


def test_a_wrong_body_is_noticed_unless_told_not_to_look() -> None:
    damaged = GOLDEN.replace(b"hello", b"jello")
    with pytest.raises(RecordError, match="checksum"):
        decode_record(damaged)
    assert decode_record(damaged, check_crc=False).body == b"jello"


def test_the_properties_of_a_damaged_record_are_none() -> None:
    assert properties_of(GOLDEN, 0, len(GOLDEN)) == decode_record(GOLDEN).raw_properties
    for cut in range(len(GOLDEN)):
        assert properties_of(GOLDEN[:cut], 0, len(GOLDEN)) == b""
    for body_size in (-1, 6, 1 << 30):
        damaged = GOLDEN[:84] + struct.pack(">i", body_size) + GOLDEN[88:]
        assert properties_of(damaged, 0, len(GOLDEN)) == b""
        assert properties_begin(damaged, len(damaged)) == len(damaged)


@given(
    messages(),
    st.integers(0, 400),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
def test_both_ways_find_the_same_properties(
    message: PutMessage, cut: int, missing: int, changes: list[tuple[int, int]]
) -> None:
    """One way reads the log, the other a copy of the record, which may be cut or damaged."""
    damaged = bytearray(encode_record(message, 0, 0, STORED_AT))
    for at, value in changes:
        damaged[at % len(damaged)] = value
    record = bytes(damaged[: len(damaged) - cut if cut < 100 else None])
    size = len(record) + missing
    assert record[properties_begin(record, size) :] == properties_of(record, 0, size)


@pytest.mark.parametrize("cut", range(len(GOLDEN)))
def test_a_cut_record_is_refused(cut: int) -> None:
    with pytest.raises(RecordError):
        decode_record(GOLDEN[:cut])
    with pytest.raises(RecordError):
        decode_record(memoryview(GOLDEN)[:cut])


@given(st.integers(0, len(GOLDEN) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_raises_anything_but_a_record_error(at: int, mask: int) -> None:
    damaged = bytearray(GOLDEN)
    damaged[at] ^= mask
    for read in (decode_record, decode_records, lambda data: dispatch_fields(data, 0)):
        with suppress(RecordError):
            read(bytes(damaged))
    peek(damaged, 0)


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_magic_decode_or_are_refused(data: bytes) -> None:
    damaged = PRELUDE.pack(len(data) + 8, MAGIC) + data
    for read in (decode_record, lambda it: dispatch_fields(it, 0), lambda it: peek(it, 0)):
        with suppress(RecordError):
            read(damaged)


def test_a_blank_needs_only_its_eight_bytes() -> None:
    header = peek(PRELUDE.pack(4096, BLANK_MAGIC), 0)
    assert (header.size, header.magic) == (4096, BLANK_MAGIC)
    with pytest.raises(RecordError, match="magic"):
        decode_record(PRELUDE.pack(4096, BLANK_MAGIC))


def test_records_back_to_back_are_all_read() -> None:
    records = decode_records(GOLDEN * 3)
    assert [record.body for record in records] == [b"hello"] * 3
    with pytest.raises(RecordError):
        decode_records(GOLDEN * 3 + b"\0")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", "x" * 128),
        ("properties", b"x" * 32768),
        ("flag", 2**31),
        ("queue_id", -(2**31) - 1),
        ("born_timestamp", 2**63),
    ],
)
def test_a_message_that_does_not_fit_a_record_is_refused(field: str, value: object) -> None:
    message = golden_message()
    setattr(message, field, value)
    with pytest.raises(RecordError):
        encode_record(message, 0, 0, STORED_AT)


def test_the_longest_names_and_properties_fit() -> None:
    message = golden_message()
    message.topic = "x" * 127
    message.properties = b"p" * 32767
    record = decode_record(encode_record(message, 0, 0, STORED_AT))
    assert (record.topic, record.raw_properties) == (message.topic, message.properties)
    with mmap.mmap(-1, 64) as mapping, pytest.raises(RecordError):
        pack_record(mapping, 0, message, 0, 0, 0, 0)
