"""Tables of a hostile leader in several parts: a follower appends no part that would end it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stores.raft import member_config, open_member
from support.stores.records import encode_record
from support.stores.small import dispatch_all

from trioha.broker.metadata_ops import GroupGone, encode_ops
from trioha.broker.raft import foreign_bytes
from trioha.broker.raft.controls import control_message
from trioha.broker.raft.log import RaftLog
from trioha.broker.raft.records import CHANGES, messages_of
from trioha.dledger.membership import Configuration
from trioha.dledger.ready import Control, LogTruncate, LogWrite
from trioha.errors import RemoteProtocolError
from trioha.wire.bodies import DataVersion

SOUND = encode_ops([GroupGone("g", DataVersion(1, 1))])
ODD = b"\x92\x01\x91\x08" + bytes(20)
TERM = 1


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RaftLog]:
    log = opened(tmp_path)
    yield log
    log.store.close()


def opened(root: Path) -> RaftLog:
    log, _ = open_member(member_config(root))
    return log


def parts(body: bytes, phy_offset: int, count: int = 3, queue_id: int = 0) -> list[bytes]:
    """The records of a body in so many parts, one behind the other."""
    records = []
    for message in messages_of(CHANGES, body, 5 - len(body) // -count, 1000):
        message.queue_id = queue_id
        records.append(encode_record(message, 0, phy_offset, 1000))
        phy_offset += len(records[-1])
    return records


def append(log: RaftLog, record: bytes) -> str:
    """Append what the log does not object to; return the objection."""
    end = log.end_offset
    try:
        log.configurations_in(end, TERM, record)
    except RemoteProtocolError as error:
        return str(error)
    log.write(LogWrite(end, TERM, record))
    log.store.flush()
    dispatch_all(log.store)
    return ""


def test_a_sound_body_in_parts_is_taken(log: RaftLog) -> None:
    for record in parts(SOUND, 0):
        assert append(log, record) == ""


def test_the_last_part_of_a_body_that_cannot_be_read_is_refused(log: RaftLog) -> None:
    *first, last = parts(ODD, 0)
    for record in first:
        assert append(log, record) == ""
    assert "cannot be understood" in append(log, last)
    assert "cannot be understood" in append(log, last), "also when it comes again"
    # The next leader begins anew; the log still takes a body.
    for record in parts(SOUND, log.end_offset):
        assert append(log, record) == ""


def test_a_body_that_comes_in_one_message_is_looked_at_too(log: RaftLog) -> None:
    assert "cannot be understood" in append(log, b"".join(parts(ODD, 0)))
    assert log.end_offset == 0


def test_after_a_cut_the_parts_that_stay_still_count(log: RaftLog) -> None:
    first, second, last = parts(ODD, 0)
    for record in (first, second):
        assert append(log, record) == ""
    log.truncate(LogTruncate(len(first)))
    assert append(log, second) == ""
    assert "cannot be understood" in append(log, last)


def test_after_a_start_the_parts_that_the_log_holds_still_count(tmp_path: Path) -> None:
    log = opened(tmp_path)
    *first, last = parts(ODD, 0)
    for record in first:
        assert append(log, record) == ""
    log.store.close()
    log = opened(tmp_path)
    assert "cannot be understood" in append(log, last)
    log.store.close()


def test_a_body_without_an_end_is_refused_at_its_limit(
    log: RaftLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_bytes, "BODY_BYTES_MAX", 300)
    *first, over = parts(bytes(6400), 0, count=64)[:4]
    for record in first:
        assert append(log, record) == ""
    assert "tables have 400 bytes" in append(log, over)
    assert "tables have" in append(log, over), "also when it comes again"
    # A later body begins at nothing, and so does one in a single record.
    for record in parts(SOUND, log.end_offset):
        assert append(log, record) == ""
    (large,) = parts(bytes(400), log.end_offset, count=1)
    assert "tables have" in append(log, large)


def test_tables_are_in_one_queue_only(log: RaftLog) -> None:
    (record,) = parts(SOUND, 0, count=1, queue_id=1)
    assert "queue 1" in append(log, record)


MEMBERS = Configuration.of("n0", "n1", "n2", "n3")


def control(log: RaftLog, configuration: Configuration | None, start_offset: int) -> bytes:
    """A control record of the leader at the log's end."""
    segment_bytes = log.store.config.segment_bytes
    message = control_message(
        Control(TERM, "n1", configuration), start_offset, segment_bytes, {}, 1000
    )
    return encode_record(message, 0, log.end_offset, 1000)


def test_the_bytes_of_a_leader_tell_the_members(log: RaftLog) -> None:
    """The leader does not tell them beside the bytes: round 765 of hostile leaders."""
    assert append(log, control(log, None, 0)) == ""
    at = log.end_offset
    record = control(log, MEMBERS, at)
    assert log.configurations_in(at, TERM, record) == ((at + len(record), MEMBERS),)
    (plain,) = parts(SOUND, at, count=1)
    assert log.configurations_in(at, TERM, plain) == ()


def test_members_without_a_voter_are_no_members(log: RaftLog) -> None:
    assert append(log, control(log, None, 0)) == ""
    assert "names no voters" in append(log, control(log, Configuration(()), log.end_offset))
