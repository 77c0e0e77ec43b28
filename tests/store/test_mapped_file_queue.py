from __future__ import annotations

import os
from pathlib import Path

import pytest

from trioha.store.mapped_file_queue import MappedFileQueue

FILE_BYTES = 4096


@pytest.fixture
def files(tmp_path: Path) -> MappedFileQueue:
    return MappedFileQueue(tmp_path / "files", FILE_BYTES, FILE_BYTES, cure="", size_key="size")


def has_new_names(files: MappedFileQueue) -> bool:
    return files.names_changed


def test_names_are_durable_once_the_directory_was_synced(files: MappedFileQueue) -> None:
    assert not has_new_names(files)
    for change in (
        lambda: files.create(0),
        lambda: files.create(FILE_BYTES),
        files.drop_first,
        lambda: files.drop_from(0),
    ):
        change()
        assert has_new_names(files)
        files.sync_names()
        assert not has_new_names(files)


def test_a_file_made_while_a_thread_syncs_the_directory_is_still_to_be_synced(
    files: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.create(0)

    def slow(fd: int) -> None:
        assert has_new_names(files), "they are durable only when this has returned"
        files.create(FILE_BYTES)

    monkeypatch.setattr(os, "fsync", slow)
    files.sync_names()
    assert has_new_names(files)
