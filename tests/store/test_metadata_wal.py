from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.errors import DiskFull
from trioha.store import metadata_wal
from trioha.store.mapped_file import MappedFile
from trioha.store.metadata_wal import MetadataWal


def written(directory: Path, bodies: list[bytes], first: int = 1) -> MetadataWal:
    wal = MetadataWal(directory)
    assert list(wal.read()) == []
    for position, body in enumerate(bodies, first):
        wal.append(position, body)
    return wal


def test_what_was_appended_is_read_by_the_next_run_without_any_sync(tmp_path: Path) -> None:
    written(tmp_path / "wal", [b"one", b"two" * 1000])
    after = MetadataWal(tmp_path / "wal")
    assert list(after.read()) == [(1, b"one"), (2, b"two" * 1000)]
    assert after.position == 2


def test_nothing_was_written_where_nothing_changed(tmp_path: Path) -> None:
    wal = MetadataWal(tmp_path / "wal")
    assert list(wal.read()) == []
    assert wal.sync() == 0
    assert not (tmp_path / "wal").exists()


def test_runs_go_on_in_files_of_their_own(tmp_path: Path) -> None:
    for run in range(3):
        wal = MetadataWal(tmp_path)
        assert [position for position, _ in wal.read()] == list(range(1, run + 1))
        wal.append(wal.position + 1, b"x")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_body_larger_than_a_file_gets_its_own(tmp_path: Path) -> None:
    large = bytes(range(256)) * 8192
    written(tmp_path, [b"a", large, b"b"])
    assert [body for _, body in MetadataWal(tmp_path).read()] == [b"a", large, b"b"]


def test_files_go_once_every_table_is_saved_beyond_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_wal, "FILE_BYTES", 4096)
    wal = written(tmp_path, [bytes([n]) * 1000 for n in range(1, 41)])
    assert len(list(tmp_path.iterdir())) == 10
    wal.forget(22)
    kept = [position for position, _ in MetadataWal(tmp_path).read()]
    assert kept == list(range(21, 41)), "whole files only"
    wal.forget(40)
    assert list(tmp_path.iterdir()) == []
    wal.append(41, b"more")
    assert list(MetadataWal(tmp_path).read()) == [(41, b"more")]


def test_what_a_former_run_left_goes_too(tmp_path: Path) -> None:
    written(tmp_path, [b"a", b"b"])
    after = MetadataWal(tmp_path)
    list(after.read())
    after.forget(1)
    assert list(tmp_path.iterdir())
    after.forget(2)
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 200), noise=st.binary(max_size=40))
def test_a_torn_end_is_the_end_and_never_a_wrong_body(
    tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes
) -> None:
    directory = tmp_path_factory.mktemp("wal")
    bodies = [b"alpha", b"beta", b"gamma", b"delta" * 9]
    written(directory, bodies)
    (path,) = directory.iterdir()
    data = bytearray(path.read_bytes())
    data[8 + cut :] = noise + bytes(len(data))
    path.write_bytes(data)
    wal = MetadataWal(directory)
    found = list(wal.read())
    assert found == list(enumerate(bodies, 1))[: len(found)]
    wal.append(wal.position + 1, b"after")
    again = list(MetadataWal(directory).read())
    assert again == [*found, (len(found) + 1, b"after")]


def test_one_changed_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    written(tmp_path, [b"alpha", b"beta"])
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for offset in range(8 + 2 * 16 + len(b"alphabeta")):
        changed = bytearray(data)
        changed[offset] ^= 0x10
        path.write_bytes(changed)
        found = list(MetadataWal(tmp_path).read())
        assert found in ([], [(1, b"alpha")]), offset


def test_sync_tells_what_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_wal, "FILE_BYTES", 4096)
    synced: list[str] = []
    monkeypatch.setattr(MappedFile, "sync", lambda file: synced.append(file.path.name[-2:]))
    wal = written(tmp_path, [bytes(1000)] * 5)
    assert (wal.synced_position, wal.sync(), wal.synced_position) == (0, 5, 5)
    assert synced == ["01", "05"]
    wal.append(6, b"x")
    wal.sync()
    assert synced == ["01", "05", "05"], "a file that is full was brought to disk once"


def test_a_full_disk_keeps_nothing_and_the_next_append_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = written(tmp_path, [b"a"])
    wal.forget(1)

    def full(file: MappedFile, end: int, begin: int = 0) -> None:
        raise DiskFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "reserve", full)
        with pytest.raises(DiskFull):
            wal.append(2, b"lost")
        assert list(tmp_path.iterdir()) == []
    wal.append(3, b"kept")
    assert list(MetadataWal(tmp_path).read()) == [(3, b"kept")]
