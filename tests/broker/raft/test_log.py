"""A store as the log of a Raft group."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.stores.raft import (
    ADDRESSES,
    FOUNDERS,
    LONG_AFTER_MS,
    copy,
    fill_segment,
    lead,
    member_config,
    open_member,
    put,
)
from support.stores.small import batch_of, crash, dispatch_all, message, records_of

from trioha.broker.raft.base import RaftBase
from trioha.broker.raft.log import RaftLog
from trioha.broker.raft.store import base_file, open_raft_log, raft_store_config, vote_file
from trioha.dledger.membership import Configuration
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite
from trioha.dledger.term_table import TermTable
from trioha.errors import CommitLogCorrupted, ConfigError, DiskFull, StoreError
from trioha.journal import NullSink
from trioha.store.interface import PutStatus
from trioha.store.message_store import FileMessageStore
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.names import RAFT_TOPIC
from trioha.wire.record import BLANK_MAGIC, PRELUDE

SEGMENT = 4096


@pytest.fixture
def logs() -> Iterator[list[RaftLog]]:
    """Return a list; close the logs in it in the end."""
    opened: list[RaftLog] = []
    yield opened
    for log in opened:
        log.store.close()


@pytest.fixture
def leader(tmp_path: Path, logs: list[RaftLog]) -> RaftLog:
    return opened(tmp_path / "leader", logs)


@pytest.fixture
def follower(tmp_path: Path, logs: list[RaftLog]) -> RaftLog:
    return opened(tmp_path / "follower", logs)


def opened(root: Path, logs: list[RaftLog]) -> RaftLog:
    log, _ = open_member(member_config(root))
    logs.append(log)
    return log


def reopened(log: RaftLog, logs: list[RaftLog]) -> RaftLog:
    """Reopen the log after kill -9."""
    crash(log.store)
    logs.remove(log)
    return opened(log.store.config.root, logs)


def recovered(log: RaftLog, logs: list[RaftLog]) -> tuple[RaftLog, TermTable, Configuration]:
    """Reopen the log after kill -9; return it with the terms and members found."""
    crash(log.store)
    logs.remove(log)
    log, found = open_member(member_config(log.store.config.root))
    logs.append(log)
    return log, found.terms, found.configurations.latest


# Recovery.


def test_an_empty_store_has_the_founders_and_no_term(tmp_path: Path) -> None:
    log, found = open_member(member_config(tmp_path))
    assert found.terms == TermTable()
    assert found.configurations.rows == ((0, FOUNDERS),)
    assert (found.begin_offset, found.end_offset) == (0, 0)
    assert log.addresses() == {}
    log.store.close()


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_terms_members_and_addresses_are_found_again(
    tmp_path: Path, leader: RaftLog, logs: list[RaftLog], how: str
) -> None:
    lead(leader, 1)
    put(leader)
    second = leader.store.max_phy_offset
    lead(leader, 7, "n1")
    changed = Configuration(("n0", "n1", "n2"), ("n3",))
    end = leader.append_control(Control(7, "n1", changed), {"n3": "h:1"}, 1000)
    put(leader)
    total = leader.store.max_phy_offset
    if how == "closed":
        leader.store.close()
    else:
        crash(leader.store)
    logs.clear()
    log, found = open_member(member_config(tmp_path / "leader"))
    logs.append(log)
    assert found.terms.rows == ((1, 0), (7, second))
    assert found.configurations.rows == ((0, FOUNDERS), (end, changed))
    assert found.end_offset == total == log.store.flushed_offset
    assert log.addresses() == {"n3": "h:1"}


def test_a_term_covers_the_blank_before_its_control_record(
    leader: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 1)
    fill_segment(leader, 100)
    start = leader.store.max_phy_offset
    lead(leader, 2)
    assert start == SEGMENT - 100
    assert records_of(leader.store.config)[-1].phy_offset == SEGMENT
    _, terms, _ = recovered(leader, logs)
    assert terms.rows == ((1, 0), (2, start))


def test_a_blank_without_its_control_record_has_its_term(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 1)
    fill_segment(leader, 100)
    start = leader.store.max_phy_offset
    copy(leader, follower, 1)
    lead(leader, 2)
    follower.write(LogWrite(start, 2, leader.read(start, 1 << 20)))
    assert follower.store.max_phy_offset == SEGMENT
    follower, terms, _ = recovered(follower, logs)
    assert follower.store.max_phy_offset == SEGMENT
    assert terms.rows == ((1, 0), (2, start))
    # And once more, with the record there.
    copy(leader, follower, 2)
    follower.store.flush()
    _, terms, _ = recovered(follower, logs)
    assert terms.rows == ((1, 0), (2, start))


def test_a_term_of_which_only_the_blank_came_outlives_the_next(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 1)
    fill_segment(leader, 100)
    start = leader.store.max_phy_offset
    copy(leader, follower, 1)
    lead(leader, 2)
    follower.write(LogWrite(start, 2, leader.read(start, 1 << 20)))
    lead(follower, 3, "n1")
    _, terms, _ = recovered(follower, logs)
    assert terms.rows == ((1, 0), (2, start), (3, SEGMENT))


def test_a_blank_of_a_term_that_came_to_nothing_is_forgotten_with_it(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 1)
    fill_segment(leader, 100)
    start = leader.store.max_phy_offset
    copy(leader, follower, 1)
    lead(leader, 2)
    follower.write(LogWrite(start, 2, leader.read(start, 1 << 20)))
    follower.truncate(LogTruncate(start))
    # Another one, with a record short enough for what is left of the segment: a third leader.
    put(follower, 0)
    assert follower.store.max_phy_offset < SEGMENT
    crash(follower.store)
    logs.remove(follower)
    follower, found = open_member(follower.store.config)
    logs.append(follower)
    assert found.terms.rows == ((1, 0),)


def test_a_term_that_was_noted_and_never_written_leaves_no_trace(
    leader: RaftLog, logs: list[RaftLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(leader, 1)
    fill_segment(leader, 110)
    start = leader.store.max_phy_offset
    monkeypatch.setattr(leader.store, "put_message", _die)
    with pytest.raises(KeyboardInterrupt):
        lead(leader, 2)
    log, terms, _ = recovered(leader, logs)
    assert terms.rows == ((1, 0),)
    assert log.store.max_phy_offset == start
    # Bytes of the old term, from a third leader that has more of them.
    put(log, 0)
    log, terms, _ = recovered(log, logs)
    assert terms.rows == ((1, 0),)
    start = log.store.max_phy_offset
    lead(log, 3)
    _, terms, _ = recovered(log, logs)
    assert terms.rows == ((1, 0), (3, start))


def _die(*args: object) -> None:
    raise KeyboardInterrupt


def test_two_beginnings_of_one_term_are_damage(leader: RaftLog, logs: list[RaftLog]) -> None:
    lead(leader, 1)
    control = leader._controls.all()[0]
    put(leader)
    base = leader._base
    leader._save(type(base)(terms=TermTable(((1, 50),)), from_offset=0))
    crash(leader.store)
    logs.clear()
    log = open_raft_log(leader.store.config, NullSink(), wall_ms=1)
    with pytest.raises(CommitLogCorrupted, match=r"term 1 begins at 50 and at 0.*raft repair"):
        log.recover(FOUNDERS)
    assert control.start_offset == 0
    log.store.close()


def test_bytes_of_no_term_are_refused(tmp_path: Path) -> None:
    log, _ = open_member(member_config(tmp_path))
    put(log)
    log.store.close()
    log = open_raft_log(member_config(tmp_path), NullSink(), wall_ms=1)
    with pytest.raises(
        CommitLogCorrupted, match="no control record tells the term of the bytes from 0"
    ):
        log.recover(FOUNDERS)
    log.store.close()


# Reading for a follower.


@pytest.mark.parametrize("size_max", [1, 200, 500, 1000, 4096, 1 << 20])
def test_a_read_is_whole_records_of_one_segment(leader: RaftLog, size_max: int) -> None:
    lead(leader, 1)
    for size in (10, 900, 0, 2500, 40, 3800, 17, 17, 1200):
        put(leader, size)
    store = leader.store
    ends = {record.phy_offset + record.size for record in records_of(store.config)}
    offset = 0
    while offset < store.max_phy_offset:
        data = bytes(leader.read(offset, size_max))
        assert data == bytes(store.read_log(offset, len(data)))
        end = offset + len(data)
        segment_end = offset - offset % SEGMENT + SEGMENT
        assert end in ends or end == segment_end
        assert end <= segment_end
        if len(data) > size_max:
            # One record, or one blank.
            assert PRELUDE.unpack_from(data)[0] == len(data)
        else:
            following = store.read_log(end, 8)
            if following and end < segment_end:
                assert len(data) + PRELUDE.unpack(following)[0] > size_max
        offset = end


def test_a_blank_is_read_like_a_record(leader: RaftLog) -> None:
    lead(leader, 1)
    put(leader, 100)
    blank_at = leader.store.max_phy_offset
    put(leader, 3900)
    data = bytes(leader.read(blank_at, 10))
    assert PRELUDE.unpack_from(data) == (SEGMENT - blank_at, BLANK_MAGIC)
    assert len(data) == SEGMENT - blank_at


@pytest.mark.parametrize("size_max", [1, 600, 4096])
@pytest.mark.parametrize("where", [0, 120])
def test_damage_in_old_bytes_is_not_sent_on(leader: RaftLog, where: int, size_max: int) -> None:
    """The damage is in a record's head, or in its body."""
    lead(leader, 1)
    ends = [put(leader, 100).end_offset for _ in range(50)]
    path = leader.store.config.commitlog_path / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(ends[0] + where)
        file.write(bytes(8))
    with pytest.raises(CommitLogCorrupted, match=rf"damaged: .* {ends[0]}.*raft repair"):
        leader.read(ends[0], size_max)


