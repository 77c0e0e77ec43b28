from __future__ import annotations

import errno
import mmap
import os
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.stores.disks import directory_on_disk
from support.stores.records import encode_record
from support.stores.small import SEGMENT_BYTES, message
from support.suite.skips import skip_unless

from trioha.config import BrokerConfig
from trioha.config.settings import FlushDiskType
from trioha.errors import DiskFull, OffsetOutOfRange, StoreError
from trioha.store.commitlog import CommitLog
from trioha.store.interface import PutMessage
from trioha.store.record_bytes import record_bytes
from trioha.store.store_config import StoreConfig
from trioha.wire.record import BLANK_MAGIC

MIB = 1 << 20
GOLDEN = (
    "00000082daa320a73610a686000000010000000700000000000000000000000000000000"
    "0000000000000000000003e87f000001000015b3"
    "00000000000004d2"
    "0a00000100002a9f00000000000000000000000000000005"
    "68656c6c6f015400214b455953016b31206b3202554e49515f4b45590141424302544147530154616741"
)


def golden_message() -> PutMessage:
    return PutMessage(
        topic="T",
        queue_id=1,
        flag=7,
        sys_flag=0,
        born_timestamp=1000,
        born_host=bytes.fromhex("7f000001000015b3"),
        store_host=bytes.fromhex("0a00000100002a9f"),
        body=b"hello",
        properties=b"KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC\x02TAGS\x01TagA",
    )


def size_of(put: PutMessage) -> int:
    return len(encode_record(put, 0, 0, 0))


def append(log: CommitLog, put: PutMessage, queue_offset: int = 0) -> int:
    offset = log.room_for(size_of(put))
    field = bytes((len(put.topic),)) + put.topic.encode()
    log.append(record_bytes(put, field, size_of(put), queue_offset, offset, 1234))
    return offset


@pytest.fixture
def log(config: StoreConfig) -> CommitLog:
    return CommitLog(config)


def test_a_record_is_what_rocketmq_writes(log: CommitLog) -> None:
    append(log, golden_message())
    assert log.end == 130
    assert bytes(log.read(0, 1000)) == bytes.fromhex(GOLDEN)


def test_files_have_their_full_size_and_name(log: CommitLog) -> None:
    append(log, message())
    (path,) = log.files.directory.iterdir()
    assert path.name == "0" * 20
    assert path.stat().st_size == SEGMENT_BYTES


def test_a_record_that_does_not_fit_leaves_a_blank(log: CommitLog) -> None:
    size = size_of(message(bytes(2000)))
    append(log, message(bytes(2000)))
    assert append(log, message(bytes(2000))) == SEGMENT_BYTES
    blank = log.read(size, SEGMENT_BYTES)
    assert len(blank) == SEGMENT_BYTES - size
    assert int.from_bytes(blank[:4], "big") == len(blank)
    assert int.from_bytes(blank[4:8], "big") == BLANK_MAGIC
    assert log.end == SEGMENT_BYTES + size


@pytest.mark.parametrize("room", [7, 8, 9])
def test_eight_bytes_stay_free_at_the_end_of_a_segment(log: CommitLog, room: int) -> None:
    fixed = size_of(message(b""))
    append(log, message(bytes(SEGMENT_BYTES - fixed - 1000)))
    second = append(log, message(bytes(1000 - fixed - room)))
    assert second == (SEGMENT_BYTES - 1000 if room >= 8 else SEGMENT_BYTES)


def test_what_is_appended_together_lies_in_one_segment(log: CommitLog) -> None:
    append(log, message(bytes(3000)))
    data = b"".join(encode_record(message(bytes(300)), index, 0, 1) for index in range(5, 9))
    assert log.room_for(len(data)) == SEGMENT_BYTES
    log.append(data)
    assert bytes(log.read(SEGMENT_BYTES, SEGMENT_BYTES)) == data
    assert log.end == SEGMENT_BYTES + len(data)


