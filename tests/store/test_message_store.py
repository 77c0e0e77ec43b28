"""The store as a whole: puts, a slave's copy, full disks, failing disks, retention."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.stores.records import encode_record
from support.stores.small import (
    HOST,
    QUEUE_ENTRIES,
    SEGMENT_BYTES,
    batch_of,
    bodies,
    crash,
    dispatch_all,
    message,
    open_store,
    projection_of,
    queues_of,
    records_of,
    small_config,
)

from trioha.config import BrokerConfig
from trioha.errors import (
    CommitLogCorrupted,
    ConfigError,
    DiskFull,
    LocalProtocolError,
    OffsetOutOfRange,
    StoreError,
)
from trioha.store import message_store, retention
from trioha.store.interface import MessageStore, PutMessage, PutStatus
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.store.retention import DiskUsage
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.names import RAFT_TOPIC
from trioha.wire.record import decode_record

HOUR_MS = 3_600_000
ROUNDS, FLUSHES = 400, 40


def no_space(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def open_recorded(config: StoreConfig) -> tuple[FileMessageStore, RecordedEvents]:
    events = RecordedEvents()
    return FileMessageStore.open(config, events, wall_ms=1000), events


def test_it_is_a_message_store(config: StoreConfig) -> None:
    store: MessageStore = open_store(config)
    assert store.put_message(message(), 1000).status is PutStatus.PUT_OK
    store.close()


def test_a_message_is_readable_when_the_put_returns(config: StoreConfig) -> None:
    told: list[Any] = []
    store = open_store(config, on_dispatch=lambda *args: told.append(args))
    result = store.put_message(message(b"one", queue_id=3, tags="TagA"), 1000)
    assert (result.phy_offset, result.queue_offset, result.store_timestamp) == (0, 0, 1000)
    assert told == [("T", 3, 1, (2598919,))]
    assert bodies(store, queue_id=3) == [b"one"]
    view = store.look_message(0)
    assert view is not None
    assert decode_record(view).store_timestamp == 1000
    assert store.consume_queue_entry("T", 3, 0) == (0, result.size, 2598919)
    statistics = store.statistics()
    assert (statistics.put_total, statistics.put_bytes) == (1, result.size)
    assert (statistics.get_total, statistics.earliest_store_timestamp) == (1, 1000)
    store.close()


def test_a_record_never_gets_two_entries(config: StoreConfig) -> None:
    store = open_store(config)

    def fail(topic: str, queue_id: int, end: int, tags_codes: Sequence[int]) -> None:
        raise RuntimeError("a listener that breaks its promise")

    store.tell_dispatches(fail)
    with pytest.raises(RuntimeError):
        store.put_message(message(b"one"), 1000)
    store.tell_dispatches(None)
    assert store.put_message(message(b"two"), 1000).queue_offset == 1
    assert bodies(store) == [b"one", b"two"]
    store.close()


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_half_and_rolled_back_messages_are_in_no_queue(config: StoreConfig, sys_flag: int) -> None:
    told: list[Any] = []
    store = open_store(config, on_dispatch=lambda *args: told.append(args))
    result = store.put_message(message(sys_flag=sys_flag), 1000)
    assert result.status is PutStatus.PUT_OK
    assert (told, store.queues()) == ([], [])
    assert store.put_message(message(sys_flag=0x8), 1000).queue_offset == 0
    store.close()


def test_ipv6_hosts_make_the_record_longer(config: StoreConfig) -> None:
    store = open_store(config)
    for sys_flag in (0x10, 0x20, 0x30):
        put = message(sys_flag=sys_flag)
        put.born_host = bytes(16) + HOST[4:] if sys_flag & 0x10 else HOST
        put.store_host = bytes(16) + HOST[4:] if sys_flag & 0x20 else HOST
        result = store.put_message(put, 1000)
        view = store.look_message(result.phy_offset)
        assert view is not None
        assert decode_record(view).store_host == put.store_host
        assert len(view) == result.size
        assert result.end_offset == store.max_phy_offset
    store.close()


ILLEGAL = {
    "topic": message(topic="T" * 128),
    "path": message(topic="../T"),
    "queue": message(queue_id=-1),
    "properties": message(properties=b"p" * 32768),
    "body": message(bytes(1001)),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_message_is_refused(config: StoreConfig, name: str) -> None:
    store = open_store(attrs.evolve(config, body_bytes_max=1000, segment_bytes=1 << 20))
    put = ILLEGAL[name]
    assert store.put_message(put, 1000).status is PutStatus.MESSAGE_ILLEGAL
    result = store.put_batch(batch_of([put, put]), 1000)
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert result.reason
    assert store.max_phy_offset == 0
    store.close()


def test_a_message_larger_than_a_segment_is_refused(config: StoreConfig) -> None:
    store = open_store(config)
    assert store.put_message(message(bytes(4000)), 1000).status is PutStatus.MESSAGE_ILLEGAL
    batch = [message(bytes(1500))] * 3
    assert store.put_batch(batch_of(batch), 1000).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put_message(message(bytes(3900)), 1000).status is PutStatus.PUT_OK
    store.close()


def test_a_batch_is_all_or_nothing(config: StoreConfig) -> None:
    store = open_store(config)
    half = batch_of([message(b"1", sys_flag=0x4), message(b"2", sys_flag=0x4)])
    assert store.put_batch(half, 1000).status is PutStatus.MESSAGE_ILLEGAL
    flags = [message(b"1"), message(b"2")]
    flags[1].flag = 1 << 40
    assert store.put_batch(batch_of(flags), 1000).status is PutStatus.MESSAGE_ILLEGAL
    assert store.max_phy_offset == 0
    result = store.put_batch(batch_of([message(b"%d" % number) for number in range(20)]), 1000)
    assert result.queue_offset == 0
    assert len(result.phy_offsets) == result.count == 20
    assert bodies(store) == [b"%d" % number for number in range(20)]
    store.close()


# Delay levels.


def delayed(level: str) -> PutMessage:
    return message(
        topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x01" + level.encode()
    )


def test_a_delayed_message_carries_its_delivery_time(config: StoreConfig) -> None:
    store = open_store(config)
    for level in ("3", "99", "0"):
        store.put_message(delayed(level), 5000)
    codes = [store.consume_queue_entry("SCHEDULE_TOPIC_XXXX", 2, index) for index in range(3)]
    assert [code and code[2] for code in codes] == [5000 + 10_000, 5000 + 2 * HOUR_MS, 0]
    end = store.max_phy_offset
    # A slave computes the same from the record.
    copy = open_store(small_config(config.root / "copy"))
    copy.append_log(0, store.read_log(0, end))
    dispatch_all(copy)
    assert queues_of(copy) == queues_of(store)
    copy.close()
    store.close()


# A slave.


@pytest.mark.parametrize("seed", range(5))
def test_a_slave_fed_in_random_pieces_is_byte_equal(config: StoreConfig, seed: int) -> None:
    rng = random.Random(seed)
    master = open_store(config)
    slave_config = small_config(config.root / "slave")
    slave = open_store(slave_config)
    for number in range(150):
        put = message(
            rng.randbytes(rng.randrange(400)),
            queue_id=rng.randrange(3),
            tags=rng.choice(["", "TagA", "TagB"]),
            keys=(f"key{number}",),
            sys_flag=rng.choice([0, 0, 0, 4, 8]),
        )
        master.put_message(put, 1000 + number)
        while rng.random() < 0.5 and slave.max_phy_offset < master.max_phy_offset:
            begin = slave.max_phy_offset
            slave.append_log(begin, master.read_log(begin, rng.randrange(1, 700)))
        if rng.random() < 0.3:
            slave.dispatch(rng.randrange(2000))
        if rng.random() < 0.02:
            crash(slave)
            slave = open_store(slave_config)
    while slave.max_phy_offset < master.max_phy_offset:
        begin = slave.max_phy_offset
        slave.append_log(begin, master.read_log(begin, 10_000))
    dispatch_all(slave)
    assert slave.dispatched_offset == slave.max_phy_offset == master.max_phy_offset
    assert queues_of(slave) == queues_of(master) == projection_of(records_of(config))
    for name in os.listdir(config.commitlog_path):
        ours = (slave_config.commitlog_path / name).read_bytes()
        assert ours == (config.commitlog_path / name).read_bytes()
    slave.close()
    master.close()


def test_a_message_is_found_by_offset_where_its_queue_lists_it(config: StoreConfig) -> None:
    """Also behind a gap in its queue, but neither inside a body nor once its topic is deleted."""
    store = open_store(config)
    inside = encode_record(message(b"inside"), 0, 88, 1000)
    ends = [0]
    for queue_offset, body in enumerate((inside, b"two", b"three")):
        data = encode_record(message(body), queue_offset * 7, ends[-1], 1000)
        store.append_log(ends[-1], data)
        ends.append(store.max_phy_offset)
    assert store.look_message(0) is None
    dispatch_all(store)
    found = [store.look_message(offset) for offset in (*ends[:3], 88)]
    assert [view and decode_record(view).body for view in found] == [inside, b"two", b"three", None]
    store.delete_topic("T")
    assert store.look_message(0) is None
    store.close()


def test_a_half_record_waits_for_its_rest(config: StoreConfig) -> None:
    told: list[Any] = []
    store = open_store(config, on_dispatch=lambda *args: told.append(args))
    data = encode_record(message(), 0, 0, 1000)
    for at in range(len(data)):
        assert not store.dispatch(1 << 20)
        assert told == []
        store.append_log(at, data[at : at + 1])
    assert not store.dispatch(1 << 20)
    assert len(told) == 1
    store.close()


def test_a_slave_stopped_inside_a_record_drops_the_half(config: StoreConfig) -> None:
    store = open_store(config)
    data = encode_record(message(), 0, 0, 1000)
    store.append_log(0, data)
    store.append_log(len(data), encode_record(message(), 1, len(data), 1000)[:50])
    store.close()
    assert config.abort_path.exists()
    store = open_store(config)
    assert store.max_phy_offset == len(data)
    store.close()


def test_a_log_that_ends_inside_a_record_takes_no_message(config: StoreConfig) -> None:
    store = open_store(config)
    store.append_log(0, encode_record(message(), 0, 0, 1000)[:50])
    with pytest.raises(LocalProtocolError, match="truncate it before writing"):
        store.put_message(message(), 1000)
    store.truncate_log(store.dispatched_offset)
    assert store.put_message(message(), 1000).phy_offset == 0
    store.close()


def test_an_empty_slave_begins_at_any_segment(config: StoreConfig) -> None:
    store = open_store(config)
    base = 5 * SEGMENT_BYTES
    with pytest.raises(StoreError):
        store.append_log(base + 1, b"x")
    store.append_log(base, encode_record(message(), 7, base, 1000))
    dispatch_all(store)
    assert (store.min_phy_offset, store.min_offset_in_queue("T", 0)) == (base, 7)
    with pytest.raises(StoreError):
        store.append_log(0, b"x")
    crash(store)
    store = open_store(config)
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


def test_a_log_emptied_by_truncation_may_begin_elsewhere(config: StoreConfig) -> None:
    store = open_store(config)
    for _ in range(5):
        store.put_message(message(), 1000)
    store.flush_queues()
    store.truncate_log(0)
    base = 3 * SEGMENT_BYTES
    store.append_log(base, encode_record(message(), 40, base, 1000))
    crash(store)
    store = open_store(config)
    assert queues_of(store) == projection_of(records_of(config))
    assert store.min_phy_offset == base
    store.close()


def test_a_topic_made_anew_at_the_master_begins_anew_here(config: StoreConfig) -> None:
    store = open_store(config)
    for index in (0, 1, 2, 0, 1):
        end = store.max_phy_offset
        store.append_log(end, encode_record(message(b"%d" % end), index, end, 1000))
        dispatch_all(store)
    assert store.max_offset_in_queue("T", 0) == 2
    assert queues_of(store) == projection_of(records_of(config))
    crash(store)
    store = open_store(config)
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


def test_bytes_that_are_no_record_are_told_by_dispatch(config: StoreConfig) -> None:
    store = open_store(config)
    store.append_log(0, b"\x01" * 200)
    with pytest.raises(CommitLogCorrupted, match="damaged at offset 0"):
        store.dispatch(1 << 20)
    crash(store)


def test_truncation_needs_a_record_to_begin_there(config: StoreConfig) -> None:
    store = open_store(config)
    first = store.put_message(message(), 1000)
    store.put_message(message(), 1000)
    with pytest.raises(StoreError, match="no record begins at 5"):
        store.truncate_log(5)
    with pytest.raises(OffsetOutOfRange):
        store.truncate_log(store.max_phy_offset + 1)
    store.truncate_log(first.end_offset)
    assert store.max_offset_in_queue("T", 0) == 1
    store.close()


def test_a_log_is_cut_before_its_records_have_reached_their_queues(config: StoreConfig) -> None:
    store = open_store(config)
    first = encode_record(message(), 0, 0, 1000)
    store.append_log(0, first)
    store.append_log(len(first), encode_record(message(), 1, len(first), 1000))
    store.truncate_log(len(first))
    assert (store.max_phy_offset, store.dispatched_offset) == (len(first), 0)
    dispatch_all(store)
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


def test_a_topic_that_is_longer_than_its_record_is_told_by_dispatch(config: StoreConfig) -> None:
    store = open_store(config)
    record = bytearray(encode_record(message(), 0, 0, 1000))
    assert record[-4:-2] == b"\x01T", "topic and length, and no properties"
    record[-4] = 120
    store.append_log(0, bytes(record))
    with pytest.raises(CommitLogCorrupted, match="damaged at offset 0"):
        store.dispatch(1 << 20)
    crash(store)


# Full disks.


def test_a_full_disk_refuses_writes_and_reads_go_on(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, events = open_recorded(config)
    while store.max_phy_offset < SEGMENT_BYTES - 500:
        store.put_message(message(b"before"), 1000)
    before = bodies(store)
    end = store.max_phy_offset
    real = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    for wall_ms in range(1000, 4000, 100):
        result = store.put_message(message(bytes(600)), wall_ms)
        assert result.status is PutStatus.NOT_WRITABLE
        assert "disk is full" in result.reason
    assert store.put_batch(batch_of([message()]), 4000).status is PutStatus.NOT_WRITABLE
    assert (store.max_phy_offset, bodies(store)) == (end, before)
    assert not store.statistics().writable
    assert events.names().count("write_refused") == 1
    monkeypatch.setattr(os, "posix_fallocate", real)
    # Without a restart: a second later a put finds that there is room.
    assert store.put_message(message(bytes(600)), 4100).status is PutStatus.NOT_WRITABLE
    assert store.put_message(message(bytes(600)), 6000).status is PutStatus.PUT_OK
    assert events.names().count("write_resumed") == 1
    assert store.statistics().writable
    crash(store)
    store = open_store(config)
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


@pytest.mark.parametrize("topic", ["T", RAFT_TOPIC])
def test_a_disk_full_between_two_queues_leaves_each_record_one_entry(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """The dispatcher's retry meets entries that the first try has filed.

    Raft's queues count by themselves, so nothing but the record's place says that its entry exists.
    """
    told: list[tuple[str, int, int]] = []
    store = open_store(config, on_dispatch=lambda *args: told.append(args[:3]))

    def receive(topic: str, queue_offset: int) -> int:
        end = store.max_phy_offset
        put = message(b"small", topic=topic)
        store.append_log(end, encode_record(put, queue_offset, end, 1000))
        return end

    places = {topic: [receive(topic, 0)], "Full": []}
    for index in range(QUEUE_ENTRIES):
        places["Full"].append(receive("Full", index))
    dispatch_all(store)
    begin = store.dispatched_offset
    told.clear()
    # One piece of log: the first queue has room, the second needs a new file.
    places[topic] += [receive(topic, 1), receive(topic, 2)]
    places["Full"].append(receive("Full", QUEUE_ENTRIES))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_space)
        with pytest.raises(DiskFull):
            dispatch_all(store)
    assert store.dispatched_offset == begin
    assert told == [(topic, 0, 3)], "the first queue was not filed before the second"
    dispatch_all(store)
    assert store.dispatched_offset == store.max_phy_offset
    assert told == [(topic, 0, 3), ("Full", 0, QUEUE_ENTRIES + 1)]
    filed = {
        queue: [entry[0] for entry in entries.values()]
        for (queue, _), entries in queues_of(store).items()
    }
    assert filed == places
    crash(store)


def test_the_regular_look_at_the_disk_resumes_writing_too(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = open_recorded(config)
    real = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    assert store.put_message(message(), 1000).status is PutStatus.NOT_WRITABLE
    store.check_disk(1000)
    assert not store.statistics().writable
    monkeypatch.setattr(os, "posix_fallocate", real)
    store.check_disk(1001)
    assert store.statistics().writable
    assert store.put_message(message(), 1002).status is PutStatus.PUT_OK
    store.close()


def test_over_the_warning_level_nothing_is_written(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, events = open_recorded(config)
    store.put_message(message(), 1000)
    monkeypatch.setattr(message_store, "measure_disk", lambda path: DiskUsage(90, 100))
    store.check_disk(2000)
    result = store.put_message(message(), 2000)
    assert result.status is PutStatus.NOT_WRITABLE
    assert "90% full" in result.reason
    assert store.put_message(message(), 9_000_000).status is PutStatus.NOT_WRITABLE
    assert bodies(store) == [b"hello"]
    monkeypatch.setattr(message_store, "measure_disk", lambda path: DiskUsage(89, 100))
    store.check_disk(3000)
    assert store.put_message(message(), 3000).status is PutStatus.PUT_OK
    assert events.names()[-2:] == ["write_refused", "write_resumed"]
    store.close()


# Failing disks.


def test_a_failed_fsync_ends_all_writing(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault A11."""
    store = open_store(config)
    store.put_message(message(), 1000)
    real = os.fdatasync

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreError, match=r"fsync of .* failed"):
        store.flush()
    monkeypatch.setattr(os, "fdatasync", real)
    result = store.put_message(message(), 1_000_000)
    assert result.status is PutStatus.NOT_WRITABLE
    assert "fsync" in result.reason
    store.check_disk(2_000_000)
    assert not store.statistics().writable
    with pytest.raises(StoreError):
        store.flush()
    with pytest.raises(StoreError):
        store.append_log(store.max_phy_offset, b"x")
    assert store.flushed_offset == 0
    with pytest.raises(StoreError):
        store.close()
    open_store(config).close()


