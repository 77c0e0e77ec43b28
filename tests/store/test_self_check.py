"""Files of a store that are missing, short or garbled: the log is missed, queues are rebuilt."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from support.stores.small import (
    SEGMENT_BYTES,
    crash,
    dispatch_all,
    message,
    open_store,
    projection_of,
    queues_of,
    records_of,
    tree_of,
)

from trioha.errors import CommitLogCorrupted, DiskFull, StoreError
from trioha.store import self_check
from trioha.store.accept_loss import accept_loss, find_loss, forget_loss, is_noted
from trioha.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from trioha.store.cuts import list_cuts
from trioha.store.extent_file import ExtentFile, StoreExtent
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.testing.recorded_events import RecordedEvents

QUEUES = 4


def fill(store: FileMessageStore, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        body = b"%d" % number
        store.put_message(message(body, queue_id=number % QUEUES, keys=(f"k{number}",)), 1000)


def filled(config: StoreConfig, count: int = 100, *, clean: bool = True) -> None:
    store = open_store(config)
    fill(store, count)
    dispatch_all(store)
    if clean:
        store.close()
    else:
        store.flush_queues()
        fill(store, 9, count)
        crash(store)


def queue_file(config: StoreConfig, queue_id: int = 0, number: int = 0) -> Path:
    name = f"{number * config.queue_file_bytes:020d}"
    return config.consume_queue_path / "T" / str(queue_id) / name


def reopen(config: StoreConfig) -> tuple[FileMessageStore, RecordedEvents]:
    sink = RecordedEvents()
    return FileMessageStore.open(config, sink, wall_ms=2000), sink


# The log.


def _whole_log(config: StoreConfig) -> None:
    shutil.rmtree(config.commitlog_path)


def _last_segment(config: StoreConfig) -> None:
    max(config.commitlog_path.iterdir()).unlink()


def _middle_segment(config: StoreConfig) -> None:
    (config.commitlog_path / f"{SEGMENT_BYTES:020d}").unlink()


def _nothing_else(config: StoreConfig) -> None:
    pass


def _no_checkpoint(config: StoreConfig) -> None:
    config.checkpoint_path.unlink()


def _no_extent(config: StoreConfig) -> None:
    config.extent_path.unlink()


def _only_queues(config: StoreConfig) -> None:
    config.checkpoint_path.unlink()
    config.extent_path.unlink()


def _no_queues(config: StoreConfig) -> None:
    shutil.rmtree(config.consume_queue_path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("also", [_nothing_else, _no_checkpoint, _no_extent, _no_queues])
@pytest.mark.parametrize("remove", [_whole_log, _last_segment, _middle_segment])
def test_a_log_that_is_shorter_than_its_files_tell_is_not_opened(
    config: StoreConfig,
    remove: Callable[[StoreConfig], None],
    also: Callable[[StoreConfig], None],
    clean: bool,
) -> None:
    filled(config, clean=clean)
    remove(config)
    also(config)
    before = tree_of(config.root)
    with pytest.raises(CommitLogCorrupted, match="trioha log accept-loss") as caught:
        open_store(config)
    assert "\n" not in str(caught.value)
    assert str(config.commitlog_path) in str(caught.value)
    assert tree_of(config.root) == before


def test_queues_alone_tell_that_the_log_is_gone(config: StoreConfig) -> None:
    filled(config)
    _whole_log(config)
    _only_queues(config)
    with pytest.raises(CommitLogCorrupted, match=r"consumequeue/T/. bytes up to"):
        open_store(config)


def test_a_log_that_a_java_broker_wrote_is_missed_by_its_timestamps(config: StoreConfig) -> None:
    filled(config)
    _whole_log(config)
    _no_queues(config)
    config.extent_path.unlink()
    write_checkpoint(config.checkpoint_path, Checkpoint(physic_msg_timestamp=9))
    with pytest.raises(CommitLogCorrupted, match="checkpoint messages were in it"):
        open_store(config)


def test_a_segment_younger_than_the_checkpoint_is_missed_while_the_machine_stayed_up(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(config)
    fill(store, 10)
    store.flush_queues()
    fill(store, 60, 10)
    crash(store)
    _last_segment(config)
    with pytest.raises(CommitLogCorrupted, match=r"consumequeue.*put the missing segment back"):
        open_store(config)
    monkeypatch.setattr(self_check, "boot_id", lambda: b"another boot id!")
    store, _ = reopen(config)  # a loss of power may have taken it
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


def test_what_was_cut_on_purpose_is_not_missed(config: StoreConfig) -> None:
    filled(config)
    store = open_store(config)
    store.truncate_log(SEGMENT_BYTES)
    crash(store)
    store = open_store(config)
    assert store.max_phy_offset == SEGMENT_BYTES
    fill(store, 60)
    store.empty_log("a test")
    crash(store)
    store = open_store(config)
    assert (store.min_phy_offset, store.max_phy_offset, store.queues()) == (0, 0, [])
    fill(store, 60)
    store.restart_log(5 * SEGMENT_BYTES, "a test")
    store.close()
    store = open_store(config)
    assert store.max_phy_offset == 5 * SEGMENT_BYTES
    store.close()


@pytest.mark.parametrize("directory", ["consumequeue", "commitlog"])
def test_killed_while_the_log_is_emptied_it_opens(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    filled(config)
    store = open_store(config)
    unlink = Path.unlink

    def die(path: Path, missing_ok: bool = False) -> None:
        if directory in path.parts:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", die)
        store.empty_log("a test")
    crash(store)
    open_store(config).close()


def test_segments_that_retention_has_deleted_are_not_missed(config: StoreConfig) -> None:
    config = attrs.evolve(config, reserved_ms=0, delete_hours=frozenset())
    store = open_store(config)
    fill(store, 200)
    store.flush_queues()
    store.delete_expired_soon()
    assert store.check_disk(1 << 50)
    assert store.min_phy_offset > 0
    low = store.min_offset_in_queue("T", 0)
    crash(store)
    store, sink = reopen(config)
    assert store.min_offset_in_queue("T", 0) == low
    assert not sink.of("queues_rebuilt")
    store.close()


# Queues and index.


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30])


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _garble(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(path.stat().st_size))


def _remove_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("damage", [_remove, _empty, _shorten, _zero, _garble, _remove_directory])
def test_a_queue_is_rebuilt_as_it_was(
    config: StoreConfig, damage: Callable[[Path], None], number: int, clean: bool
) -> None:
    filled(config, clean=clean)
    before = tree_of(config.consume_queue_path)
    damage(queue_file(config, 1, number))
    store, sink = reopen(config)
    assert tree_of(config.consume_queue_path) == before
    (event,) = sink.of("queues_rebuilt")
    assert (event["count"], event["first"]) == (1, "T/1")
    assert queues_of(store) == projection_of(records_of(config))
    store.close()
    store, sink = reopen(config)
    assert not sink.of("queues_rebuilt")
    store.close()


@pytest.mark.parametrize("damage", [_remove, _empty, _shorten, _garble, _remove_directory])
def test_a_queue_of_a_store_without_extent_is_rebuilt(
    config: StoreConfig, damage: Callable[[Path], None]
) -> None:
    """A version of trioha before the file `extent` wrote it."""
    filled(config, 20)
    before = tree_of(config.consume_queue_path)
    config.extent_path.unlink()
    damage(queue_file(config, 1))
    store, _ = reopen(config)
    assert tree_of(config.consume_queue_path) == before
    store.close()


def test_the_next_offset_goes_on_where_no_record_of_the_queue_is_left(config: StoreConfig) -> None:
    config = attrs.evolve(config, reserved_ms=0)
    store = open_store(config)
    for number in range(7):
        store.put_message(message(b"%d" % number, topic="old"), 1000)
    fill(store, 200)
    store.flush_queues()
    store.delete_expired_soon()
    assert store.check_disk(1 << 50)
    assert store.min_offset_in_queue("old", 0) == 7
    crash(store)
    shutil.rmtree(config.consume_queue_path / "old")
    store, _ = reopen(config)
    assert store.put_message(message(topic="old"), 2000).queue_offset == 7
    store.close()


def test_a_rebuilding_that_was_killed_is_done_again(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(config)
    before = tree_of(config.consume_queue_path)
    config.extent_path.unlink()
    for number in range(4):
        _garble(queue_file(config, 1, number))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("trioha.store.recovery.Recovery._say_rebuilt", die)
        open_store(config)
    _shorten_by_entries(queue_file(config, 1), 2)
    open_store(config).close()
    assert tree_of(config.consume_queue_path) == before


def _shorten_by_entries(path: Path, kept: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: kept * 20].ljust(len(data), b"\0"))
    for other in path.parent.iterdir():
        if other != path:
            other.unlink()


def test_a_queue_that_was_new_when_the_process_died_is_not_taken_for_damaged(
    config: StoreConfig,
) -> None:
    filled(config)
    store = open_store(config)
    store.put_message(message(topic="new"), 1000)
    crash(store)
    store, sink = reopen(config)
    assert not sink.of("queues_rebuilt")
    assert store.max_offset_in_queue("new", 0) == 1
    store.truncate_log(0)
    store.put_message(message(topic="new"), 1000)
    crash(store)
    store, sink = reopen(config)
    assert store.max_offset_in_queue("new", 0) == 1
    store.close()


def test_a_topic_that_was_deleted_does_not_come_back(config: StoreConfig) -> None:
    store = open_store(config)
    store.put_message(message(topic="gone"), 1000)
    fill(store, 50)
    store.flush_queues()
    store.delete_topic("gone")
    crash(store)
    store, sink = reopen(config)
    assert not sink.of("queues_rebuilt")
    store.close()
    queue_file(config).unlink()
    store, sink = reopen(config)
    assert sink.of("queues_rebuilt")
    assert ("gone", 0) not in store.queues()
    store.close()


def test_queue_files_of_another_configuration_are_not_taken_for_damage(
    config: StoreConfig,
) -> None:
    filled(config)
    other = attrs.evolve(config, queue_file_bytes=400)
    with pytest.raises(StoreError, match="set mappedFileSizeConsumeQueue"):
        open_store(other)
    open_store(config).close()


@pytest.mark.parametrize(
    ("damage", "which"), [(_remove, -1), (_empty, -1), (_shorten, -1), (_shorten, 0)]
)
def test_an_index_file_is_rebuilt(
    config: StoreConfig, damage: Callable[[Path], None], which: int
) -> None:
    filled(config)
    paths = sorted(config.index_path.iterdir())
    damage(paths[which])
    store, _ = reopen(config)
    dispatch_all(store)
    for number in range(100):
        views, _, _ = store.query_message("T", f"k{number}", 10, 0, 1 << 60)
        assert len(views) == 1
    store.close()


def test_index_files_of_another_configuration_are_not_taken_for_damage(
    config: StoreConfig,
) -> None:
    filled(config)
    other = attrs.evolve(config, index_entry_count=99)
    with pytest.raises(StoreError, match="set maxHashSlotNum"):
        open_store(other)
    open_store(config).close()


# The checkpoint.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_garbled_checkpoint_is_said_to_be_that(
    config: StoreConfig, seed: int, clean: bool
) -> None:
    filled(config, clean=clean)
    config.checkpoint_path.write_bytes(random.Random(seed).randbytes(4096))
    store, sink = reopen(config)
    assert sink.of("checkpoint_garbled") == [{"file": str(config.checkpoint_path)}]
    assert queues_of(store) == projection_of(records_of(config))
    assert len(records_of(config)) == (100 if clean else 109)
    assert store.recovery is not None
    assert store.recovery.start_offset == 0
    store.close()


def test_behind_a_garbled_checkpoint_damage_is_still_no_torn_tail(config: StoreConfig) -> None:
    filled(config)
    path = config.commitlog_path / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[records_of(config)[7].phy_offset + 4] ^= 0x55
    path.write_bytes(data)
    config.checkpoint_path.write_bytes(random.Random(1).randbytes(4096))
    with pytest.raises(CommitLogCorrupted, match="is damaged at byte"):
        open_store(config)


def test_an_extent_that_cannot_be_read_counts_as_none(config: StoreConfig) -> None:
    filled(config)
    data = config.extent_path.read_bytes()
    for damaged in (b"", data[:9], data[:-1], data[:-1] + b"\xff", b"x" * 99):
        config.extent_path.write_bytes(damaged)
        assert ExtentFile(config).load() is None
    open_store(config).close()
    assert ExtentFile(config).load() is not None


def test_a_full_disk_keeps_the_extent_of_before(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old extent tells of less than there is, which is true: a full disk ends no node."""
    filled(config)
    before = config.extent_path.read_bytes()
    store = open_store(config)
    assert store.put_message(message(b"more"), 2_000_000).size

    def full(path: Path, extent: StoreExtent) -> None:
        raise DiskFull(f"cannot write {path}")

    monkeypatch.setattr("trioha.store.extent_file.write_extent", full)
    store.close()
    assert config.extent_path.read_bytes() == before


