from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.stores.small import (
    SEGMENT_BYTES,
    crashing,
    dispatch_all,
    message,
    open_store,
    records_of,
    small_config,
)

from trioha.errors import DiskFull, StoreError
from trioha.store import cuts
from trioha.store.cuts import list_cuts, save_cut, set_log_aside
from trioha.store.inspect import DamagedStretch, iter_records
from trioha.store.message_store import FileMessageStore
from trioha.wire.record import Record


@pytest.fixture
def store(tmp_path: Path) -> FileMessageStore:
    """Three segments of two topics."""
    store = open_store(small_config(tmp_path))
    for number in range(40):
        put = message(bytes([number]) * 150, topic="AB"[number % 2], queue_id=number % 3)
        assert store.put_message(put, 1000).size
    assert store.max_phy_offset > 2 * SEGMENT_BYTES
    return store


def save(store: FileMessageStore, begin: int, end: int | None = None, wall_ms: int = 7) -> cuts.Cut:
    return save_cut(
        store.config.root,
        store.read_log,
        begin,
        store.max_phy_offset if end is None else end,
        segment_bytes=SEGMENT_BYTES,
        wall_ms=wall_ms,
        about={"reason": "a test"},
    )


def bytes_of(store: FileMessageStore, begin: int, end: int) -> bytes:
    data = b""
    while begin < end:
        piece = bytes(store.read_log(begin, end - begin))
        data, begin = data + piece, begin + len(piece)
    return data


def test_the_bytes_are_kept_as_they_lay_and_read_like_any_log(store: FileMessageStore) -> None:
    with crashing(store):
        records = records_of(store.config)
        begin, end = records[7].phy_offset, store.max_phy_offset
        cut = save(store, begin)
        assert cut.path.name == f"{begin}-{end}-7"
        kept = b"".join(path.read_bytes() for path in sorted(cut.commitlog_path.iterdir()))
        assert kept == bytes_of(store, begin, end)
        assert list(iter_records(cut.commitlog_path)) == records[7:]


def test_the_note_says_what_was_cut(store: FileMessageStore) -> None:
    with crashing(store):
        records = records_of(store.config)
        note = save(store, records[34].phy_offset).note
        assert (note["records"], note["damaged_bytes"], note["reason"]) == (6, 0, "a test")
        assert sum(queue["count"] for queue in note["queues"]) == 6
        assert note["queues"][0] == {
            "topic": "A",
            "queue_id": 0,
            "count": 1,
            "first_queue_offset": 6,
            "last_queue_offset": 6,
        }


def test_a_record_that_came_half_is_kept_and_told_of(store: FileMessageStore) -> None:
    with crashing(store):
        records = records_of(store.config)
        begin = records[-2].phy_offset
        cut = save(store, begin, store.max_phy_offset - 10)
        items = list(iter_records(cut.commitlog_path))
        assert isinstance(items[0], Record)
        assert isinstance(items[1], DamagedStretch)
        assert (cut.note["records"], cut.note["damaged_bytes"] > 100) == (1, True)


def test_the_same_bytes_are_kept_once(store: FileMessageStore) -> None:
    with crashing(store):
        begin = records_of(store.config)[7].phy_offset
        first = save(store, begin)
        assert save(store, begin, wall_ms=8) == first
        store.put_message(message(), 1000)
        later = save(store, begin, wall_ms=9)
        assert list_cuts(store.config.root) == [first, later]


def test_what_a_crash_left_is_no_cut_and_goes_with_the_next(
    store: FileMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crashing(store):
        begin = records_of(store.config)[7].phy_offset

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(cuts, "_finish", die)
            save(store, begin)
        root = store.config.root
        assert list_cuts(root) == []
        assert len(list((root / "cut").iterdir())) == 1
        cut = save(store, begin, wall_ms=8)
        assert [path.name for path in (root / "cut").iterdir()] == [cut.path.name]


def test_a_full_disk_is_an_error_and_leaves_no_cut(
    store: FileMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with crashing(store):
        begin = records_of(store.config)[7].phy_offset
        with monkeypatch.context() as patch, pytest.raises(DiskFull, match="cannot keep what is"):
            patch.setattr(os, "fsync", no_room)
            save(store, begin)
        assert list_cuts(store.config.root) == []


def test_a_whole_log_is_set_aside_and_the_store_starts_empty(store: FileMessageStore) -> None:
    with crashing(store):
        config, end = store.config, store.max_phy_offset
        dispatch_all(store)
        records = records_of(config)
        cut = set_log_aside(config.root, config.commitlog_path, 0, end, 7, {})
        store.empty_log("a test")
        assert (store.min_phy_offset, store.max_phy_offset, store.queues()) == (0, 0, [])
        assert list(iter_records(cut.commitlog_path)) == records
        assert cut.note["records"] == 40
    with crashing(open_store(config)) as again:
        assert (again.max_phy_offset, again.queues()) == (0, [])
        again.append_log(SEGMENT_BYTES, b"any segment's start")
        assert list(iter_records(cut.commitlog_path)) == records


def test_setting_aside_again_after_a_crash_makes_no_second_folder(store: FileMessageStore) -> None:
    with crashing(store):
        config, end = store.config, store.max_phy_offset
        first = set_log_aside(config.root, config.commitlog_path, 0, end, 7, {})
        assert set_log_aside(config.root, config.commitlog_path, 0, end, 8, {}) == first


def _no_json(path: Path) -> None:
    path.write_text("half a no")


def _no_map(path: Path) -> None:
    path.write_text("[]")


@pytest.mark.parametrize("spoil", [_no_json, _no_map])
def test_a_note_that_cannot_be_read_is_named(
    store: FileMessageStore, spoil: Callable[[Path], None]
) -> None:
    with crashing(store):
        cut = save(store, records_of(store.config)[7].phy_offset)
        spoil(cut.path / "note.json")
        with pytest.raises(StoreError, match=r"note\.json"):
            _ = cut.note


def test_folders_of_others_are_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "cut" / "notes").mkdir(parents=True)
    (tmp_path / "cut" / "1-2-3").mkdir()
    assert list_cuts(tmp_path) == []
