"""The look-up table of a pull, and offsets by time."""

from __future__ import annotations

import ctypes
import mmap
import tracemalloc
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from support.stores.records import encode_record
from support.stores.small import (
    QUEUE_ENTRIES,
    bodies,
    dispatch_all,
    message,
    open_store,
    small_config,
)

from trioha.store.consume_queue import ENTRY
from trioha.store.interface import (
    DiskBlock,
    GetResult,
    GetStatus,
    MessageFilter,
    PropertyFilter,
    RecordFilter,
)
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.wire.record import decode_records


def fill(store: FileMessageStore, count: int, *, size: int = 50, queue_id: int = 0) -> None:
    for number in range(count):
        body = (b"%d:" % number).ljust(size, b"x")
        put = message(body, queue_id=queue_id, tags="AB"[number % 2])
        assert store.put_message(put, 1000 + 100 * number).status == 0


def get(store: FileMessageStore, offset: int, count: int = 32, queue_id: int = 0) -> GetResult:
    return store.get_message("T", queue_id, offset, count, None)


def outcome(result: GetResult) -> tuple[GetStatus, int, int, int, int]:
    return (
        result.status,
        result.next_begin_offset,
        result.min_offset,
        result.max_offset,
        result.message_count,
    )


def test_a_queue_that_never_was(config: StoreConfig) -> None:
    store = open_store(config)
    for offset in (0, 5):
        assert outcome(get(store, offset)) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, 0)
    assert not (config.consume_queue_path / "T").exists()
    assert store.offset_by_time("T", 0, 5) == 0
    assert store.store_time("T", 0, 0) == -1
    store.close()


def test_offsets_outside_of_the_queue(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 5)
    assert outcome(get(store, 5)) == (GetStatus.OFFSET_OVERFLOW_ONE, 5, 0, 5, 0)
    assert outcome(get(store, 6)) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5, 0)
    assert outcome(get(store, -1)) == (GetStatus.OFFSET_TOO_SMALL, 0, 0, 5, 0)
    assert outcome(get(store, 2)) == (GetStatus.FOUND, 5, 0, 5, 3)
    store.close()


def test_neighbours_in_the_log_are_one_buffer(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 3)
    fill(store, 1, queue_id=1)
    fill(store, 2)
    result = get(store, 0)
    assert [len(decode_records(buffer)) for buffer in result.buffers] == [3, 2]
    assert result.size == sum(len(buffer) for buffer in result.buffers)
    assert result.message_count == 5
    store.close()


def test_neighbours_in_two_segments_are_two_buffers(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, queue_file_bytes=20000))
    fill(store, 40, size=150)
    found = bodies(store)
    assert len(found) == 40
    assert store.max_phy_offset > config.segment_bytes
    store.close()


def test_raw_neighbours_without_a_blank_are_two_buffers(config: StoreConfig) -> None:
    # A foreign log may fill a segment to the last byte.
    store = open_store(config)
    fixed = len(encode_record(message(b""), 0, 0, 0))
    sizes = (config.segment_bytes - fixed, 10)
    for index, size in enumerate(sizes):
        end = store.max_phy_offset
        store.append_log(end, encode_record(message(bytes(size)), index, end, 1000))
    dispatch_all(store)
    assert [len(buffer) for buffer in get(store, 0).buffers] == [config.segment_bytes, fixed + 10]
    store.close()


def test_a_read_never_crosses_a_queue_file(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, QUEUE_ENTRIES + 3, size=10)
    assert get(store, 2).next_begin_offset == QUEUE_ENTRIES
    assert get(store, QUEUE_ENTRIES).next_begin_offset == QUEUE_ENTRIES + 3
    store.close()


