from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.events import RecordedEvents

from trioha.services.config_persist import ConfigPersist, TableFile
from trioha.store import config_files


class Table:
    """A table whose text is a number."""

    def __init__(self) -> None:
        self.dirty = False
        self.value = 0

    def set(self, value: int) -> None:
        self.value = value
        self.dirty = True

    def encode(self) -> bytes:
        return b"%d" % self.value

    def load(self, data: bytes) -> None:
        self.value = int(data)


class Saves:
    """Lets a test wait for the next write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[bytes] = []
        self._saved = trio.Event()
        self._save = config_files.save
        monkeypatch.setattr(config_files, "save", self.save)

    def save(self, path: Path, data: bytes) -> None:
        self._save(path, data)
        trio.from_thread.run_sync(self._tell, data)

    def _tell(self, data: bytes) -> None:
        self.texts.append(data)
        self._saved.set()

    async def wait(self) -> None:
        with trio.fail_after(10):
            await self._saved.wait()
        self._saved = trio.Event()


async def test_changes_that_come_together_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path, saves = Table(), tmp_path / "config" / "t.json", Saves(monkeypatch)
    persist = ConfigPersist([TableFile(path, table, 0.05)], RecordedEvents())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(persist.run)
        for value in range(1, 4):
            table.set(value)
            persist.check()
        await saves.wait()
        table.set(4)
        persist.check()
        await saves.wait()
        nursery.cancel_scope.cancel()
    assert saves.texts == [b"3", b"4"]
    assert config_files.load(path) == b"4"


async def test_a_write_that_fails_is_told_and_tried_again_with_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path, events = Table(), tmp_path / "t.json", RecordedEvents()
    persist = ConfigPersist([TableFile(path, table, 0.0)], events)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    table.set(1)
    with monkeypatch.context() as patch:
        patch.setattr(config_files, "save", full)
        await persist.save_all()
    assert table.dirty
    assert events.names() == ["task_failed"]
    await persist.save_all()
    assert config_files.load(path) == b"1"
    assert not table.dirty
