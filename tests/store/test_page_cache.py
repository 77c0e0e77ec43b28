from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stores.disks import directory_on_disk
from support.suite.skips import skip_unless

from trioha.store.interface import DiskBlock
from trioha.store.page_cache import bring, missing_bytes

skip_unless(sys.platform == "linux", "mincore tells of the page cache on Linux")
SIZE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    def is_on_disk(root: Path) -> bool:
        return missing_bytes(cold_file(root / "file")) > 0

    with directory_on_disk(tmp_path, is_on_disk) as root:
        yield root / "file"


def cold_file(path: Path) -> memoryview:
    """Return a mapping of a megabyte that is on disk only, if it is on a disk."""
    with path.open("w+b") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return memoryview(mmap.mmap(file.fileno(), SIZE))


@pytest.fixture
def cold(path: Path) -> memoryview:
    return cold_file(path)


def test_what_is_on_disk_is_counted_without_being_read(cold: memoryview) -> None:
    assert missing_bytes(cold) == SIZE
    assert missing_bytes(cold[5000:5001]) == mmap.PAGESIZE
    assert missing_bytes(cold[4095:4097]) == 2 * mmap.PAGESIZE
    assert missing_bytes(cold[:0]) == 0
    assert missing_bytes(cold) == SIZE


def test_what_was_brought_is_in_memory_and_nothing_else(cold: memoryview, path: Path) -> None:
    bring([DiskBlock(path, 0, SIZE // 4, 0), DiskBlock(path, SIZE // 2, 10, 0)])
    assert missing_bytes(cold[: SIZE // 4]) == 0
    assert missing_bytes(cold[SIZE // 2 : SIZE // 2 + 10]) == 0
    assert missing_bytes(cold) == SIZE * 3 // 4 - mmap.PAGESIZE
    bring([DiskBlock(path, 0, SIZE, 0)])
    assert missing_bytes(cold) == 0


def test_neighbours_are_read_in_one_call(
    cold: memoryview, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each call the thread waits for Python's lock."""
    calls = []
    read = os.preadv

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    piece = SIZE // 8
    parts = [DiskBlock(path, place * piece, piece, 0) for place in (5, 3, 2, 2, 4, 0)]
    bring(parts)
    assert calls == [0, 2 * piece]
    assert missing_bytes(cold) == 3 * piece


def test_a_file_that_is_gone_or_short_holds_up_nothing(cold: memoryview, path: Path) -> None:
    bring([DiskBlock(path.with_name("gone"), 0, 10, 0), DiskBlock(path, SIZE - 10, 4096, 0)])
    assert missing_bytes(cold) == SIZE - mmap.PAGESIZE
