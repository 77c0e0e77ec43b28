from __future__ import annotations

from random import Random

import pytest
from support.stores.records import encode_record

from trioha.store import record_sizes
from trioha.store.put_values import PutMessage
from trioha.wire.codes import SysFlag
from trioha.wire.record import BLANK_MAGIC, PRELUDE

AT, REST = 4096, 1 << 20


def misplaced_record(data: bytes, phy_offset: int, segment_rest: int) -> str:
    return record_sizes.misplaced_record(data, phy_offset, segment_rest, set())


def record(
    at: int,
    body: bytes = b"body",
    sys_flag: int = 0,
    properties: bytes = b"",
    topic: str = "Thème",
) -> bytes:
    born = bytes(20 if sys_flag & SysFlag.BORNHOST_V6 else 8)
    stored = bytes(20 if sys_flag & SysFlag.STOREHOST_V6 else 8)
    message = PutMessage(topic, 1, 0, sys_flag, 1000, born, stored, body, properties, 0)
    return encode_record(message, 7, at, 1000)


@pytest.mark.parametrize(
    "sys_flag",
    [0, SysFlag.BORNHOST_V6, SysFlag.STOREHOST_V6, SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6],
)
@pytest.mark.parametrize("properties", [b"", b"TAGS\x01a\x02", b"p" * 32_767])
def test_records_in_their_place_are_taken(sys_flag: int, properties: bytes) -> None:
    first = record(AT, b"", sys_flag, properties)
    data = first + record(AT + len(first), b"x" * 300, sys_flag, properties)
    assert misplaced_record(data, AT, REST) == ""
    assert "says that it lies at" in misplaced_record(data, AT + 1, REST)
    assert "does not fit into its segment" in misplaced_record(data, AT, len(data))


def test_every_topic_is_told() -> None:
    data = b""
    for topic in ("A", "Thème", "A", "B"):
        data += record(AT + len(data), b"TRIOHA_", topic=topic)
    topics: set[bytes] = set()
    assert record_sizes.misplaced_record(data, AT, REST, topics) == ""
    assert topics == {b"A", "Thème".encode(), b"B"}


def test_a_blank_fills_its_segment() -> None:
    first = record(AT)
    blank = PRELUDE.pack(40, BLANK_MAGIC) + bytes(32)
    assert misplaced_record(first + blank, AT, len(first) + 40) == ""
    assert "does not fill its segment" in misplaced_record(first + blank, AT, len(first) + 41)
    assert "is cut off" in misplaced_record(first + blank[:-1], AT, len(first) + 40)


def test_no_piece_of_a_record_and_no_changed_length_is_taken() -> None:
    whole = record(AT, b"x" * 50, properties=b"TAGS\x01a\x02")
    for end in range(1, len(whole)):
        assert misplaced_record(whole[:end], AT, REST), end
    body_size_at, topic_at = 84, 88 + 50
    for position in (*range(8), *range(28, 36), *range(body_size_at, 88), topic_at):
        changed = bytearray(whole)
        changed[position] ^= 0x41
        assert misplaced_record(bytes(changed), AT, REST), position


def test_hosts_that_do_not_fit_into_the_record_are_noticed() -> None:
    short = bytearray(record(AT, b""))
    short[36:40] = (SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6).to_bytes(4, "big")
    assert "has a body of -1" in misplaced_record(bytes(short), AT, REST)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_bytes_come_there_is_an_answer(seed: int) -> None:
    rng = Random(seed)
    whole = record(AT, b"x" * 50)
    for _ in range(3000):
        data = bytearray(whole * 2)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        misplaced_record(bytes(data[: rng.randrange(len(data) + 1)]), AT, REST)