def test_a_read_stays_in_its_segment(log: CommitLog) -> None:
    for _ in range(3):
        append(log, message(bytes(3000)))
    assert len(log.read(0, 1 << 20)) == SEGMENT_BYTES
    assert len(log.read(100, 10)) == 10
    assert len(log.read(2 * SEGMENT_BYTES, 1 << 20)) == log.end - 2 * SEGMENT_BYTES
    assert len(log.read(log.end, 10)) == 0


@pytest.mark.parametrize("offset", [-1, 1])
def test_reading_outside_is_out_of_range(log: CommitLog, offset: int) -> None:
    append(log, message())
    with pytest.raises(OffsetOutOfRange):
        log.read(offset if offset < 0 else log.end + offset, 10)


def test_only_a_records_begin_is_a_record(log: CommitLog) -> None:
    first, second = append(log, message()), append(log, message())
    assert log.record_at(first) is not None
    assert log.record_at(second) is not None
    for offset in (first + 1, second - 1, log.end, log.end + 1, -1, 1 << 40):
        assert log.record_at(offset) is None


def test_a_copy_in_random_pieces_is_equal(config: StoreConfig, log: CommitLog) -> None:
    rng = random.Random(7)
    for _ in range(40):
        append(log, message(rng.randbytes(rng.randrange(1500))))
    copy = CommitLog(_beside(config))
    while copy.end < log.end:
        part = log.read(copy.end, rng.randrange(1, 3000))
        copy.append_raw(copy.end, part)
    for segment in log.files.files:
        twin = copy.files.find(segment.from_offset)
        assert twin is not None
        assert twin.path.read_bytes() == segment.path.read_bytes()


def test_a_frame_may_cross_segments(log: CommitLog) -> None:
    data = random.Random(1).randbytes(3 * SEGMENT_BYTES + 100)
    log.append_raw(0, data)
    assert log.end == len(data)
    starts = range(0, len(data), SEGMENT_BYTES)
    assert b"".join(bytes(log.read(at, SEGMENT_BYTES)) for at in starts) == data


def test_raw_bytes_only_fit_the_end(log: CommitLog) -> None:
    log.append_raw(0, b"12345")
    for offset in (0, 4, 6, SEGMENT_BYTES):
        with pytest.raises(StoreError, match=f"offset {offset} do not fit a log that ends at 5"):
            log.append_raw(offset, b"x")
    assert log.end == 5


def test_a_full_disk_at_the_roll_leaves_no_blank(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, message(bytes(2000)))
    end = log.end
    before = log.files.files[0].path.read_bytes()
    real = os.posix_fallocate

    def fail(fd: int, at: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    for _ in range(2):
        with pytest.raises(DiskFull):
            append(log, message(bytes(2000)))
    assert log.end == end
    assert log.files.files[0].path.read_bytes() == before
    monkeypatch.setattr(os, "posix_fallocate", real)
    append(log, message(bytes(50)))
    assert append(log, message(bytes(2000))) == SEGMENT_BYTES


def test_a_flush_reaches_what_was_there_when_it_began(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, message())
    end = log.end
    inside, go_on = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(fd: int) -> None:
        inside.set()
        assert go_on.wait(10)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(log.flush()))
    thread.start()
    assert inside.wait(10)
    for _ in range(5):
        append(log, message(bytes(3000)))
    log.files.drop_first()
    go_on.set()
    thread.join(10)
    assert results == [end]
    assert log.flushed_offset == end


def test_a_failed_fsync_is_final(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, message())
    real = os.fdatasync

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        log.flush()
    # The kernel has dropped the dirty pages: a second fsync would say all is well.
    monkeypatch.setattr(os, "fdatasync", real)
    with pytest.raises(StoreError):
        log.flush()
    with pytest.raises(StoreError):
        log.append_raw(log.end, b"x")
    assert log.flushed_offset == 0


def _beside(config: StoreConfig) -> StoreConfig:
    return attrs.evolve(config, commitlog_path=config.root / "copy")


