from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.stores.small import QUEUE_ENTRIES

from trioha.errors import DiskFull
from trioha.store.consume_queue import ENTRY, PADDING_SIZE, ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues, is_storable
from trioha.store.store_config import StoreConfig


@pytest.fixture
def queue(config: StoreConfig) -> ConsumeQueue:
    return ConsumeQueue(config, "T", 3)


def fill(queue: ConsumeQueue, count: int) -> None:
    for _ in range(count):
        queue.append(queue.next_index * 100, 100, queue.next_index % 3)


def reopened(config: StoreConfig, phy_offset: int | None = None) -> ConsumeQueue:
    queue = ConsumeQueue(config, "T", 3)
    queue.files.load()
    queue.recover(phy_offset)
    return queue


def test_entries_are_twenty_bytes_in_files_of_full_size(queue: ConsumeQueue) -> None:
    fill(queue, QUEUE_ENTRIES + 1)
    names = sorted(path.name for path in queue.directory.iterdir())
    assert names == ["0" * 20, f"{QUEUE_ENTRIES * 20:020d}"]
    data = (queue.directory / names[0]).read_bytes()
    assert data == b"".join(ENTRY.pack(i * 100, 100, i % 3) for i in range(QUEUE_ENTRIES))
    assert (queue.directory / names[1]).stat().st_size == QUEUE_ENTRIES * 20
    assert queue.directory.parts[-3:] == ("consumequeue", "T", "3")


def test_reading_never_crosses_a_file(queue: ConsumeQueue) -> None:
    fill(queue, QUEUE_ENTRIES + 3)
    entries = queue.entries(2, 800)
    assert entries is not None
    assert len(entries) == (QUEUE_ENTRIES - 2) * 20
    entries = queue.entries(QUEUE_ENTRIES, 800)
    assert entries is not None
    assert len(entries) == 3 * 20
    assert queue.entries(QUEUE_ENTRIES + 3, 800) is None
    assert queue.entry(1) == (100, 100, 1)
    assert queue.entry(-1) is None
    assert queue.entry(QUEUE_ENTRIES + 3) is None


def test_a_queue_that_begins_late_is_padded(config: StoreConfig, queue: ConsumeQueue) -> None:
    index = 3 * QUEUE_ENTRIES + 5
    queue.start_at(index)
    queue.append(9000, 100, 0)
    (path,) = queue.directory.iterdir()
    assert path.name == f"{3 * QUEUE_ENTRIES * 20:020d}"
    assert path.read_bytes()[: 5 * 20] == ENTRY.pack(0, PADDING_SIZE, 0) * 5
    assert (queue.min_index, queue.next_index) == (index, index + 1)
    assert queue.entry(index - 1) is None
    again = reopened(config)
    again.correct_min(0)
    assert (again.min_index, again.next_index) == (index, index + 1)


@pytest.mark.parametrize("count", [0, 1, QUEUE_ENTRIES - 1, QUEUE_ENTRIES, QUEUE_ENTRIES + 1, 30])
def test_the_end_is_found_again(config: StoreConfig, queue: ConsumeQueue, count: int) -> None:
    fill(queue, count)
    assert reopened(config).next_index == count
    for limit in range(0, count * 100 + 1, 50):
        again = reopened(config, limit)
        assert again.next_index == -(-limit // 100)
        assert again.max_phy_offset == (again.next_index * 100 if again.next_index else -1)


def test_truncated_entries_are_gone_from_the_disk(config: StoreConfig, queue: ConsumeQueue) -> None:
    fill(queue, 30)
    queue.truncate_phy(1050)
    assert queue.next_index == 11
    assert reopened(config).next_index == 11
    queue.append(5000, 7, 1)
    assert queue.entry(11) == (5000, 7, 1)
    assert len(list(queue.directory.iterdir())) == 2


def test_the_minimum_follows_the_log(config: StoreConfig, queue: ConsumeQueue) -> None:
    fill(queue, 30)
    queue.correct_min(1850)
    assert queue.min_index == 19
    assert len(list(queue.directory.iterdir())) == 2
    again = reopened(config)
    again.correct_min(1850)
    assert (again.min_index, again.next_index) == (19, 30)


def test_an_expired_queue_remembers_its_next_index(
    config: StoreConfig, queue: ConsumeQueue
) -> None:
    fill(queue, 2 * QUEUE_ENTRIES)
    queue.correct_min(1 << 40)
    assert queue.min_index == queue.next_index == 2 * QUEUE_ENTRIES
    assert reopened(config).next_index == 2 * QUEUE_ENTRIES


def test_a_full_disk_takes_no_entry(queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(queue, QUEUE_ENTRIES)

    def fail(fd: int, at: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    real = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", fail)
    for _ in range(2):
        with pytest.raises(DiskFull):
            fill(queue, 1)
    assert queue.next_index == QUEUE_ENTRIES
    monkeypatch.setattr(os, "posix_fallocate", real)
    fill(queue, 2)
    assert queue.next_index == QUEUE_ENTRIES + 2


def test_room_is_made_across_files(queue: ConsumeQueue) -> None:
    fill(queue, QUEUE_ENTRIES - 1)
    assert not queue.has_room(2)
    queue.make_room(3 * QUEUE_ENTRIES)
    fill(queue, 3 * QUEUE_ENTRIES)
    assert queue.next_index == 4 * QUEUE_ENTRIES - 1


def test_flushing_only_touches_files_with_new_entries(
    queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue, QUEUE_ENTRIES + 1)
    queue.flush()
    synced: list[str] = []
    real = os.fdatasync

    def spy(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", spy)
    queue.flush()
    assert synced == []
    fill(queue, 1)
    queue.flush()
    assert [Path(name).name for name in synced] == [f"{QUEUE_ENTRIES * 20:020d}"]


def test_a_deleted_topic_begins_anew(config: StoreConfig) -> None:
    queues = ConsumeQueues(config)
    queues.find_or_make("T", 0).append(0, 100, 0)
    queues.find_or_make("T", 1).append(100, 100, 0)
    queues.find_or_make("U", 0).append(200, 100, 0)
    queues.flush()
    queues.delete_topic("T")
    assert queues.keys() == [("U", 0)]
    assert not (config.consume_queue_path / "T").exists()
    assert queues.find_or_make("T", 0).next_index == 0


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("", 0), (".", 0), ("..", 0), ("a/b", 0), ("a\0", 0), ("T", -1), ("T", 1 << 31)],
)
def test_no_name_leads_out_of_the_directory(topic: str, queue_id: int) -> None:
    assert not is_storable(topic, queue_id)


def test_ordinary_names_are_storable() -> None:
    assert is_storable("%RETRY%group-1_x", 0)