def test_limits_of_one_pull(config: StoreConfig) -> None:
    config = attrs.evolve(config, queue_file_bytes=20000, memory_transfer_bytes_max=1000)
    store = open_store(config)
    fill(store, 60, size=150)
    size = get(store, 0, 1).size
    assert get(store, 0, 3).message_count == 3
    assert get(store, 0, 0).message_count == 1  # the first message always comes
    result = get(store, 0)
    assert result.message_count == 1000 // size
    assert result.next_begin_offset == result.message_count
    store.close()


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_records_that_sum_exactly_to_the_limit_all_come(config: StoreConfig, where: str) -> None:
    """A filter makes no difference; one byte less and the last record stays."""
    size = len(encode_record(message(bytes(150), tags="A"), 0, 0, 0))
    for limit, count in ((3 * size, 3), (3 * size - 1, 2)):
        changes: dict[str, Any] = {f"{where}_transfer_bytes_max": limit}
        if where == "disk":
            changes["memory_window_bytes"] = 0
        store = open_store(small_config(config.root / str(limit), **changes))
        fill(store, 5, size=150)
        for tag_filter in (None, lambda code: True):
            result = store.get_message("T", 0, 0, 32, tag_filter)
            assert (result.message_count, result.size) == (count, count * size)
            assert result.next_begin_offset == count
            assert sum(len(buffer) for buffer in result.buffers) == count * size
        store.close()


def test_at_most_32_messages_from_memory_and_8_from_disk(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, queue_file_bytes=20000, memory_window_bytes=2 * 4096))
    fill(store, 120, size=10)
    end = store.max_phy_offset
    assert get(store, 0, 64).message_count == 8
    assert get(store, 0, 64).suggest_pulling_from_slave
    near = store.offset_by_time("T", 0, 1000 + 100 * 80)
    assert get(store, near, 64).message_count == 32
    assert not get(store, near, 64).suggest_pulling_from_slave
    assert store.is_in_memory_window(end - 2 * 4096)
    assert not store.is_in_memory_window(end - 2 * 4096 - 1)
    store.close()


def test_a_big_message_comes_alone(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, memory_transfer_bytes_max=500))
    fill(store, 3, size=1000)
    assert get(store, 0).message_count == 1
    store.close()


def test_a_filter_advances_past_what_it_leaves_out(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 6)
    result = store.get_message("T", 0, 0, 32, lambda code: code == ord("B"))
    assert outcome(result) == (GetStatus.FOUND, 6, 0, 6, 3)
    result = store.get_message("T", 0, 0, 32, lambda code: False)
    assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, 6, 0, 6, 0)
    store.close()


def test_a_scan_is_bounded(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, queue_file_bytes=20 * 2000, segment_bytes=1 << 20))
    fill(store, 1000, size=1)
    result = store.get_message("T", 0, 0, 32, lambda code: False)
    assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, 800, 0, 1000, 0)
    result = store.get_message("T", 0, 0, 900, lambda code: False)
    assert result.next_begin_offset == 900
    store.close()


def of_property(name: bytes, cost: int = 1) -> RecordFilter:
    return PropertyFilter(lambda properties: name in properties, cost)


def test_a_filter_of_records_is_given_their_properties(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 6)
    seen: list[bytes] = []

    def see(properties: bytes) -> bool:
        seen.append(properties)
        return False

    result = store.get_message("T", 0, 0, 32, PropertyFilter(see))
    assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, 6, 0, 6, 0)
    records = decode_records(b"".join(get(store, 0).buffers))
    assert seen == [record.raw_properties for record in records]
    result = store.get_message("T", 0, 0, 32, of_property(b"TAGS\x01B"))
    assert outcome(result) == (GetStatus.FOUND, 6, 0, 6, 3)
    found = decode_records(b"".join(result.buffers))
    assert [record.queue_offset for record in found] == [1, 3, 5]
    everything = store.get_message("T", 0, 0, 32, of_property(b"TAGS"))
    assert b"".join(everything.buffers) == b"".join(get(store, 0).buffers)
    assert store.get_message("T", 0, 0, 2, of_property(b"TAGS")).next_begin_offset == 2
    store.close()


@pytest.mark.parametrize("size", [1, 5000])
def test_properties_are_found_behind_bodies_of_any_length(config: StoreConfig, size: int) -> None:
    """A filter gets a copy of a whole short record; of a long one, of its properties."""
    store = open_store(attrs.evolve(config, segment_bytes=1 << 20))
    fill(store, QUEUE_ENTRIES, size=size)
    found = store.get_message("T", 0, 0, 32, of_property(b"TAGS\x01B"))
    records = decode_records(b"".join(found.buffers))
    assert [record.queue_offset for record in records] == [*range(1, QUEUE_ENTRIES, 2)]
    store.close()


