from __future__ import annotations

import os
from pathlib import Path

import pytest

from trioha.errors import StoreError
from trioha.store import config_files


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert config_files.load(tmp_path / "config" / "topics.json") is None


def test_saved_text_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    config_files.save(path, b'{"a":1}')
    assert config_files.load(path) == b'{"a":1}'
    assert sorted(os.listdir(path.parent)) == ["topics.json"]


def test_previous_text_becomes_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for text in (b"{}", b'{"a":1}', b'{"a":2}'):
        config_files.save(path, text)
    assert (tmp_path / "topics.json.bak").read_bytes() == b'{"a":1}'
    assert sorted(os.listdir(tmp_path)) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"a":', b"\xff\xfe"])
def test_backup_is_loaded_when_the_file_is_damaged(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "topics.json"
    config_files.save(path, b'{"a":1}')
    config_files.save(path, b'{"a":2}')
    path.write_bytes(damage)
    assert config_files.load(path) == b'{"a":1}'


def test_crash_between_the_renames_leaves_a_whole_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    config_files.save(path, b'{"a":1}')
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if target == path:
            raise OSError("power is gone")
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="power is gone"):
        config_files.save(path, b'{"a":2}')
    assert not path.exists()
    assert config_files.load(path) == b'{"a":1}'


def test_text_is_on_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(fd: int) -> None:
        calls.append("fsync")
        fsync(fd)

    def record_replace(source: Path, target: Path) -> None:
        replace(source, target)
        calls.append("replace")

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    config_files.save(tmp_path / "topics.json", b"{}")
    assert calls == ["fsync", "replace", "fsync"]


def test_two_damaged_copies_are_an_error_that_names_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"{")
    (tmp_path / "topics.json.bak").write_bytes(b"[")
    with pytest.raises(StoreError, match="restore it from a slave"):
        config_files.load(path)


def test_files_a_java_broker_wrote_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(b'{\n\t"offsetTable":{"T@g":{0:5,1:7}}\n}')
    assert config_files.load(path) is not None
