from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stores.small import crash, message, open_store, small_config

from trioha.store.consume_queue import ConsumeQueue
from trioha.store.message_store import FileMessageStore
from trioha.wire.java_hash import string_hash

RED = string_hash("red")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileMessageStore]:
    store = open_store(small_config(tmp_path))
    try:
        yield store
    finally:
        crash(store)


def put(store: FileMessageStore, count: int = 1, *, topic: str = "T", tags: str = "") -> int:
    """Put messages; return the offset of the last."""
    return [store.put_message(message(topic=topic, tags=tags), 1000) for _ in range(count)][
        -1
    ].phy_offset


def test_the_newest_tagged_entry_is_found_across_files(store: FileMessageStore) -> None:
    queues = store.raft_queues()
    assert queues.last_tagged("T", 0, RED, 1 << 60) == -1
    put(store, 3)
    put(store, tags="red")  # 3
    put(store, 30)
    assert queues.last_tagged("T", 0, RED, 1 << 60) == 3
    put(store, tags="red")  # 34
    put(store)
    assert queues.last_tagged("T", 0, RED, 1 << 60) == 34
    assert queues.last_tagged("T", 0, RED, 35) == 34
    assert queues.last_tagged("T", 0, RED, 34) == 3
    assert queues.last_tagged("T", 0, RED, 3) == -1
    assert queues.last_tagged("T", 1, RED, 3) == -1


def test_bytes_that_lie_across_two_fields_are_no_tag(tmp_path: Path) -> None:
    config = small_config(tmp_path, queue_file_bytes=20 * 64)
    queue = ConsumeQueue(config, "T", 0)
    code = 0x0000000500000006
    queue.append(0, 100, code)
    for _ in range(20):
        # Size 5 and the upper half of the code 6 look like it, 8 bytes into the entry.
        queue.append(1000, 5, 6 << 32)
    assert queue.last_tagged(code, 21) == 0


def test_entries_among_a_hundred_thousand_are_found_at_once(tmp_path: Path) -> None:
    config = small_config(tmp_path, queue_file_bytes=20 * 300_000, queue_chunk_bytes=1 << 20)
    queue = ConsumeQueue(config, "T", 0)
    queue.append(0, 100, RED)
    for index in range(1, 100_000):
        queue.append(index * 100, 100, 0)
    assert queue.last_tagged(RED, 100_000) == 0


def test_what_lies_before_a_deletion_is_forgotten_for_good(
    tmp_path: Path, store: FileMessageStore
) -> None:
    put(store, 20)
    place = put(store, 1, topic="Deletion")
    put(store, 3)
    store.raft_queues().forget_before("T", place)
    assert store.min_offset_in_queue("T", 0) == 20
    assert store.max_offset_in_queue("T", 0) == 23
    assert store.consume_queue_entry("T", 0, 19) is None
    store.flush_queues()
    crash(store)
    again = open_store(small_config(tmp_path))
    store._lock = again._lock
    assert again.min_offset_in_queue("T", 0) == 20
    assert again.max_offset_in_queue("T", 0) == 23
    again.put_message(message(), 1000)
    assert again.max_offset_in_queue("T", 0) == 24


def test_a_queue_with_nothing_behind_a_deletion_begins_at_0(
    tmp_path: Path, store: FileMessageStore
) -> None:
    put(store, 20)
    store.put_message(message(queue_id=1), 1000)
    store.raft_queues().forget_before("T", store.max_phy_offset)
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert store.put_message(message(), 1000).queue_offset == 0


def test_a_deletion_applied_late_spares_what_came_behind_it(store: FileMessageStore) -> None:
    place = put(store, topic="Deletion")
    put(store, 3)
    for _ in range(2):
        store.raft_queues().forget_before("T", place)
        assert store.min_offset_in_queue("T", 0) == 0
        assert store.max_offset_in_queue("T", 0) == 3


def test_queues_become_those_of_a_snapshot(store: FileMessageStore) -> None:
    queues = store.raft_queues()
    put(store, 3)
    put(store, 3, topic="Gone")
    put(store, 3, topic="Mixed")
    place = store.max_phy_offset
    put(store, 1, topic="Mixed")
    put(store, 1, topic="New")
    queues.settle({"T": {0: 3, 7: 500}, "Mixed": {0: 4}}, {"Gone": place, "Mixed": place})
    assert queues.ends({}) == {"T": {0: 3, 7: 500}, "New": {0: 1}, "Mixed": {0: 4}}
    assert queues.bounds("Mixed", 0) == (3, 4)
    assert store.min_offset_in_queue("T", 7) == store.max_offset_in_queue("T", 7) == 500
    assert store.put_message(message(queue_id=7), 1000).queue_offset == 500


def test_an_empty_queue_that_a_snapshot_does_not_know_goes(store: FileMessageStore) -> None:
    queues = store.raft_queues()
    queues.settle({"Expired": {0: 500}}, {})
    queues.settle({}, {})
    assert queues.ends({}) == {}


def test_a_queue_that_is_further_than_its_snapshot_stays(store: FileMessageStore) -> None:
    put(store, 3)
    store.raft_queues().settle({"T": {0: 2}}, {})
    assert store.raft_queues().ends({}) == {"T": {0: 3}}
    assert store.raft_queues().bounds("T", 0) == (0, 3)


def test_a_queue_that_will_be_deleted_ends_nowhere(store: FileMessageStore) -> None:
    put(store, 3)
    put(store, 3, topic="Mixed")
    place = store.max_phy_offset
    put(store, 1, topic="Mixed")
    ends = store.raft_queues().ends({"T": place, "Mixed": place})
    assert ends == {"Mixed": {0: 4}}


def test_an_index_is_found_by_its_offset(store: FileMessageStore) -> None:
    queues = store.raft_queues()
    assert queues.index_at("T", 0, 5) == 0
    last = put(store, 5)
    assert queues.index_at("T", 0, last) == 4
    assert queues.index_at("T", 0, last + 1) == 5
    entry = queues.entry("T", 0, 4)
    assert entry is not None
    assert entry[0] == last
    assert len(queues.record(*entry[:2])) == entry[1]
