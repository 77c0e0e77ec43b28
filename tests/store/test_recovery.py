"""Recovery of files that a crash, a power cut or an operator left behind."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.stores.small import (
    SEGMENT_BYTES,
    bodies,
    crash,
    crashing,
    dispatch_all,
    message,
    open_store,
    projection_of,
    queues_of,
    records_of,
    restore,
    small_config,
    tree_of,
)

from trioha.errors import CommitLogCorrupted, StoreError
from trioha.store import recovery, self_check
from trioha.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from trioha.store.interface import PutStatus
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.wire.codes import SysFlag
from trioha.wire.record import body_crc

FIRST = "commitlog/00000000000000000000"


def fill(store: FileMessageStore, count: int, *, size: int = 60, seed: int = 0) -> list[int]:
    """Put messages of about `size` bytes to four queues; returns their end offsets."""
    rng = random.Random(seed)
    ends = [store.max_phy_offset]
    for number in range(count):
        body = b"%d-" % number + rng.randbytes(rng.randrange(size))
        put = message(
            body,
            topic=rng.choice("AB"),
            queue_id=rng.randrange(2),
            tags=rng.choice(["", "TagA"]),
            keys=(f"key{number}",),
        )
        result = store.put_message(put, 1000 + 10 * number)
        assert result.status is PutStatus.PUT_OK
        ends.append(result.end_offset)
    return ends


ALL_TIMES = (-(1 << 63), 1 << 63)
"""A flipped bit may have put a record's timestamp anywhere."""


def check_projection(store: FileMessageStore, config: StoreConfig) -> None:
    """Queues equal the log, and the index finds what is in it and nothing else."""
    records = records_of(config)
    assert queues_of(store) == projection_of(records)
    dispatch_all(store)
    for record in records:
        if record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
            continue
        for key in record.properties.get("KEYS", "").split(" "):
            views, _, _ = store.query_message(record.topic, key, 10_000, *ALL_TIMES)
            offsets = [int.from_bytes(view[28:36], "big") for view in views]
            assert record.phy_offset in offsets or not key
            assert offsets == sorted(set(offsets), reverse=True)
            assert max(offsets, default=0) < store.max_phy_offset


def remove_point(config: StoreConfig) -> None:
    """Write the checkpoint as a Java broker does, without a recovery point."""
    checkpoint = read_checkpoint(config.checkpoint_path)
    stamp = checkpoint.physic_msg_timestamp
    write_checkpoint(
        config.checkpoint_path,
        Checkpoint(physic_msg_timestamp=stamp, logics_msg_timestamp=stamp),
    )


def test_an_empty_directory_becomes_a_store(config: StoreConfig) -> None:
    store = open_store(config)
    assert (store.min_phy_offset, store.max_phy_offset) == (0, 0)
    assert config.abort_path.exists()
    assert config.lock_path.read_bytes() == b"lock"
    store.close()
    assert not config.abort_path.exists()
    assert config.checkpoint_path.stat().st_size == 4096


@pytest.mark.parametrize("foreign", [False, True])
def test_every_truncation_point_of_the_tail_ends_at_a_record(
    config: StoreConfig, foreign: bool
) -> None:
    store = open_store(config)
    fill(store, 12)
    store.flush_queues()
    safe = store.max_phy_offset
    ends = fill(store, 4, seed=1)
    crash(store)
    if foreign:
        remove_point(config)
    tree = tree_of(config.root)
    whole = tree[FIRST]
    for cut in range(safe, ends[-1] + 1):
        torn = whole[:cut].ljust(SEGMENT_BYTES, b"\0")
        restore(config.root, {**tree, FIRST: torn})
        store = open_store(config)
        assert store.max_phy_offset == max(end for end in ends if end <= cut)
        assert queues_of(store) == projection_of(records_of(config))
        assert (config.root / FIRST).read_bytes()[store.max_phy_offset :].strip(b"\0") == b""
        crash(store)


