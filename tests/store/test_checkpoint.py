from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from trioha.store.checkpoint import (
    Checkpoint,
    RecoveryPoint,
    read_checkpoint,
    write_checkpoint,
)
from trioha.store.store_config import StoreConfig

POINT = RecoveryPoint(
    phy_offset=12345,
    store_timestamp=900,
    indexed_offset=12000,
    index_synced_offset=11000,
    index_file=20260102030405006,
    index_next_number=7,
    queue_count=3,
    boot=b"0123456789abcdef",
)
CHECKPOINT = Checkpoint(
    physic_msg_timestamp=1000,
    logics_msg_timestamp=900,
    index_msg_timestamp=800,
    recovery_point=POINT,
)


def test_it_reads_back_what_it_wrote(config: StoreConfig) -> None:
    write_checkpoint(config.checkpoint_path, CHECKPOINT)
    assert read_checkpoint(config.checkpoint_path) == CHECKPOINT
    assert config.checkpoint_path.stat().st_size == 4096


def test_rocketmq_finds_its_timestamps_and_our_part_lies_in_the_same_sector() -> None:
    data = CHECKPOINT.encode()
    assert struct.unpack_from(">qqq", data) == (1000, 900, 800)
    assert data[24:40] == bytes(16)
    assert data[512:] == bytes(4096 - 512)


def test_a_checkpoint_that_a_java_broker_wrote_has_no_recovery_point() -> None:
    data = bytearray(CHECKPOINT.encode())
    struct.pack_into(">q", data, 0, 1001)
    assert Checkpoint.decode(bytes(data)) == Checkpoint(
        physic_msg_timestamp=1001, logics_msg_timestamp=900, index_msg_timestamp=800
    )


@given(st.integers(256, 511), st.integers(1, 255))
def test_a_changed_byte_voids_the_recovery_point(at: int, mask: int) -> None:
    data = bytearray(CHECKPOINT.encode())
    data[at] ^= mask
    point = Checkpoint.decode(bytes(data)).recovery_point
    assert point is None or point == POINT  # a byte behind our part


@given(st.binary(max_size=600))
def test_anything_is_read_as_some_checkpoint(data: bytes) -> None:
    assert Checkpoint.decode(data).recovery_point is None


def test_rocketmq_starts_three_seconds_before_the_older_timestamp() -> None:
    assert (
        Checkpoint(physic_msg_timestamp=9000, logics_msg_timestamp=8000).recover_timestamp == 5000
    )
    assert Checkpoint(physic_msg_timestamp=9000).recover_timestamp == 0


def test_no_file_is_an_empty_checkpoint(config: StoreConfig) -> None:
    assert read_checkpoint(config.checkpoint_path) == Checkpoint()
