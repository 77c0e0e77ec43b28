from __future__ import annotations

import pytest
from support.stores.records import encode_record
from support.stores.small import message

from trioha.store.record_sizes import whole_records
from trioha.wire.record import BLANK_MAGIC, PRELUDE, RecordError


def _records(*sizes: int) -> list[bytes]:
    return [encode_record(message(b"x" * size), 0, 0, 0) for size in sizes]


def test_a_piece_that_ends_anywhere_gives_the_whole_records_in_it() -> None:
    records = _records(0, 10, 300, 5)
    data = b"".join(records)
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record))
    for stop in range(len(data) + 1):
        assert whole_records(data[:stop], 1000) == max(end for end in ends if end <= stop)


def test_a_blank_counts_as_a_record() -> None:
    (record,) = _records(10)
    blank = PRELUDE.pack(40, BLANK_MAGIC).ljust(40, b"?")
    assert whole_records(record + blank, 1000) == len(record) + 40
    assert whole_records(record + blank[:39], 1000) == len(record)


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_a_body_that_has_changed_is_found(sys_flag: int) -> None:
    put = message(b"hello", sys_flag=sys_flag)
    put.born_host = bytes(20 if sys_flag & 0x10 else 8)
    put.store_host = bytes(20 if sys_flag & 0x20 else 8)
    record = encode_record(put, 0, 0, 0)
    assert whole_records(record, 1000) == len(record)
    damaged = record.replace(b"hello", b"hallo")
    with pytest.raises(RecordError, match="the record at 1000 has another checksum"):
        whole_records(damaged, 1000)
    # An incomplete record is not checked.
    assert whole_records(record + damaged[:-1], 1000) == len(record)


@pytest.mark.parametrize("wrong", [bytes(8), b"\xff" * 8, PRELUDE.pack(7, BLANK_MAGIC)])
def test_anything_else_is_refused(wrong: bytes) -> None:
    (record,) = _records(10)
    with pytest.raises(RecordError, match=f"no record begins at {1000 + len(record)}"):
        whole_records(record + wrong, 1000)