def test_index_is_cut_back_with_the_log(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 10)
    store.flush_queues()
    ends = fill(store, 9, seed=1)
    dispatch_all(store)
    crash(store)
    path = config.root / FIRST
    path.write_bytes(path.read_bytes()[: ends[4] + 30].ljust(SEGMENT_BYTES, b"\0"))
    store = open_store(config)
    assert store.max_phy_offset == ends[4]
    check_projection(store, config)
    fill(store, 9, seed=2)
    check_projection(store, config)
    store.close()


@attrs.frozen
class Crashed:
    root: Path
    tree: dict[str, bytes] = attrs.field(repr=False)
    safe: int
    """Recovery point of the store."""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    """A crashed store of two segments."""
    root = tmp_path_factory.mktemp("crashed")
    store = open_store(small_config(root))
    fill(store, 10)
    store.flush_queues()
    safe = store.max_phy_offset
    fill(store, 30, seed=1)
    dispatch_all(store)
    crash(store)
    return Crashed(root, tree_of(root), safe)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4)
)
@example(flips=[(167, 16)])  # a store timestamp in the far future
@example(flips=[(167, 128)])  # and one long before 1970
def test_byte_flips_in_the_tail_cut_cleanly(crashed: Crashed, flips: list[tuple[int, int]]) -> None:
    root, tree, safe = crashed.root, crashed.tree, crashed.safe
    config = small_config(root)
    names = sorted(name for name in tree if name.startswith("commitlog/"))
    log = bytearray(b"".join(tree[name] for name in names))
    before = bytes(log)
    for at, mask in flips:
        log[safe + at % (len(log) - safe)] ^= mask
    damaged = {
        name: bytes(log[i * SEGMENT_BYTES : (i + 1) * SEGMENT_BYTES])
        for i, name in enumerate(names)
    }
    restore(root, {**tree, **damaged})
    with crashing(open_store(config)) as store:
        # Headers are not all under a checksum, but what is kept is whole records in their places.
        assert store.max_phy_offset >= safe
        assert bytes(store.read_log(0, safe)) == before[:safe][:SEGMENT_BYTES]
        check_projection(store, config)
        fill(store, 5, seed=3)
        check_projection(store, config)


def test_truncated_bytes_never_return(config: StoreConfig) -> None:
    """Fault A10."""
    store = open_store(config)
    ends = fill(store, 60)
    store.flush()
    store.flush_queues()
    cut = ends[20]
    store.truncate_log(cut)
    crash(store)
    store = open_store(config)
    assert store.max_phy_offset == cut
    check_projection(store, config)
    # Also not behind a shorter record that ends where an old one began.
    store.put_message(message(b"new"), 9000)
    end = store.max_phy_offset
    crash(store)
    store = open_store(config)
    assert store.max_phy_offset == end
    check_projection(store, config)
    store.close()


def test_truncation_at_a_segment_start_holds(config: StoreConfig) -> None:
    """Fault A10."""
    store = open_store(config)
    fill(store, 60)
    store.flush_queues()
    store.truncate_log(SEGMENT_BYTES)
    crash(store)
    store = open_store(config)
    assert store.max_phy_offset == SEGMENT_BYTES
    check_projection(store, config)
    store.close()


def _die() -> None:
    raise KeyboardInterrupt


