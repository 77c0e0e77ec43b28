from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest
from support.suite.skips import skip_unless

from trioha.store.interface import DiskBlock
from trioha.store.page_cache import bring, missing_bytes

skip_unless(sys.platform == "linux", "mincore tells of the page cache on Linux")
SIZE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.fixture
def cold(path: Path) -> memoryview:
    """A mapping of a megabyte that is on disk only."""
    with path.open("w+b") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        view = memoryview(mmap.mmap(file.fileno(), SIZE))
    skip_unless(missing_bytes(view), "a temporary directory on a disk, not in memory")
    return view


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


def test_a_file_that_is_gone_or_short_holds_up_nothing(cold: memoryview, path: Path) -> None:
    bring([DiskBlock(path.with_name("gone"), 0, 10, 0), DiskBlock(path, SIZE - 10, 4096, 0)])
    assert missing_bytes(cold) == SIZE - mmap.PAGESIZE