def test_a_cut_tells_how_much_was_there_and_not_what_was_kept_for_more(log: CommitLog) -> None:
    append(log, golden_message())
    end = log.end
    log.reserve_ahead(3 * SEGMENT_BYTES)
    assert len(log.files.files) == 4
    assert log.truncate(end) == end
    assert len(log.files.files) == 1
    log.reserve_ahead(3 * SEGMENT_BYTES)
    assert log.truncate(0) == end


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[StoreConfig]:
    """A store with long segments whose files are on a disk, not in memory."""
    skip_unless(Path("/proc/self/io").exists(), "Linux counts what a process writes")
    with directory_on_disk(tmp_path, is_counted) as root:
        yield StoreConfig(
            root=root,
            commitlog_path=root / "commitlog",
            segment_bytes=64 * MIB,
            is_synced_for_puts=True,
        )


def is_counted(root: Path) -> bool:
    before = written_bytes()
    (root / "probe").write_bytes(b"x")
    return written_bytes() > before


def written_bytes() -> int:
    """Return how much this process has made the kernel write to disks."""
    text = Path("/proc/self/io").read_text()
    return int(re.findall(r"^write_bytes: (\d+)", text, re.MULTILINE)[0])


def append_many(log: CommitLog, size: int) -> None:
    piece = b"x" * 4000
    for _ in range(size // len(piece)):
        log.room_for(len(piece))
        log.append(piece)
    log.flush()


def test_an_fsync_writes_what_was_appended_and_little_more(on_disk: StoreConfig) -> None:
    """Also behind a burst that the kernel may take for a reader, and in a second segment."""
    log = CommitLog(on_disk)
    for size in (0, 40 * MIB, 40 * MIB):
        append_many(log, size)
        before = written_bytes()
        for _ in range(20):
            log.room_for(200)
            log.append(b"x" * 200)
            log.flush()
        # A page each, and room for what the file system keeps of a file.
        assert written_bytes() - before <= 20 * 8 * mmap.PAGESIZE


def ranges_without_read_ahead(path: Path) -> list[range]:
    """Return the parts of a file that this process has mapped with MADV_RANDOM, one by one."""
    found: list[range] = []
    for entry in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        head = re.match(rf"(\w+)-(\w+) \S+ (\w+) .* {re.escape(str(path))}\n", entry)
        if head and re.search(r"^VmFlags:.* rr ", entry, re.MULTILINE):
            begin, end, offset = (int(one, 16) for one in head.groups())
            found.append(range(offset, offset + end - begin))
    return found


def test_the_kernel_reads_ahead_wherever_nothing_is_written(on_disk: StoreConfig) -> None:
    log = CommitLog(on_disk)
    append_many(log, 20 * MIB)
    [ahead] = ranges_without_read_ahead(log.files.files[0].path)
    assert on_disk.log_chunk_bytes - mmap.PAGESIZE <= ahead.start <= log.end
    assert ahead.stop == on_disk.segment_bytes
    append_many(log, 60 * MIB)
    first, second = log.files.files
    assert not ranges_without_read_ahead(first.path)
    assert ranges_without_read_ahead(second.path)
    again = CommitLog(on_disk)
    again.files.load()
    again.settle(log.end)
    starts = {ahead.start for ahead in ranges_without_read_ahead(second.path)}
    assert log.end - log.end % mmap.PAGESIZE - second.from_offset in starts, "after a restart"


def test_a_log_that_no_put_waits_for_is_read_ahead_everywhere(on_disk: StoreConfig) -> None:
    """The writer gains by that: fresh pages come many at a time."""
    log = CommitLog(attrs.evolve(on_disk, is_synced_for_puts=False))
    append_many(log, 20 * MIB)
    assert not ranges_without_read_ahead(log.files.files[0].path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"flush_disk_type": FlushDiskType.SYNC_FLUSH}, True),
        ({"enable_d_leger_commit_log": True}, True),
        ({"enable_d_leger_commit_log": True, "d_leger_replicated_in_memory": True}, False),
    ],
)
def test_puts_wait_for_the_disk_in_these_modes(changes: dict[str, Any], expected: bool) -> None:
    config = BrokerConfig(**changes)
    assert StoreConfig.of(config).is_synced_for_puts is expected