def test_killed_in_the_midst_of_a_truncation(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault A10."""
    store = open_store(config)
    ends = fill(store, 60)
    store.flush_queues()
    monkeypatch.setattr(store._queues, "flush", _die)  # what comes before the checkpoint
    with pytest.raises(KeyboardInterrupt):
        store.truncate_log(ends[10])
    crash(store)
    store = open_store(config)
    assert store.max_phy_offset == ends[10]
    check_projection(store, config)
    store.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(1, 60))
def test_queues_are_the_projection_of_the_log_after_every_kill(
    store_path: Path, seed: int, steps: int
) -> None:
    """Fault A12."""
    shutil.rmtree(store_path, ignore_errors=True)
    config = small_config(store_path)
    rng = random.Random(seed)
    for _ in range(4):
        store = open_store(config)
        check_projection(store, config)
        for number in range(rng.randrange(steps)):
            fill(store, 1, seed=seed + number, size=rng.choice([20, 900]))
            if rng.random() < 0.1:
                store.flush_queues()
            if rng.random() < 0.2:
                dispatch_all(store)
        crash(store)
    store = open_store(config)
    check_projection(store, config)
    store.close()


def test_a_zeroed_part_of_the_last_record_is_cut(config: StoreConfig) -> None:
    """Fault A13."""
    store = open_store(config)
    fill(store, 10)
    store.flush_queues()
    ends = fill(store, 3, seed=1)
    crash(store)
    tree = tree_of(config.root)
    begin, end = ends[-2], ends[-1]
    for zero_from in range(begin, end):
        torn = bytearray(tree[FIRST])
        torn[zero_from:end] = bytes(end - zero_from)
        restore(config.root, {**tree, FIRST: bytes(torn)})
        store = open_store(config)
        # A last byte that was 0 anyway changes nothing.
        assert store.max_phy_offset == (end if torn == tree[FIRST] else begin)
        check_projection(store, config)
        crash(store)


def test_killed_while_the_first_file_was_made(config: StoreConfig) -> None:
    """Fault A13."""
    store = open_store(config)
    crash(store)
    (config.root / FIRST).touch()
    store = open_store(config)
    fill(store, 3)
    crash(store)
    store = open_store(config)
    check_projection(store, config)
    assert len(records_of(config)) == 3
    store.close()


@pytest.mark.parametrize("size", [0, SEGMENT_BYTES])
def test_killed_between_the_next_file_and_the_blank(config: StoreConfig, size: int) -> None:
    """Fault A13."""
    store = open_store(config)
    fill(store, 6)
    crash(store)
    (config.root / "commitlog" / f"{SEGMENT_BYTES:020d}").write_bytes(bytes(size))
    store = open_store(config)
    fill(store, 50, seed=1)
    check_projection(store, config)
    store.close()
    assert len(records_of(config)) == 56


def test_killed_behind_a_blank_that_nothing_follows(config: StoreConfig) -> None:
    """Fault A13."""
    store = open_store(config)
    fill(store, 6)
    store.flush_queues()
    end = store.max_phy_offset
    crash(store)
    path = config.root / FIRST
    data = bytearray(path.read_bytes())
    struct.pack_into(">II", data, end, SEGMENT_BYTES - end, 0xCBD43194)
    path.write_bytes(data)
    store = open_store(config)
    assert store.max_phy_offset == end
    fill(store, 1)
    check_projection(store, config)
    store.close()


def test_killed_between_two_deletions(config: StoreConfig) -> None:
    """Fault A13."""
    store = open_store(config)
    fill(store, 100)
    store.flush_queues()
    crash(store)
    (config.root / FIRST).unlink()
    store = open_store(config)
    assert store.min_phy_offset == SEGMENT_BYTES
    check_projection(store, config)
    assert store.get_message("A", 0, 0, 32, None).min_offset > 0
    store.close()


def test_a_body_whose_checksum_is_zero_is_valid(config: StoreConfig) -> None:
    """Fault A14."""
    body = bytes.fromhex("9d0ad96d")
    assert body_crc(body) == 0
    store = open_store(config)
    store.put_message(message(body), 1000)
    crash(store)
    remove_point(config)
    store = open_store(config)
    assert bodies(store) == [body]
    store.close()


def test_stale_bytes_of_a_recycled_page_are_no_record(config: StoreConfig) -> None:
    store = open_store(config)
    ends = fill(store, 8)
    crash(store)
    remove_point(config)
    path = config.root / FIRST
    data = path.read_bytes()
    stale = data[ends[2] : ends[3]]
    path.write_bytes((data[: ends[8]] + stale).ljust(SEGMENT_BYTES, b"\0"))
    store = open_store(config)
    assert store.max_phy_offset == ends[8]
    store.close()


def test_a_strange_property_between_two_records_is_not_a_torn_tail(config: StoreConfig) -> None:
    store = open_store(config)
    store.put_message(message(properties=b"name\x01va\0lue"), 1000)
    store.put_message(message(), 1000)
    end = store.max_phy_offset
    crash(store)
    remove_point(config)
    store = open_store(config)
    assert store.max_phy_offset == end
    store.close()


# Damage before the recovery point.


def _damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
def test_damage_before_the_recovery_point_is_told_not_cut(config: StoreConfig, clean: bool) -> None:
    store = open_store(config)
    ends = fill(store, 8)
    store.flush_queues()
    if clean:
        store.close()
    else:
        crash(store)
    _damage(config.root / FIRST, ends[3] + 90)
    before = tree_of(config.root)
    with pytest.raises(CommitLogCorrupted, match=f"offset {ends[3]}.*Copy the store") as caught:
        open_store(config)
    assert "00000000000000000000" in str(caught.value)
    assert tree_of(config.root) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("distance", [3, 1])
def test_of_a_long_log_the_end_is_checked_from_where_a_queue_says_that_a_record_begins(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch, clean: bool, distance: int
) -> None:
    monkeypatch.setattr(recovery, "_VERIFY_BYTES", 150)
    store = open_store(config)
    ends = fill(store, 8)
    store.flush_queues()
    if clean:
        store.close()
    else:
        crash(store)
    # A sound log is opened: the check did not begin in the middle of a record.
    again = open_store(config)
    assert again.max_phy_offset == ends[-1]
    check_projection(again, config)
    again.close()
    bad = ends[-1 - distance]
    assert ends[-1] - bad > (distance > 1) * 150
    _damage(config.root / FIRST, bad + 90)
    if distance == 1:
        with pytest.raises(CommitLogCorrupted, match=f"offset {bad}.*Copy the store"):
            open_store(config)
    else:
        open_store(config).close()  # too far back to be read at every start


def test_what_is_behind_damage_can_be_given_up_as_the_text_says(config: StoreConfig) -> None:
    store = open_store(config)
    ends = fill(store, 8)
    store.close()
    _damage(config.root / FIRST, ends[3] + 90)
    with pytest.raises(CommitLogCorrupted):
        open_store(config)
    config.checkpoint_path.unlink()
    config.extent_path.unlink()
    shutil.rmtree(config.consume_queue_path)
    store = open_store(config)
    assert store.max_phy_offset == ends[3]
    check_projection(store, config)
    store.close()


def test_a_missing_last_segment_is_told(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 60)
    store.close()
    last = max((config.root / "commitlog").iterdir())
    data = last.read_bytes()
    last.unlink()
    with pytest.raises(CommitLogCorrupted, match="put the missing segment back"):
        open_store(config)
    last.write_bytes(data)
    store = open_store(config)
    check_projection(store, config)
    store.close()


def _remove_middle(config: StoreConfig) -> None:
    (config.root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()


def _shorten(config: StoreConfig) -> None:
    path = config.root / FIRST
    path.write_bytes(path.read_bytes()[:-1])


def _add_foreign(config: StoreConfig) -> None:
    (config.root / "commitlog" / "notes.txt").write_text("mine")


def _add_foreign_to_queue(config: StoreConfig) -> None:
    (config.consume_queue_path / "A" / "0" / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (
            _remove_middle,
            f"{SEGMENT_BYTES:020d} is missing: put it back; or, to give up",
        ),
        (_shorten, "has 4095 bytes, not 4096: set mappedFileSizeCommitLog"),
        (_add_foreign, "notes.txt does not belong here.*move it away"),
        (_add_foreign_to_queue, "notes.txt does not belong here.*move it away"),
    ],
)
def test_a_directory_in_disorder_is_one_clear_error(
    config: StoreConfig, break_it: Callable[[StoreConfig], None], text: str
) -> None:
    store = open_store(config)
    fill(store, 80)
    dispatch_all(store)
    store.close()
    break_it(config)
    with pytest.raises(StoreError, match=text):
        open_store(config)
    # And the lock is free again.
    with pytest.raises(StoreError, match=text):
        open_store(config)


def test_removed_queues_are_rebuilt_from_the_log(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 40)
    store.close()
    before = tree_of(config.consume_queue_path)
    shutil.rmtree(config.consume_queue_path)
    store = open_store(config)
    check_projection(store, config)
    assert tree_of(config.consume_queue_path) == before
    store.close()


def test_queues_that_contradict_the_log_are_rebuilt(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 40)
    store.close()
    queue = config.consume_queue_path / "A" / "0"
    data = bytearray((queue / ("0" * 20)).read_bytes())
    other = config.consume_queue_path / "B" / "1" / ("0" * 20)
    other.write_bytes(data)
    store = open_store(config)
    check_projection(store, config)
    store.close()


def test_a_removed_index_is_rebuilt_from_the_log(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 40)
    store.close()
    max(config.index_path.iterdir()).unlink()
    store = open_store(config)
    check_projection(store, config)
    store.close()
    shutil.rmtree(config.index_path)
    store = open_store(config)
    check_projection(store, config)
    store.close()


def test_deleting_the_only_topic_does_not_bring_it_back(config: StoreConfig) -> None:
    store = open_store(config)
    store.put_message(message(), 1000)
    store.delete_topic("T")
    store.close()
    store = open_store(config)
    assert store.queues() == []
    assert store.put_message(message(), 2000).queue_offset == 0
    store.close()


# Stores that a Java broker wrote last: no recovery point.


@pytest.mark.parametrize("clean", [True, False])
def test_a_foreign_store_is_recovered(config: StoreConfig, clean: bool) -> None:
    store = open_store(config)
    fill(store, 120)
    if clean:
        store.close()
    else:
        store.flush_queues()
        fill(store, 20, seed=1)
        crash(store)
    end = store.max_phy_offset
    remove_point(config)
    store = open_store(config)
    assert store.max_phy_offset == end
    check_projection(store, config)
    fill(store, 20, seed=2)
    check_projection(store, config)
    store.close()


def test_a_foreign_store_is_read_only_behind_its_checkpoint(config: StoreConfig) -> None:
    store = open_store(config)
    for number in range(200):
        store.put_message(message(queue_id=number % 3), 100_000 + 100 * number)
    store.flush_queues()
    crash(store)
    remove_point(config)
    store = open_store(config)
    assert store.recovery is not None
    # Three seconds before the last timestamp, a tenth of a second each.
    assert 25 <= store.recovery.records <= 35
    check_projection(store, config)
    store.close()


def test_a_store_without_checkpoint_is_read_from_its_start(config: StoreConfig) -> None:
    store = open_store(config)
    fill(store, 100)
    crash(store)
    config.checkpoint_path.unlink()
    store = open_store(config)
    assert store.recovery is not None
    assert store.recovery.records == 100
    check_projection(store, config)
    store.close()


def test_stale_entries_that_a_java_broker_left_are_not_counted(config: StoreConfig) -> None:
    # It truncates in memory only: old entries stay behind the first empty one.
    store = open_store(config)
    for _ in range(3):
        store.put_message(message(), 1000)
    store.close()
    path = config.consume_queue_path / "T" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[5 * 20 : 6 * 20] = data[0:20]
    path.write_bytes(data)
    remove_point(config)
    store = open_store(config)
    assert store.max_offset_in_queue("T", 0) == 3
    for _ in range(3):
        store.put_message(message(), 2000)
    assert queues_of(store) == projection_of(records_of(config))
    store.close()


# Power cuts: of what was not synced, any 4 KiB page may be there or not.


PAGE = 4096


class Disk:
    """A disk that knows what was synced: it watches the calls that sync."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.files: dict[str, bytes] = {}
        self.names: set[str] = set()
        """Paths whose directory was synced while they were in it."""
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)
        monkeypatch.setattr(os, "fsync", self.fsync)
        self._unlink = os.unlink
        monkeypatch.setattr(os, "unlink", self.unlink)
        self._replace = os.replace
        monkeypatch.setattr(os, "replace", self.replace)

    def unlink(self, path: Path, *, dir_fd: int | None = None) -> None:
        # A new file of this name has none of the old file's pages.
        if path.is_relative_to(self.root):
            self.files.pop(str(path.relative_to(self.root)), None)
        self._unlink(path, dir_fd=dir_fd)

    def replace(self, path: Path, target: Path) -> None:
        # The younger file has its pages; its name counts with its directory.
        if path.is_relative_to(self.root):
            self.files[str(target.relative_to(self.root))] = self.files.pop(
                str(path.relative_to(self.root)), b""
            )
        self._replace(path, target)

    def fdatasync(self, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        self.files[str(path.relative_to(self.root))] = path.read_bytes()

    def fsync(self, fd: int) -> None:
        directory = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if directory.is_relative_to(self.root):
            self.names |= {str(path.relative_to(self.root)) for path in directory.iterdir()}

    def is_named(self, name: str) -> bool:
        path = Path(name)
        return all(str(part) in self.names for part in (path, *path.parents[:-1]))

    def cut_power(self, rng: random.Random, current: dict[str, bytes]) -> dict[str, bytes]:
        """The files as a machine may find them when it comes up again."""
        after: dict[str, bytes] = {}
        lost_in: set[Path] = set()
        for name, data in sorted(current.items()):
            directory = Path(name).parent
            # Names are journaled in order: once one is lost, all later ones are.
            if not self.is_named(name) and (directory in lost_in or rng.random() < 0.3):
                lost_in.add(directory)
                continue
            old = self.files.get(name, b"")
            pages = []
            for at in range(0, len(data), PAGE):
                new = data[at : at + PAGE]
                pages.append(
                    new if rng.random() < 0.5 else old[at : at + PAGE].ljust(len(new), b"\0")
                )
            after[name] = b"".join(pages)
        return after


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1 << 30))
def test_a_power_cut_loses_nothing_that_was_flushed(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    shutil.rmtree(store_path, ignore_errors=True)
    store_path.mkdir()
    rng = random.Random(seed)
    changes: dict[str, Any] = {"segment_bytes": 4 * PAGE, "queue_file_bytes": 20 * 1000}
    changes |= {"hash_slot_count": 1200, "index_entry_count": 300}
    config = small_config(store_path, **changes)
    with monkeypatch.context() as patch:
        disk = Disk(store_path, patch)
        with crashing(open_store(config)) as store:
            safe = 0
            for number in range(rng.randrange(2, 12)):
                fill(store, rng.randrange(40), seed=number, size=rng.choice([60, 600]))
                if rng.random() < 0.6:
                    dispatch_all(store)
                step = rng.random()
                if step < 0.4:
                    safe = store.flush()
                elif step < 0.6:
                    store._index._synced_at_s = 0.0
                    store.flush_queues()
                    safe = store.flushed_offset
                elif step < 0.7:
                    places = [record.phy_offset for record in records_of(config)]
                    if places:
                        safe = rng.choice(places)
                        store.truncate_log(safe)
            end = store.max_phy_offset
        current = tree_of(store_path)
    whole = b"".join(data for name, data in sorted(current.items()) if name[:3] == "com")
    restore(store_path, disk.cut_power(rng, current))
    monkeypatch.setattr(self_check, "boot_id", lambda: b"another boot id!")
    with crashing(open_store(config)) as store:
        assert safe <= store.max_phy_offset <= end
        kept = tree_of(store_path)
        log = b"".join(data for name, data in sorted(kept.items()) if name[:3] == "com")
        assert log[:safe] == whole[:safe]
        check_projection(store, config)
        fill(store, 10, seed=99)
        check_projection(store, config)