def test_a_length_below_zero_copies_nothing(config: StoreConfig) -> None:
    """A damaged queue: as a slice, the length would mean nearly all of the log's file."""
    store = open_store(attrs.evolve(config, segment_bytes=1 << 20, log_chunk_bytes=1 << 20))
    fill(store, 2)
    (path,) = (config.consume_queue_path / "T" / "0").iterdir()
    with path.open("r+b") as file:
        file.write(ENTRY.pack(0, -10, 0))
    tracemalloc.start()
    try:
        found = store.get_message("T", 0, 0, 32, of_property(b"TAGS"))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert found.message_count == 1
    store.close()


def test_a_costly_filter_of_records_looks_at_fewer(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, queue_file_bytes=20 * 2000, segment_bytes=1 << 20))
    fill(store, 1000, size=1)
    for cost, looked_at in ((20, 800), (1024, 64), (1 << 30, 1)):
        result = store.get_message("T", 0, 0, 32, of_property(b"none", cost))
        assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, looked_at, 0, 1000, 0)
    store.close()


def test_entries_whose_segment_has_just_gone(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, queue_file_bytes=20000))
    fill(store, 60, size=150)
    store._log.files.drop_first()
    low = store.min_phy_offset
    result = get(store, 0, 10)
    assert result.status is GetStatus.FOUND
    assert int.from_bytes(result.buffers[0][28:36], "big") == low
    store._log.files.drop_first()
    result = store.get_message("T", 0, 0, 32, lambda code: code == 0)
    assert result.status is GetStatus.NO_MATCHED_MESSAGE
    result = store.get_message("T", 0, 0, 10, of_property(b"TAGS"))
    assert int.from_bytes(result.buffers[0][28:36], "big") == store.min_phy_offset
    store.close()


@pytest.mark.parametrize(
    ("timestamp", "index"),
    [
        (0, 0),
        (1000, 0),
        (1149, 1),
        (1150, 1),  # as near to both: the earlier
        (1151, 2),
        (1200, 2),
        (1900, 9),
        (99999, 9),
    ],
)
def test_offsets_by_time(config: StoreConfig, timestamp: int, index: int) -> None:
    store = open_store(config)
    fill(store, 10)
    assert store.offset_by_time("T", 0, timestamp) == index
    assert store.store_time("T", 0, 3) == 1300
    store.close()


def test_store_time_never_runs_backwards(config: StoreConfig) -> None:
    store = open_store(config)
    store.put_message(message(), 5000)
    assert store.put_message(message(), 4000).store_timestamp == 5000
    store.close()
    store = open_store(config)
    assert store.put_message(message(), 3000).store_timestamp == 5000
    store.close()


# Messages that are on disk only.