def test_the_extent_does_not_count_once_a_java_broker_has_written_the_store(
    config: StoreConfig,
) -> None:
    filled(config)
    shutil.rmtree(config.consume_queue_path / "T" / "1")  # it deleted a topic
    point = read_checkpoint(config.checkpoint_path)
    stamp = point.physic_msg_timestamp + 1
    write_checkpoint(
        config.checkpoint_path,
        Checkpoint(physic_msg_timestamp=stamp, logics_msg_timestamp=stamp),
    )
    store, sink = reopen(config)
    assert not sink.of("queues_rebuilt")
    assert ("T", 1) not in store.queues()
    store.close()


# The file `epochs`.


def test_an_epochs_file_that_was_there_is_missed(config: StoreConfig) -> None:
    (config.root / "epochs.0").write_bytes(b"any")
    filled(config)
    (config.root / "epochs.0").unlink()
    with pytest.raises(StoreError, match=r"epochs.0 and .1 are missing.*put one of them back"):
        open_store(config)
    loss = accept_loss(config, 7, in_set=False)
    assert loss is not None
    assert loss.has_log
    store = open_store(config)
    assert len(records_of(config)) == 100
    store.close()


# Losses that an operator accepts.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("remove", [_whole_log, _last_segment, _middle_segment])
def test_a_lone_broker_gives_nothing_out_twice(
    config: StoreConfig, remove: Callable[[StoreConfig], None], clean: bool
) -> None:
    filled(config, clean=clean)
    count = 100 if clean else 109
    store = open_store(config)
    end = store.max_phy_offset
    ends = [store.max_offset_in_queue("T", queue_id) for queue_id in range(QUEUES)]
    assert sum(ends) == count
    (store.close if clean else lambda: crash(store))()
    remove(config)
    assert find_loss(config, in_set=False) == find_loss(config, in_set=False) is not None
    loss = accept_loss(config, 7, in_set=False)
    assert loss is not None
    assert (loss.set_aside is None) == (remove is _whole_log)
    assert len(list_cuts(config.root)) == (0 if remove is _whole_log else 1)
    store, _ = reopen(config)
    assert store.recovery is not None
    assert store.recovery.is_whole
    assert store.max_phy_offset >= end
    for queue_id in range(QUEUES):
        assert store.min_offset_in_queue("T", queue_id) == ends[queue_id]
        result = store.put_message(message(queue_id=queue_id), 2000)
        assert result.queue_offset == ends[queue_id]
    store.close()
    open_store(config).close()
    assert find_loss(config, in_set=False) is None


