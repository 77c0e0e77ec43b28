from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from trioha.errors import CommitLogCorrupted, DiskFull, StoreError
from trioha.store.mapped_file import MappedFile
from trioha.store.mapped_file_queue import MappedFileQueue

SIZE = 64 * 1024


def make(path: Path, **changes: bool) -> MappedFile:
    file = MappedFile(path / "0", 0, SIZE, 16 * 1024, **changes)
    file.create()
    return file


def no_space(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_blocks_are_reserved_a_chunk_ahead(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, at, size: calls.append((at, size)))
    file = make(store_path)
    file.reserve(100)
    file.reserve(16 * 1024)
    file.reserve(16 * 1024 + 1)
    file.reserve(SIZE)
    assert calls == [(0, 16384), (16384, 16384), (32768, 32768)]


def test_a_full_disk_is_an_error_and_not_a_signal(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make(store_path)
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(DiskFull, match="writing goes on by itself"):
        file.reserve(1)
    assert file.reserved == 0


def test_a_write_on_a_full_disk_is_disk_full(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make(store_path)
    monkeypatch.setattr(os, "pwrite", no_space)
    with pytest.raises(DiskFull):
        file.write(0, b"x")


def test_short_writes_are_continued(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    file = make(store_path)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file.write(5, b"0123456789")
    assert file.buffer[5:15] == b"0123456789"


def test_a_large_write_goes_in_pieces(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, sizes = os.pwrite, []

    def count(fd: int, data: bytes, at: int) -> int:
        sizes.append(len(data))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", count)
    file = MappedFile(store_path / "0", 0, 512 * 1024, 16 * 1024)
    file.create()
    data = os.urandom(300 * 1024)
    file.write(5, data)
    assert sizes == [128 * 1024, 128 * 1024, 44 * 1024]
    assert bytes(file.view[5 : 5 + len(data)]) == data


def test_written_and_mapped_bytes_are_the_same(store_path: Path) -> None:
    file = make(store_path, keep_descriptor=True)
    file.buffer[0:4] = b"abcd"
    file.write(4, b"efgh")
    assert bytes(file.view[0:8]) == b"abcdefgh"
    assert file.path.read_bytes()[:8] == b"abcdefgh"


def test_views_outlive_the_file(store_path: Path) -> None:
    file = make(store_path)
    file.buffer[0:4] = b"abcd"
    view = file.view[0:4]
    file.unlink()
    del file
    gc.collect()
    assert bytes(view) == b"abcd"
    assert list(store_path.iterdir()) == []


def test_a_file_deleted_while_it_is_synced_is_no_error(store_path: Path) -> None:
    file = make(store_path)
    file.unlink()
    file.sync()
    kept = make(store_path, keep_descriptor=True)
    assert kept.buffer[0] == 0
    kept.unlink()
    kept.sync()


def test_descriptors_go_with_the_object(store_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = make(store_path, keep_descriptor=True)
    file.sync()
    file.reserve(1)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del file
    assert len(os.listdir("/proc/self/fd")) == before


def test_clear_zeroes_to_the_end_and_tells_where_that_was(store_path: Path) -> None:
    file = make(store_path)
    file.buffer[0:10] = b"0123456789"
    file.buffer[40000:40003] = b"xyz"
    assert file.clear(5) == 40003
    assert file.path.read_bytes().rstrip(b"\0") == b"01234"
    assert file.clear(5) == 5


def queue_of(path: Path) -> MappedFileQueue:
    return MappedFileQueue(path, 100, 100, cure="do this", size_key="someSize")


def test_files_are_found_by_offset(store_path: Path) -> None:
    queue = queue_of(store_path)
    assert queue.find(0) is None
    for offset in (300, 400, 500):
        queue.create(offset)
    again = queue_of(store_path)
    again.load()
    assert (again.first_offset, again.end_offset) == (300, 600)
    found = again.find(499)
    assert found is not None
    assert found.from_offset == 400
    assert again.find(299) is None
    assert again.find(600) is None


def test_the_first_file_may_begin_anywhere_aligned(store_path: Path) -> None:
    (store_path / f"{250:020d}").write_bytes(bytes(100))
    with pytest.raises(CommitLogCorrupted, match="begins at no multiple of 100: set someSize"):
        queue_of(store_path).load()


def test_dropping_from_an_offset_leaves_what_is_before(store_path: Path) -> None:
    queue = queue_of(store_path)
    for offset in (0, 100, 200):
        queue.create(offset)
    queue.drop_from(100)
    assert [path.name for path in store_path.iterdir()] == ["0" * 20]
    assert queue.drop_first().from_offset == 0
    assert list(store_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_a_store_error(store_path: Path) -> None:
    (store_path / "taken").write_text("")
    with pytest.raises(StoreError, match="cannot create"):
        queue_of(store_path / "taken" / "commitlog").create(0)