class PageCache:
    """Pages of a store that are in memory; all others have to be read first."""

    def __init__(self, config: StoreConfig) -> None:
        self._warm: set[int] = set()
        self.questions = 0
        self.store = open_store(config, missing_bytes=self.missing_bytes)

    def missing_bytes(self, view: memoryview) -> int:
        self.questions += 1
        return len(self._pages(view) - self._warm) * mmap.PAGESIZE

    def missing_of(self, blocks: Iterable[DiskBlock]) -> int:
        return sum(self.missing_bytes(self._view(block)) for block in blocks)

    def bring(self, blocks: Iterable[DiskBlock]) -> None:
        for block in blocks:
            self._warm |= self._pages(self._view(block))

    def bring_all(self) -> None:
        files = [*self.store._log.files.files]
        for queue in self.store._queues.table.values():
            files += queue.files.files
        for file in files:
            self._warm |= self._pages(file.view) | self._pages(file.random_view)

    def drop_all(self) -> None:
        self._warm.clear()

    def _pages(self, view: memoryview) -> set[int]:
        begin = ctypes.addressof(ctypes.c_char.from_buffer(view))
        return set(range(begin // mmap.PAGESIZE, (begin + len(view) - 1) // mmap.PAGESIZE + 1))

    def _view(self, block: DiskBlock) -> memoryview:
        files = [*self.store._log.files.files]
        for queue in self.store._queues.table.values():
            files += queue.files.files
        (file,) = (file for file in files if file.path == block.path)
        view = file.random_view if file in self.store._log.files.files else file.view
        return view[block.begin : block.begin + block.size]


def cold_store(config: StoreConfig, **changes: Any) -> tuple[FileMessageStore, PageCache]:
    cache = PageCache(attrs.evolve(config, **{"recent_bytes": 0, **changes}))
    return cache.store, cache


FILTERS: dict[str, MessageFilter | None] = {
    "none": None,
    "half": lambda code: code == ord("A"),
    "nothing": lambda code: False,
    "records": of_property(b"TAGS\x01B"),
    "no records": of_property(b"none"),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("segment_bytes", [4096, 1 << 20])
def test_a_queue_on_disk_is_read_whole_and_nothing_before_it_is_in_memory(
    config: StoreConfig, name: str, segment_bytes: int
) -> None:
    store, cache = cold_store(config, segment_bytes=segment_bytes)
    for number in range(120):
        put = message(b"%d:" % number + b"x" * 700, queue_id=number % 3, tags="AB"[number % 2])
        assert store.put_message(put, 1000 + number).status == 0
    expected = [
        read_queue(store, cache, FILTERS[name], in_memory_only=in_memory_only)
        for in_memory_only in (False, True)
    ]
    assert expected[0][0] == expected[1][0]
    assert expected[0][1] == 0 < expected[1][1]
    store.close()


def read_queue(
    store: FileMessageStore,
    cache: PageCache,
    message_filter: MessageFilter | None,
    *,
    in_memory_only: bool,
) -> tuple[bytes, int]:
    """Return all that a consumer gets of queue 1, and how many times it waited for the disk."""
    offset, found, waits = 0, b"", 0
    while offset < store.max_offset_in_queue("T", 1):
        result = store.get_message("T", 1, offset, 8, message_filter, in_memory_only)
        if result.status is GetStatus.NOT_IN_MEMORY:
            waits += 1
            assert (result.next_begin_offset, result.buffers) == (offset, [])
            assert result.size == cache.missing_of(result.on_disk) > 0
            cache.bring(result.on_disk)
            continue
        if in_memory_only:
            assert not any(map(cache.missing_bytes, result.buffers))
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
        found += b"".join(result.buffers)
    return found, waits


def test_a_filter_looks_at_no_record_that_is_on_disk(config: StoreConfig) -> None:
    store, cache = cold_store(config)
    fill(store, 60, size=900)
    looked: list[bytes] = []

    def look(properties: bytes) -> bool:
        looked.append(properties)
        return False

    for _ in ("entries of the queue", "records"):
        waits = store.get_message("T", 0, 0, 32, PropertyFilter(look), True)
        assert waits.status is GetStatus.NOT_IN_MEMORY
        assert not looked
        cache.bring(waits.on_disk)
    found = store.get_message("T", 0, 0, 32, PropertyFilter(look), True)
    assert found.status is GetStatus.NO_MATCHED_MESSAGE
    assert len(looked) == found.next_begin_offset > 0
    store.close()


@pytest.mark.parametrize(("name", "waits"), [("none", 3), ("half", 3), ("nothing", 0)])
def test_what_a_consumer_asks_for_next_is_read_along(
    config: StoreConfig, name: str, waits: int
) -> None:
    """2.4 MB are read in three pieces of a megabyte, not one for each pull."""
    store, cache = cold_store(config, segment_bytes=16 << 20, queue_file_bytes=20 * 300)
    fill(store, 240, size=10_000)
    entries = store.get_message("T", 0, 0, 8, None, True)
    assert [block.size for block in entries.on_disk] == [240 * 20]
    cache.bring(entries.on_disk)
    offset = read = 0
    while offset < 240:
        result = store.get_message("T", 0, offset, 8, FILTERS[name], True)
        if result.status is GetStatus.NOT_IN_MEMORY:
            read += 1
            assert sum(block.size for block in result.on_disk) <= 1 << 20
            cache.bring(result.on_disk)
        offset = result.next_begin_offset
    assert read == waits
    store.close()


def test_records_that_lie_far_apart_are_read_alone(config: StoreConfig) -> None:
    store, cache = cold_store(config, segment_bytes=16 << 20, queue_file_bytes=20 * 300)
    for _ in range(4):
        fill(store, 1, size=100)
        fill(store, 30, size=10_000, queue_id=1)
    cache.bring(store.get_message("T", 0, 0, 1, None, True).on_disk)
    result = store.get_message("T", 0, 0, 1, None, True)
    assert len(result.on_disk) == 4
    store.close()


@pytest.mark.parametrize("name", ["none", "half"])
def test_messages_that_may_have_left_memory_are_called_old(config: StoreConfig, name: str) -> None:
    store, cache = cold_store(config, segment_bytes=16 << 20, recent_bytes=100_000)
    fill(store, 60, size=10_000)

    def is_old(offset: int, in_memory_only: bool) -> bool:
        while True:
            result = store.get_message("T", 0, offset, 1, FILTERS[name], in_memory_only)
            if result.status is GetStatus.FOUND:
                return result.is_old
            cache.bring(result.on_disk)

    assert [is_old(0, True), is_old(0, False), is_old(58, True)] == [True, False, False]
    store.close()


def test_blocks_of_old_records_are_named_once(config: StoreConfig) -> None:
    store, cache = cold_store(config, segment_bytes=16 << 20, recent_bytes=100_000)
    fill(store, 60, size=10_000)
    entries = [store.consume_queue_entry("T", 0, number) for number in (59, 1, 0, 20, 40)]
    places = [entry[:2] for entry in entries if entry is not None]
    blocks = store.blocks_on_disk(places)
    assert [block.begin >> 17 for block in blocks] == [0, 1, 3]
    cache.bring(blocks[:2])
    assert [block.begin >> 17 for block in store.blocks_on_disk(places)] == [3]
    store.close()


@pytest.mark.parametrize("name", ["none", "half"])
def test_memory_is_asked_now_and_then_and_what_it_lost_is_noticed(
    config: StoreConfig, name: str
) -> None:
    store, cache = cold_store(config, segment_bytes=16 << 20, queue_file_bytes=20 * 3000)
    fill(store, 2000, size=1000)
    cache.bring_all()
    pulls = offset = 0
    while offset < 2000:
        result = store.get_message("T", 0, offset, 8, FILTERS[name], True)
        assert result.status is not GetStatus.NOT_IN_MEMORY
        pulls, offset = pulls + 1, result.next_begin_offset
    assert cache.questions < max(6, pulls / 8)
    cache.drop_all()
    cold = [store.get_message("T", 0, 0, 8, FILTERS[name], True).status for _ in range(65)]
    assert GetStatus.NOT_IN_MEMORY in cold
    store.close()


def test_what_was_appended_last_counts_as_in_memory(config: StoreConfig) -> None:
    store, _ = cold_store(config, recent_bytes=1 << 20)
    fill(store, 10)
    assert store.get_message("T", 0, 0, 32, None, True).status is GetStatus.FOUND
    store.close()
    # Another process wrote the queue: the page cache may have dropped it since.
    store, cache = cold_store(config, recent_bytes=1 << 20)
    entries = store.get_message("T", 0, 0, 32, None, True)
    assert entries.status is GetStatus.NOT_IN_MEMORY
    cache.bring(entries.on_disk)
    assert store.get_message("T", 0, 0, 32, None, True).status is GetStatus.FOUND
    fill(store, 5)
    assert store.get_message("T", 0, 10, 32, None, True).status is GetStatus.FOUND
    store.close()


def test_entries_are_asked_about_once_the_log_has_grown(config: StoreConfig) -> None:
    store, _cache = cold_store(config, recent_bytes=20_000, segment_bytes=1 << 20)
    fill(store, 3)
    assert store.get_message("T", 0, 0, 32, None, True).status is GetStatus.FOUND
    asked = []
    for number in range(40):
        # Another queue's messages: this one does not grow.
        store.put_message(message(b"x" * 900, queue_id=1), 2000 + number)
        asked.append(store.get_message("T", 0, 0, 32, None, True).status)
    first = asked.index(GetStatus.NOT_IN_MEMORY)
    assert 20_000 // 1_200 <= first <= 30_000 // 900
    assert set(asked[first:]) == {GetStatus.NOT_IN_MEMORY}
    fill(store, 1)
    assert store.get_message("T", 0, 3, 32, None, True).status is GetStatus.FOUND
    store.close()


def test_nobody_waits_where_memory_is_not_watched(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, recent_bytes=0))
    fill(store, 10)
    assert store.get_message("T", 0, 0, 32, None, True).status is GetStatus.FOUND
    store.close()
