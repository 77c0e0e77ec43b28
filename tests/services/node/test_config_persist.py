from __future__ import annotations

from pathlib import Path

import pytest
import trio

from trioha.services.node.config_persist import ConfigPersist, TableFile, position_of
from trioha.store import config_files
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire import fastjson


class Table:
    """A table whose text is a number."""

    def __init__(self) -> None:
        self.dirty = False
        self.value = 0

    def set(self, value: int) -> None:
        self.value = value
        self.dirty = True

    def encode(self) -> bytes:
        return b'{"value":%d}' % self.value

    def load(self, data: bytes) -> None:
        self.value = fastjson.loads(data)["value"]  # type: ignore[index]


class Changes:
    """The log of changes: how far it has come, and what it was told to forget."""

    def __init__(self) -> None:
        self.position = 0
        self.forgotten: list[int] = []

    def persist(self, *files: TableFile, events: RecordedEvents | None = None) -> ConfigPersist:
        return ConfigPersist(
            files, events or RecordedEvents(), lambda: self.position, self.forgotten.append
        )


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
        with trio.fail_after(60):
            await self._saved.wait()
        self._saved = trio.Event()


async def test_changes_that_come_together_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path, saves = Table(), tmp_path / "config" / "t.json", Saves(monkeypatch)
    persist = Changes().persist(TableFile(path, table, 0.05))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(persist.run)
        for value in range(1, 4):
            table.set(value)
            persist.changed.check()
        await saves.wait()
        table.set(4)
        persist.changed.check()
        await saves.wait()
        nursery.cancel_scope.cancel()
    assert [text[:10] for text in saves.texts] == [b'{"value":3', b'{"value":4']
    assert config_files.load(path) == saves.texts[1]


async def test_a_write_that_fails_is_told_and_tried_again_with_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path, events = Table(), tmp_path / "t.json", RecordedEvents()
    persist = Changes().persist(TableFile(path, table, 0.0), events=events)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    table.set(1)
    with monkeypatch.context() as patch:
        patch.setattr(config_files, "save", full)
        await persist.save_all()
    assert table.dirty
    assert events.names() == ["task_failed"]
    await persist.save_all()
    assert config_files.load(path) == b'{"value":1,"metadataPosition":0}'
    assert not table.dirty


async def test_a_file_says_up_to_where_it_holds_everything(tmp_path: Path) -> None:
    table, changes, path = Table(), Changes(), tmp_path / "t.json"
    table.set(1)
    changes.position = 77
    await changes.persist(TableFile(path, table, 0.0)).save_all()
    saved = config_files.load(path)
    assert saved is not None
    assert position_of(saved) == 77
    table.load(saved)
    assert table.value == 1
    assert position_of(b'{"value":1}') is None, "another broker wrote it"


async def test_changes_are_forgotten_up_to_the_table_that_was_saved_least(tmp_path: Path) -> None:
    one, other, changes = Table(), Table(), Changes()
    files = (TableFile(tmp_path / "1.json", one, 0.0), TableFile(tmp_path / "2.json", other, 9.0))
    persist = changes.persist(*files)
    other.set(1)
    one.set(1)
    changes.position = 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(persist.run)
        persist.changed.check()
        with trio.fail_after(60):
            while not changes.forgotten:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert changes.forgotten == [0], "the other one is not saved yet"
    await persist.save_all()
    changes.position = 8
    one.set(2)
    await persist.save_all()
    assert changes.forgotten == [0, 5, 8], "a table without changes holds everything"


async def test_changes_are_kept_while_their_table_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, changes = Table(), Changes()
    persist = changes.persist(TableFile(tmp_path / "t.json", table, 0.0))
    table.set(1)
    changes.position = 5

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(config_files, "save", full)
        await persist.save_all()
    assert changes.forgotten == [0]