def test_no_space_for_the_flush_is_no_success(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault A11."""
    store = open_store(config)
    store.put_message(message(), 1000)
    monkeypatch.setattr(os, "fdatasync", no_space)
    with pytest.raises(StoreError):
        store.flush()
    assert store.put_message(message(), 1000).status is PutStatus.NOT_WRITABLE
    crash(store)


def test_flushing_in_a_thread_while_everything_happens(config: StoreConfig) -> None:
    """Roll, delete, truncate and put against the flush thread: no error, nothing lost."""
    config = attrs.evolve(config, delete_hours=frozenset(range(24)), reserved_ms=0)
    store = open_store(config)
    stop = threading.Event()
    failures: list[BaseException] = []
    flushes = 0

    def run() -> None:
        nonlocal flushes
        try:
            while not stop.is_set():
                store.flush()
                store.flush_queues()
                flushes += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    rng = random.Random(3)
    now_ms = int(time.time() * 1000)
    rounds = 0
    while (rounds < ROUNDS or flushes < FLUSHES) and not failures:
        rounds += 1
        for _ in range(50):
            result = store.put_message(message(rng.randbytes(200), queue_id=rng.randrange(4)), 1000)
            assert result.status is PutStatus.PUT_OK, result.reason
        dice = rng.random()
        if dice < 0.1:
            store.truncate_log(result.phy_offset)
        elif dice < 0.2:
            store.check_disk(now_ms + HOUR_MS)
        elif dice < 0.25:
            store.delete_topic("T")
        dispatch_all(store)
    stop.set()
    thread.join()
    assert failures == []
    end = store.max_phy_offset
    crash(store)
    store = open_store(config)
    assert store.max_phy_offset == end
    store.close()


# Retention.


@pytest.fixture
def aged(config: StoreConfig) -> tuple[FileMessageStore, RecordedEvents]:
    """Six segments, the first three of them last written four days ago."""
    store, events = open_recorded(config)
    while store.max_phy_offset < 5 * SEGMENT_BYTES:
        store.put_message(message(bytes(300), keys=("k",)), 1000)
    dispatch_all(store)
    store.flush_queues()
    old_s = time.time() - 4 * 24 * 3600
    for path in sorted(config.commitlog_path.iterdir())[:3]:
        os.utime(path, (old_s, old_s))
    return store, events


def wall_ms_at(hour: int) -> int:
    now = time.localtime()
    return int(time.mktime((now.tm_year, now.tm_mon, now.tm_mday, hour, 30, 0, 0, 0, -1))) * 1000


def names(config: StoreConfig) -> list[int]:
    return [int(path.name) // SEGMENT_BYTES for path in sorted(config.commitlog_path.iterdir())]


def test_expired_segments_go_at_their_hour(
    config: StoreConfig, aged: tuple[FileMessageStore, RecordedEvents]
) -> None:
    store, events = aged
    assert store.check_disk(wall_ms_at(5)) == []
    gone = store.check_disk(wall_ms_at(4))
    assert [Path(path).parent.name for path in gone][:3] == ["commitlog"] * 3
    assert names(config) == [3, 4, 5]
    assert store.min_phy_offset == 3 * SEGMENT_BYTES
    low = store.min_offset_in_queue("T", 0)
    entry = store.consume_queue_entry("T", 0, low)
    assert entry is not None
    assert entry[0] == store.min_phy_offset
    assert store.get_message("T", 0, 0, 32, None).next_begin_offset == low
    assert [event["reason"] for event in events.of("segment_deleted")] == ["expired"] * 3
    assert len(list((config.consume_queue_path / "T" / "0").iterdir())) < 8
    store.close()
    store = open_store(config)
    assert store.min_offset_in_queue("T", 0) == low
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


def test_expired_segments_go_at_any_hour_once_asked(
    config: StoreConfig, aged: tuple[FileMessageStore, RecordedEvents]
) -> None:
    store, _ = aged
    store.delete_expired_soon()
    assert names(config) == [0, 1, 2, 3, 4, 5]
    store.check_disk(wall_ms_at(5))
    assert names(config) == [3, 4, 5]
    # Done: what expires from now on waits for its hour again.
    assert store.check_disk(wall_ms_at(5)) == []
    assert store.check_disk(wall_ms_at(5) + 7 * 24 * 3_600_000) == []
    store.close()


@pytest.mark.parametrize(
    ("used", "left"), [(70, [0, 1, 2, 3, 4, 5]), (80, [3, 4, 5]), (84, [3, 4, 5])]
)
def test_a_filling_disk_does_not_wait_for_the_hour(
    config: StoreConfig,
    aged: tuple[FileMessageStore, RecordedEvents],
    monkeypatch: pytest.MonkeyPatch,
    used: int,
    left: list[int],
) -> None:
    store, _ = aged
    monkeypatch.setattr(
        message_store, "measure_disk", lambda path: DiskUsage(used << 30, 100 << 30)
    )
    store.check_disk(wall_ms_at(5))
    assert names(config) == left
    store.close()


def test_on_a_nearly_full_disk_the_oldest_go_whatever_their_age(
    config: StoreConfig,
    aged: tuple[FileMessageStore, RecordedEvents],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, events = aged
    size = 10 * SEGMENT_BYTES
    monkeypatch.setattr(
        message_store, "measure_disk", lambda path: DiskUsage(size * 96 // 100, size)
    )
    store.check_disk(wall_ms_at(5))
    # Each is a tenth of the disk: three expired ones bring it to 66 %, so the young stay.
    assert names(config) == [3, 4, 5]
    store.check_disk(wall_ms_at(5))
    assert names(config) == [5]
    assert events.of("segment_deleted")[-1]["reason"] == "disk 86% full"
    store.close()


def test_nothing_beyond_the_recovery_point_goes(config: StoreConfig) -> None:
    config = attrs.evolve(config, reserved_ms=0, delete_hours=frozenset(range(24)))
    store = open_store(config)
    for _ in range(50):
        store.put_message(message(bytes(300)), 1000)
    later = int(time.time() * 1000) + HOUR_MS
    assert store.check_disk(later) == []
    store.flush_queues()
    assert len(store.check_disk(later)) > 0
    assert len(names(config)) == 1
    store.close()


def test_views_of_a_deleted_segment_stay_readable(
    config: StoreConfig, aged: tuple[FileMessageStore, RecordedEvents]
) -> None:
    store, _ = aged
    view = store.read_log(0, 1000)
    before = bytes(view)
    result = store.get_message("T", 0, 0, 4, None)
    store.check_disk(wall_ms_at(4))
    store.close()
    assert bytes(view) == before
    assert decode_record(result.buffers[0]).body == bytes(300)


def test_a_configured_ratio_above_85_is_respected() -> None:
    config = attrs.evolve(small_config(Path("unused")), disk_max_used_ratio=0.95)
    young = [retention.ClosedSegment(wall_ms_at(5), 1)] * 3
    for used, count in ((94, 0), (96, 1), (97, 2)):
        usage = DiskUsage(used, 100)
        assert retention.expired_count(config, young, usage, wall_ms_at(5))[0] == count


# Configuration.


def test_the_configuration_is_taken_over() -> None:
    config = StoreConfig.of(
        BrokerConfig(
            store_path_root_dir="/data/store",
            mapped_file_size_consume_queue=5999,
            delete_when="04;16",
            message_delay_level="1s 2m",
            disk_max_used_space_ratio=80,
        )
    )
    assert config.commitlog_path == Path("/data/store/commitlog")
    assert config.queue_file_bytes == 6000
    assert config.delete_hours == {4, 16}
    assert config.delay_levels_ms == (1000, 120_000)
    assert config.disk_max_used_ratio == 0.8
    elsewhere = StoreConfig.of(BrokerConfig(store_path_commit_log="/log"))
    assert elsewhere.commitlog_path == Path("/log")


@pytest.mark.parametrize("changes", [{"delete_when": "25"}, {"message_delay_level": "10x"}])
def test_nonsense_is_a_configuration_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        StoreConfig.of(BrokerConfig(**changes))
