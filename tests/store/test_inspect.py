from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest
from support.stores.small import (
    QUEUE_ENTRIES,
    SEGMENT_BYTES,
    crash,
    dispatch_all,
    message,
    open_store,
)

from trioha.errors import StoreError
from trioha.store.consume_queue import ENTRY
from trioha.store.inspect import DamagedStretch, diff_logs, iter_records, verify_store
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.wire.record import Record


def fill(store: FileMessageStore, count: int, *, size: int = 100) -> list[int]:
    """Offsets of the records, and the end."""
    offsets = []
    for number in range(count):
        put = message(b"%d:" % number + bytes(size), queue_id=number % 3, tags="TagA")
        offsets.append(store.put_message(put, 1000 + number).phy_offset)
    return [*offsets, store.max_phy_offset]


@pytest.fixture
def offsets(config: StoreConfig) -> list[int]:
    store = open_store(config)
    offsets = fill(store, 50)
    store.close()
    return offsets


def places(config: StoreConfig, begin: int = 0, end: int | None = None) -> list[int]:
    found = []
    for item in iter_records(config.commitlog_path, begin, end):
        assert isinstance(item, Record)
        found.append(item.phy_offset)
    return found


def overwrite(config: StoreConfig, offset: int, data: bytes) -> None:
    base = offset - offset % SEGMENT_BYTES
    with open(config.commitlog_path / f"{base:020d}", "r+b") as file:
        file.seek(offset - base)
        file.write(data)


def test_every_record_is_read(config: StoreConfig, offsets: list[int]) -> None:
    assert places(config) == offsets[:-1]
    assert places(config, offsets[7], offsets[30]) == offsets[7:30]
    assert places(config, offsets[7] + 1, offsets[30] + 1) == offsets[8:31]


def test_progress_is_told(config: StoreConfig, offsets: list[int]) -> None:
    told: list[tuple[int, int]] = []
    list(iter_records(config.commitlog_path, progress=lambda *args: told.append(args)))
    total = SEGMENT_BYTES * len(list(config.commitlog_path.iterdir()))
    assert told[-1] == (total, total)


@pytest.mark.parametrize("at", [0, 4, 30, 90, 150])
def test_reading_goes_on_behind_damage(config: StoreConfig, offsets: list[int], at: int) -> None:
    overwrite(config, offsets[20] + at, b"\xff\xee\xdd")
    items = list(iter_records(config.commitlog_path))
    damage = [item for item in items if isinstance(item, DamagedStretch)]
    assert [(item.begin_offset, item.end_offset) for item in damage] == [(offsets[20], offsets[21])]
    assert damage[0].reason
    rest = [item.phy_offset for item in items if isinstance(item, Record)]
    assert rest == [*offsets[:20], *offsets[21:-1]]


def test_a_zeroed_stretch_is_not_the_end(config: StoreConfig, offsets: list[int]) -> None:
    overwrite(config, offsets[10], bytes(offsets[15] - offsets[10]))
    items = list(iter_records(config.commitlog_path))
    damage = [item for item in items if isinstance(item, DamagedStretch)]
    assert [(item.begin_offset, item.end_offset) for item in damage] == [(offsets[10], offsets[15])]
    assert len(items) == 46


def test_a_torn_tail_is_damage_to_the_end(config: StoreConfig, offsets: list[int]) -> None:
    overwrite(config, offsets[49] + 100, bytes(offsets[50] - offsets[49] - 100))
    items = list(iter_records(config.commitlog_path))
    assert isinstance(items[-1], DamagedStretch)
    assert items[-1].begin_offset == offsets[49]
    assert len(items) == 50


def test_a_missing_segment_is_damage(config: StoreConfig, offsets: list[int]) -> None:
    (config.commitlog_path / f"{SEGMENT_BYTES:020d}").unlink()
    damage = [
        item for item in iter_records(config.commitlog_path) if isinstance(item, DamagedStretch)
    ]
    assert [(item.begin_offset, item.end_offset, item.reason) for item in damage] == [
        (SEGMENT_BYTES, 2 * SEGMENT_BYTES, "missing")
    ]


def test_a_segment_that_ends_early_is_damage(config: StoreConfig, offsets: list[int]) -> None:
    last = max(offset for offset in offsets if offset < SEGMENT_BYTES)
    overwrite(config, last, bytes(SEGMENT_BYTES - last))
    (item,) = [
        item for item in iter_records(config.commitlog_path) if isinstance(item, DamagedStretch)
    ]
    assert (item.begin_offset, item.end_offset) == (last, SEGMENT_BYTES)
    assert item.reason == "segment ends early"


def test_a_store_in_use_can_be_read(config: StoreConfig) -> None:
    store = open_store(config)
    offsets = fill(store, 30)
    assert places(config) == offsets[:-1]
    assert verify_store(config.root).sound
    store.close()