def test_a_node_of_a_set_begins_empty_and_is_not_whole_until_it_is_filled(
    config: StoreConfig,
) -> None:
    filled(config)
    _last_segment(config)
    loss = accept_loss(config, 7, in_set=True)
    assert loss is not None
    assert loss.begins_at == 0
    for _ in range(2):
        store, _ = reopen(config)
        assert (store.min_phy_offset, store.max_phy_offset) == (0, 0)
        assert store.recovery is not None
        assert not store.recovery.is_whole
        store.close()
    assert is_noted(config)
    forget_loss(config.root)
    store, _ = reopen(config)
    assert store.recovery is not None
    assert store.recovery.is_whole
    store.close()


def test_nothing_is_given_up_where_nothing_is_missing(config: StoreConfig) -> None:
    filled(config)
    before = tree_of(config.root)
    assert accept_loss(config, 7, in_set=False) is None
    assert tree_of(config.root) == before
    other = attrs.evolve(config, segment_bytes=2 * SEGMENT_BYTES)
    with pytest.raises(CommitLogCorrupted, match="set mappedFileSizeCommitLog"):
        accept_loss(other, 7, in_set=False)


def test_killed_in_the_midst_it_is_done_again(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(config)
    store = open_store(config)
    ends = [store.max_offset_in_queue("T", queue_id) for queue_id in range(QUEUES)]
    store.close()
    _last_segment(config)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("trioha.store.accept_loss.begin_files_at", die)
        accept_loss(config, 7, in_set=False)
    with pytest.raises(CommitLogCorrupted):
        open_store(config)
    assert accept_loss(config, 8, in_set=False) is not None
    store, _ = reopen(config)
    assert [store.max_offset_in_queue("T", queue_id) for queue_id in range(QUEUES)] == ends
    assert len(list_cuts(config.root)) == 1
    store.close()