def test_control_records_from_before_a_conversion_do_not_count(
    leader: RaftLog, logs: list[RaftLog]
) -> None:
    """A group that became a pair of brokers and a group again."""
    for term in (1, 2, 3):
        lead(leader, term)
        put(leader)
    changed = Configuration.of("n5")
    leader.append_control(Control(3, "n0", changed), {"n5": "x:1"}, 1)
    end = leader.store.max_phy_offset
    leader._save(RaftBase(from_offset=end, terms=TermTable(((9, 0),))))
    leader, terms, configuration = recovered(leader, logs)
    assert terms.rows == ((9, 0),)
    assert configuration == FOUNDERS
    assert leader.addresses() == {}
    lead(leader, 10)
    leader, terms, _ = recovered(leader, logs)
    assert terms.rows == ((9, 0), (10, end))
    assert leader.addresses() == ADDRESSES


def test_a_copy_of_a_converted_log_knows_its_term_whatever_lies_in_it(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    put(leader)
    for term in (1, 2):  # of an earlier life as a group
        lead(leader, term)
        put(leader)
    leader.append_control(Control(2, "n0", Configuration.of("n5")), {"n5": "x:1"}, 1)
    for _ in range(60):
        put(leader)
    end = leader.store.max_phy_offset
    leader._save(RaftBase(from_offset=end, terms=TermTable(((9, 0),))))
    leader, _, _ = recovered(leader, logs)
    copy(leader, follower, 9, 300)
    follower.store.flush()
    follower, terms, configuration = recovered(follower, logs)
    assert (terms.rows, configuration, follower.addresses()) == (((9, 0),), FOUNDERS, {})
    lead(leader, 10)
    copy(leader, follower, 10)
    follower.store.flush()
    follower, terms, _ = recovered(follower, logs)
    assert (terms.rows, follower.addresses()) == (((9, 0), (10, end)), ADDRESSES)
    follower.keep_beginning(SEGMENT)
    follower, terms, configuration = recovered(follower, logs)
    assert (terms.rows, configuration) == (((9, 0), (10, end)), FOUNDERS)
    assert follower.addresses() == ADDRESSES


# Copying.


@pytest.mark.parametrize("size_max", [1, 300, 1 << 20])
def test_a_copy_is_the_same_log_with_the_same_queues(
    leader: RaftLog, follower: RaftLog, size_max: int
) -> None:
    lead(leader, 1)
    for number in range(40):
        put(leader, 37 * number, queue_id=number % 3)
    copy(leader, follower, 1, size_max)
    assert records_of(follower.store.config) == records_of(leader.store.config)
    for queue_id in range(3):
        assert follower.store.max_offset_in_queue("T", queue_id) == (
            leader.store.max_offset_in_queue("T", queue_id)
        )


def test_records_and_blanks_of_several_mebibytes_go_over_whole(
    tmp_path: Path, logs: list[RaftLog]
) -> None:
    sizes = {"segment_bytes": 8 << 20, "log_chunk_bytes": 1 << 20, "queue_chunk_bytes": 4096}
    leader, follower = (
        open_member(member_config(tmp_path / name, **sizes))[0] for name in ("a", "b")
    )
    logs += [leader, follower]
    lead(leader, 1)
    for size in (3 << 20, 100, 3 << 20, 3 << 20, 10):
        put(leader, size)
    copy(leader, follower, 1, 1 << 20)
    assert follower.store.max_phy_offset == leader.store.max_phy_offset > 8 << 20
    assert records_of(follower.store.config) == records_of(leader.store.config)


def test_a_put_is_no_larger_than_what_goes_over_in_one_piece(
    tmp_path: Path, logs: list[RaftLog]
) -> None:
    log, _ = open_member(member_config(tmp_path, segment_bytes=32 << 20))
    logs.append(log)
    batch = batch_of([message(bytes(3 << 20)) for _ in range(3)])
    result = log.store.put_batch(batch, 1)
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert "8388600 that the log takes at once" in result.reason


def test_a_copy_that_ends_at_a_segments_end_keeps_its_blank(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 1)
    put(leader, 2000)
    put(leader, 2000)
    follower.write(LogWrite(0, 1, leader.read(0, 1 << 20)))
    assert follower.store.max_phy_offset == SEGMENT
    follower = reopened(follower, logs)
    assert follower.store.max_phy_offset == SEGMENT


def test_segments_of_another_size_are_refused(
    tmp_path: Path, leader: RaftLog, logs: list[RaftLog]
) -> None:
    other, _ = open_member(member_config(tmp_path / "other", segment_bytes=2 * SEGMENT))
    logs.append(other)
    lead(leader, 1)
    with pytest.raises(StoreError, match=r"of 4096 bytes, but this log.*8192.*mappedFileSize"):
        other.write(LogWrite(0, 1, leader.read(0, 1 << 20)))
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        other.reset(LogReset(SEGMENT, TermTable(((1, 0),)), (0, FOUNDERS)))
    assert other.store.max_phy_offset == 0


def test_a_full_disk_has_no_room_and_takes_nothing(
    leader: RaftLog, follower: RaftLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(leader, 1)
    put(leader)
    assert follower.has_room(3 * SEGMENT)
    # Promised, so it is there.
    body = leader.read(0, 1 << 20)

    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    follower.write(LogWrite(0, 1, body))
    assert not follower.has_room(4 * SEGMENT)
    with pytest.raises(DiskFull):
        follower.write(LogWrite(len(body), 1, bytes(4 * SEGMENT)))
    assert follower.store.max_phy_offset == len(body)


def test_a_control_record_that_finds_no_room_begins_no_term(
    leader: RaftLog, logs: list[RaftLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(leader, 1)
    fill_segment(leader, 50)
    end = leader.store.max_phy_offset
    with monkeypatch.context() as patched:
        patched.setattr(leader.store._gate, "refusal", "the disk is 95% full")
        with pytest.raises(DiskFull, match="95%"):
            lead(leader, 2)
    lead(leader, 3)
    _, terms, _ = recovered(leader, logs)
    assert terms.rows == ((1, 0), (3, end))


def test_messages_larger_than_members_can_send_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="maxMessageSize=16777216 is more than"):
        raft_store_config(member_config(tmp_path, body_bytes_max=16 << 20))


# Cutting.


def test_a_cut_is_durable_and_other_bytes_come_in_its_place(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 1)
    put(leader, queue_id=0)
    put(leader, queue_id=1)
    cut_at = leader.store.max_phy_offset
    copy(leader, follower, 1)
    lead(follower, 2, "n1")
    put(follower, queue_id=1)
    follower.truncate(LogTruncate(cut_at))
    lead(leader, 3)
    put(leader, 10, queue_id=1)
    copy(leader, follower, 3)
    follower, terms, _ = recovered(follower, logs)
    assert terms.rows == ((1, 0), (3, cut_at))
    assert records_of(follower.store.config) == records_of(leader.store.config)
    assert follower.store.max_offset_in_queue("T", 1) == 2


def test_members_of_the_part_that_is_cut_are_forgotten(leader: RaftLog) -> None:
    lead(leader, 1)
    end = leader.store.max_phy_offset
    leader.append_control(Control(1, "n0", Configuration.of("n0", "n1")), {"n0": "a:1"}, 1)
    assert leader.addresses() == {"n0": "a:1"}
    leader.truncate(LogTruncate(end))
    assert leader.addresses() == ADDRESSES


# Emptying.


def _reset(log: RaftLog, begin: int = 2 * SEGMENT) -> LogReset:
    operation = LogReset(begin, TermTable(((1, 0), (4, 5000))), (700, Configuration.of("n0", "n1")))
    log.reset(operation)
    return operation


def test_a_reset_log_begins_where_its_leaders_does(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    lead(leader, 4)
    while leader.store.max_phy_offset < 2 * SEGMENT:
        put(leader, 500)
    more = [put(leader, 500).queue_offset for _ in range(3)]
    lead(follower, 2, "n1")
    put(follower)
    _reset(follower)
    assert follower.store.min_phy_offset == follower.store.max_phy_offset == 2 * SEGMENT
    assert follower.store.max_offset_in_queue("T", 0) == 0
    assert follower.addresses() == ADDRESSES
    follower, terms, configuration = recovered(follower, logs)
    assert follower.store.min_phy_offset == follower.store.max_phy_offset == 2 * SEGMENT
    assert terms.rows == ((4, 5000),)
    assert configuration == Configuration.of("n0", "n1")
    copy(leader, follower, 4)
    assert follower.store.max_offset_in_queue("T", 0) == more[-1] + 1
    first = follower.store.min_offset_in_queue("T", 0)
    assert follower.store.consume_queue_entry("T", 0, first) == (
        leader.store.consume_queue_entry("T", 0, first)
    )
    follower, terms, _ = recovered(follower, logs)
    assert terms.rows == ((4, 5000),)
    assert follower.store.max_phy_offset == leader.store.max_phy_offset


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_an_interrupted_reset_is_finished(
    follower: RaftLog, logs: list[RaftLog], monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    lead(follower, 2, "n1")
    for _ in range(12):
        put(follower, 1500)
    config = follower.store.config
    monkeypatch.setattr(follower.store._extent, "void", _die)  # what `restart_log` does first
    with pytest.raises(KeyboardInterrupt):
        _reset(follower)
    # Power went while files were being removed: any of them may be left.
    segments = sorted(config.commitlog_path.iterdir())
    assert len(segments) > 3
    if left < 3:
        segments[left].unlink()
    follower, terms, _ = recovered(follower, logs)
    assert follower.store.min_phy_offset == follower.store.max_phy_offset == 2 * SEGMENT
    assert terms.rows == ((4, 5000),)
    assert follower.store.queues() == []
    put(follower)
    follower, _, _ = recovered(follower, logs)
    assert follower.store.max_phy_offset > 2 * SEGMENT


def test_control_records_of_other_counts_are_all_listed(
    leader: RaftLog, follower: RaftLog, logs: list[RaftLog]
) -> None:
    """A leader whose log begins later counts its control records anew: nothing is forgotten."""
    for term in (1, 2, 3):
        lead(leader, term)
        copy(leader, follower, term)
    terms = follower._terms
    end = leader.store.max_phy_offset
    leader.store._queues.delete_topic(RAFT_TOPIC)
    lead(leader, 9)
    assert records_of(leader.store.config)[-1].queue_offset == 0
    copy(leader, follower, 9)
    _, found, _ = recovered(follower, logs)
    assert found == terms.begin(9, end)


# Retention.


def _expire(
    log: RaftLog, floor: int = 1 << 60, on_trim: Callable[[int], None] = lambda begin: None
) -> list[str]:
    log.store.flush()
    log.store.flush_queues()
    return log.check_disk(LONG_AFTER_MS, floor, on_trim)


def _long_log(log: RaftLog) -> None:
    for term in range(1, 9):
        lead(log, term)
        if term == 3:
            log.append_control(Control(3, "n0", Configuration.of("n0", "n1")), {"n1": "x:1"}, 1)
        for _ in range(3):
            put(log, 900)


def test_nothing_is_deleted_before_somebody_allows_it(leader: RaftLog) -> None:
    _long_log(leader)
    assert _expire(leader, floor=0) == []
    assert leader.store.check_disk(LONG_AFTER_MS) == []
    assert len(_expire(leader, floor=2 * SEGMENT - 1)) == 1
    assert leader.store.min_phy_offset == SEGMENT


def test_nothing_is_deleted_while_a_member_starts(leader: RaftLog, logs: list[RaftLog]) -> None:
    _long_log(leader)
    leader.store.close()
    logs.clear()
    log = open_raft_log(leader.store.config, NullSink(), wall_ms=LONG_AFTER_MS)
    logs.append(log)
    assert log.store.min_phy_offset == 0
    assert log.recover(FOUNDERS).terms.rows[0] == (1, 0)


def test_what_the_beginning_told_is_kept(leader: RaftLog, logs: list[RaftLog]) -> None:
    _long_log(leader)
    crash(leader.store)
    logs.clear()
    leader, before = open_member(leader.store.config)
    logs.append(leader)
    trims: list[int] = []
    assert _expire(leader, on_trim=trims.append)
    begin = leader.store.min_phy_offset
    assert trims == [begin]
    crash(leader.store)
    logs.clear()
    leader, after = open_member(leader.store.config)
    logs.append(leader)
    assert after.begin_offset == begin
    assert after.end_offset == before.end_offset
    assert after.terms == before.terms.drop_before(begin)
    assert after.configurations == before.configurations.drop_before(begin)
    assert leader.addresses() == ADDRESSES


def test_a_kill_between_saving_and_deleting_changes_nothing(
    leader: RaftLog, logs: list[RaftLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_log(leader)
    crash(leader.store)
    logs.clear()
    leader, before = open_member(leader.store.config)
    logs.append(leader)
    commitlog, unlink = leader.store.config.commitlog_path, Path.unlink

    def die_at_a_segment(path: Path, missing_ok: bool = False) -> None:
        if path.parent == commitlog:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", die_at_a_segment)
        _expire(leader)
    crash(leader.store)
    logs.clear()
    leader, after = open_member(leader.store.config)
    logs.append(leader)
    assert after == before


def test_a_base_that_cannot_be_saved_keeps_the_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = RecordedEvents()
    log, _ = open_member(member_config(tmp_path), events)
    _long_log(log)

    def full(payload: bytes) -> None:
        raise DiskFull("cannot write raft.base.0: the disk is full")

    monkeypatch.setattr(log._base_file, "save", full)
    assert _expire(log) == []
    assert log.store.min_phy_offset == 0
    assert events.of("segments_kept")[0]["reason"] == "cannot write raft.base.0: the disk is full"
    log.store.close()


# Stores of another mode, and damaged ones.


def test_a_members_store_is_not_opened_without_its_group(leader: RaftLog) -> None:
    config = member_config(leader.store.config.root)
    leader.store._lock.release()  # type: ignore[union-attr]
    with pytest.raises(StoreError, match=r"DLEDGER group.*raft convert .* --back"):
        FileMessageStore.open(config, NullSink(), wall_ms=1)


def test_a_master_slave_store_is_not_opened_by_a_member(tmp_path: Path) -> None:
    config = member_config(tmp_path)
    store = FileMessageStore.open(config, NullSink(), wall_ms=1)
    store.append_log(0, b"")
    store.close()
    open_member(config)[0].store.close()  # empty: of neither mode yet
    for path in tmp_path.glob("raft.base.*"):
        path.unlink()
    (tmp_path / "epochs.0").touch()
    with pytest.raises(StoreError, match=r"master-slave broker.*trioha raft convert"):
        open_member(config)


def test_a_members_store_without_its_base_is_damaged(tmp_path: Path) -> None:
    config = member_config(tmp_path)
    log, _ = open_member(config)
    lead(log, 1)
    log.store.close()
    vote_file(config).save(b"a vote")
    for path in tmp_path.glob("raft.base.*"):
        path.unlink()
    with pytest.raises(StoreError, match=r"raft.base.0 and .1 are missing.*trioha raft repair"):
        open_member(config)


def test_a_java_dledger_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(StoreError, match="Java broker in DLedger mode"):
        open_member(member_config(tmp_path))


def test_damage_before_the_durable_end_refuses(leader: RaftLog, logs: list[RaftLog]) -> None:
    lead(leader, 1)
    ends = [put(leader).end_offset for _ in range(5)]
    leader.store.close()
    logs.clear()
    config = leader.store.config
    with (config.commitlog_path / f"{0:020d}").open("r+b") as file:
        file.seek(ends[2])
        file.write(bytes(200))
    with pytest.raises(CommitLogCorrupted, match=r"safe on disk. Run `trioha raft repair"):
        open_member(config)


def test_a_log_that_is_gone_refuses(leader: RaftLog, logs: list[RaftLog]) -> None:
    lead(leader, 1)
    leader.store.close()
    logs.clear()
    config = leader.store.config
    for path in config.commitlog_path.iterdir():
        path.unlink()
    with pytest.raises(CommitLogCorrupted, match=r"is empty, but by .*trioha raft repair"):
        open_member(config)


def test_a_log_without_what_its_base_speaks_of_refuses(tmp_path: Path) -> None:
    log, _ = open_member(member_config(tmp_path))
    _reset(log)
    log.store.close()
    for path in log.store.config.commitlog_path.iterdir():
        path.unlink()
    log.store.config.checkpoint_path.unlink()
    log = open_raft_log(log.store.config, NullSink(), wall_ms=1)
    with pytest.raises(CommitLogCorrupted, match=r"should hold 8192.*trioha raft repair"):
        log.recover(FOUNDERS)
    log.store.close()


def test_a_base_of_which_both_slots_are_damaged_refuses(tmp_path: Path) -> None:
    log, _ = open_member(member_config(tmp_path))
    log._save(log._base)
    log.store.close()
    for path in tmp_path.glob("raft.base.*"):
        path.write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="restore one from a backup, or run `trioha raft repair"):
        base_file(log.store.config)


def test_what_recovery_finds_is_on_disk(follower: RaftLog, logs: list[RaftLog]) -> None:
    lead(follower, 1)
    put(follower, 3000)
    put(follower, 3000)
    assert follower.store.flushed_offset < follower.store.max_phy_offset
    follower = reopened(follower, logs)
    assert follower.store.flushed_offset == follower.store.max_phy_offset
    dispatch_all(follower.store)