def test_a_sound_store_is_sound(config: StoreConfig, offsets: list[int]) -> None:
    report = verify_store(config.root)
    assert report.sound
    assert (report.records, report.queues) == (50, 3)
    assert (report.first_offset, report.end_offset) == (0, offsets[-1])


def test_room_that_was_kept_behind_the_end_is_no_damage(
    config: StoreConfig, offsets: list[int], tmp_path: Path
) -> None:
    shutil.copytree(config.root, tmp_path / "copy")
    store = open_store(config)
    store.reserve_ahead(3 * SEGMENT_BYTES)
    store.close()
    report = verify_store(config.root)
    assert report.sound, report
    assert report.end_offset == offsets[-1]
    diff = diff_logs(config.commitlog_path, tmp_path / "copy" / "commitlog")
    assert diff.equal
    assert diff.end_a == offsets[-1]
    # Zeros before records are damage all the same.
    overwrite(config, offsets[-1] - offsets[-1] % SEGMENT_BYTES, bytes(20))
    assert not verify_store(config.root).sound


def test_nothing_is_written_by_looking(config: StoreConfig, offsets: list[int]) -> None:
    for path in config.root.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert verify_store(config.root).sound
    for path in config.root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_wrong_missing_and_surplus_entries_are_told(
    config: StoreConfig, offsets: list[int]
) -> None:
    def change(queue_id: int, index: int, entry: tuple[int, int, int]) -> None:
        name = f"{index // QUEUE_ENTRIES * QUEUE_ENTRIES * 20:020d}"
        path = config.consume_queue_path / "T" / str(queue_id) / name
        data = bytearray(path.read_bytes())
        ENTRY.pack_into(data, index % QUEUE_ENTRIES * 20, *entry)
        path.write_bytes(data)

    # 17, 17 and 16 entries.
    change(0, 2, (offsets[6], 1, 2598919))
    change(1, 15, (0, 0, 0))
    change(1, 17, (offsets[2], 203, 2598919))
    report = verify_store(config.root)
    assert not report.sound
    assert report.findings == len(report.queue_errors) == 3
    assert f"0: entry 2 is ({offsets[6]}, 1, 2598919), not" in report.queue_errors[0]
    assert "1: entry 15 is missing" in report.queue_errors[1]
    assert "1: entry 17 has no record" in report.queue_errors[2]


def test_foreign_files_are_told(config: StoreConfig, offsets: list[int]) -> None:
    (config.commitlog_path / "notes.txt").write_text("mine")
    report = verify_store(config.root)
    assert [Path(name).name for name in report.foreign_files] == ["notes.txt"]
    assert not report.sound


def test_expired_segments_and_deleted_topics_are_no_damage(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 80)
    store.put_message(message(topic="Gone"), 2000)
    dispatch_all(store)
    store.delete_topic("Gone")
    store.flush_queues()
    crash(store)
    (config.commitlog_path / ("0" * 20)).unlink()
    open_store(config).close()
    report = verify_store(config.root)
    assert report.sound, report.queue_errors
    assert report.first_offset == SEGMENT_BYTES


def test_no_directory_is_an_error(config: StoreConfig) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        verify_store(config.root / "nowhere")


# Comparing.


@pytest.fixture
def copy(config: StoreConfig, offsets: list[int]) -> StoreConfig:
    copy = attrs.evolve(config, commitlog_path=config.root / "copy")
    shutil.copytree(config.commitlog_path, copy.commitlog_path)
    return copy


def test_equal_logs_are_equal(config: StoreConfig, copy: StoreConfig, offsets: list[int]) -> None:
    report = diff_logs(config.commitlog_path, copy.commitlog_path)
    assert report.equal
    assert (report.begin_a, report.end_a) == (0, offsets[-1])


def test_the_first_difference_is_told(
    config: StoreConfig, copy: StoreConfig, offsets: list[int]
) -> None:
    for at in (offsets[40] + 95, offsets[33] + 99):
        overwrite(copy, at, b"!")
    report = diff_logs(config.commitlog_path, copy.commitlog_path)
    assert not report.equal
    assert report.first_difference == offsets[33] + 99


def test_a_log_that_lags_differs_in_its_end_only(
    config: StoreConfig, copy: StoreConfig, offsets: list[int]
) -> None:
    overwrite(copy, offsets[48], bytes(offsets[50] - offsets[48]))
    report = diff_logs(config.commitlog_path, copy.commitlog_path)
    assert not report.equal
    assert report.first_difference is None
    assert (report.end_a, report.end_b) == (offsets[50], offsets[48])


def test_a_log_whose_first_segments_have_expired_is_still_equal(
    config: StoreConfig, copy: StoreConfig
) -> None:
    (copy.commitlog_path / ("0" * 20)).unlink()
    report = diff_logs(config.commitlog_path, copy.commitlog_path)
    assert report.equal
    assert report.begin_b == SEGMENT_BYTES
