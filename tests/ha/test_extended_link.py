"""Both machines on an extended link: epochs in every frame, metadata between stretches of log."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.ha import auth
from trioha.ha.events import (
    LogTransferred,
    MasterHeartbeat,
    MetadataTransferred,
    SlaveReported,
    Term,
)
from trioha.ha.master_connection import MasterConnection
from trioha.ha.slave_connection import SlaveConnection
from trioha.wire.ha_frames import (
    EXTENDED_HEADER,
    EXTENDED_OPENING,
    KIND_HEARTBEAT,
    KIND_LOG,
    KIND_METADATA,
    METADATA_BYTES_MAX,
    REPORT,
)
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import Buffer

TERM = Term(3, b"\x03" * 8)
CHALLENGE = auth.challenge(bytes(28))


def master(term: Term | None = TERM, challenge: bytes = b"") -> MasterConnection:
    return MasterConnection(
        segment_bytes=1024,
        transfer_batch_bytes_max=100,
        heartbeat_interval_ms=5000,
        secret="s3cret" if challenge else "",
        challenge=challenge,
        term=term,
    )


def slave(end: int = 0, term: Term = TERM, secret: str = "") -> SlaveConnection:
    return SlaveConnection(end, 0, report_interval_ms=5000, secret=secret, term=term, home_id=7)


def joined(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)


def linked(end: int = 0, most: int = 5000) -> tuple[MasterConnection, SlaveConnection]:
    ours, theirs = master(), slave(end)
    ours.receive_data(theirs.report(0))
    assert ours.next_event(0, most, 0) == SlaveReported(end, True, -1)
    return ours, theirs


def told(theirs: SlaveConnection, data: bytes) -> list[object]:
    theirs.receive_data(data)
    found: list[object] = []
    while (event := theirs.next_event()) is not NEED_DATA:
        found.append(
            ("log", event.phy_offset, bytes(event.body))
            if isinstance(event, LogTransferred)
            else event
        )
    return found


def test_a_slave_opens_with_its_epoch_and_its_home_id() -> None:
    ours, _ = linked(end=700)
    assert (ours.epoch, ours.home_id, ours.next_transfer_offset) == (3, 7, 700)


def test_an_opening_is_understood_byte_by_byte() -> None:
    ours = master()
    data = slave(700).report(0)
    for byte in data[:-1]:
        ours.receive_data(bytes([byte]))
        assert ours.next_event(0, 5000, 0) is NEED_DATA
    ours.receive_data(data[-1:])
    assert ours.next_event(0, 5000, 0) == SlaveReported(700, True, -1)


def test_an_opening_may_come_behind_the_proof_in_one_read() -> None:
    ours, theirs = master(challenge=CHALLENGE), slave(700, secret="s3cret")
    assert told(theirs, CHALLENGE) == []
    ours.receive_data(theirs.report(0))
    assert ours.next_event(0, 5000, 0) == SlaveReported(700, True, -1)


def test_nobody_gets_in_on_an_opening_instead_of_a_proof() -> None:
    ours = master(challenge=CHALLENGE)
    ours.receive_data(slave(700).report(0))
    with pytest.raises(RemoteProtocolError, match="wrong answer to the challenge"):
        ours.next_event(0, 5000, 0)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (Term(2, b"\x02" * 8), "shook hands on epoch 2, ours is 3: it has to ask again"),
        (Term(4, b"\x04" * 8), "shook hands on epoch 4, ours is 3"),
        (Term(3, b"\x09" * 8), "ours is 3 by another master"),
    ],
)
def test_a_slave_of_another_epoch_is_turned_away_and_acknowledges_nothing(
    term: Term, words: str
) -> None:
    ours = master()
    ours.receive_data(slave(700, term).report(0))
    with pytest.raises(RemoteProtocolError, match=words):
        ours.next_event(0, 5000, 0)
    assert ours.slave_ack_offset == -1


def test_a_master_without_epochs_serves_no_extended_link() -> None:
    ours = master(None)
    ours.receive_data(slave().report(0))
    with pytest.raises(RemoteProtocolError, match="this master has none"):
        ours.next_event(0, 5000, 0)


def test_a_classic_slave_is_served_classic_frames_by_the_same_machine() -> None:
    ours, theirs = master(), SlaveConnection(700, 0, report_interval_ms=5000)
    ours.receive_data(theirs.report(0))
    assert ours.next_event(0, 5000, 0) == SlaveReported(700, True)
    assert ours.epoch == 0
    data = joined(ours.send_transfer(memoryview(b"x" * 250), 0)) + ours.send_heartbeat(0)
    events = told(theirs, data)
    assert b"".join(event[2] for event in events if isinstance(event, tuple)) == b"x" * 250
    assert events[-1] == MasterHeartbeat(950)


def test_log_and_metadata_arrive_in_the_order_in_which_they_were_sent() -> None:
    ours, theirs = linked()
    data = joined(ours.send_metadata(5, b"snapshot", 0))
    data += joined(ours.send_transfer(memoryview(b"a" * 150), 0))
    data += joined(ours.send_metadata(6, b"topic", 0))
    data += joined(ours.send_metadata(7, b"", 0))
    data += joined(ours.send_transfer(memoryview(b"b" * 10), 0)) + ours.send_heartbeat(0)
    assert told(theirs, data) == [
        MetadataTransferred(5, b"snapshot"),
        ("log", 0, b"a" * 100),
        ("log", 100, b"a" * 50),
        MetadataTransferred(6, b"topic"),
        MetadataTransferred(7, b""),
        ("log", 150, b"b" * 10),
        MasterHeartbeat(160),
    ]
    ours.receive_data(theirs.report(0))
    assert ours.next_event(0, 5000, 0) == SlaveReported(160, False, 7)
    assert theirs.report(1) == b"", "nothing new"


def test_metadata_alone_is_acknowledged_at_once() -> None:
    ours, theirs = linked(end=700)
    told(theirs, joined(ours.send_metadata(9, b"commit", 0)))
    ours.receive_data(theirs.report(1))
    assert ours.next_event(0, 5000, 1) == SlaveReported(700, False, 9)
    assert ours.metadata_ack_position == 9


@given(cuts=st.lists(st.integers(1, 40), max_size=40))
def test_it_does_not_matter_how_the_network_cuts(cuts: list[int]) -> None:
    ours, theirs = linked()
    data = joined(ours.send_metadata(1, b"m" * 30, 0))
    data += joined(ours.send_transfer(memoryview(bytes(range(230))), 0))
    data += joined(ours.send_metadata(2, b"n", 0)) + ours.send_heartbeat(0)
    log, metadata = b"", []
    for size in [*cuts, len(data)]:
        part, data = data[:size], data[size:]
        for event in told(theirs, part):
            if isinstance(event, tuple):
                assert event[1] == len(log)
                log += event[2]
            elif isinstance(event, MetadataTransferred):
                metadata.append((event.position, event.body))
                assert len(log) == (0 if event.position == 1 else 230)
    assert log == bytes(range(230))
    assert metadata == [(1, b"m" * 30), (2, b"n")]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ((KIND_LOG, 2, 0, 10), "frame of epoch 2 on a link of epoch 3"),
        ((KIND_LOG, 4, 0, 10), "frame of epoch 4 on a link of epoch 3"),
        ((KIND_METADATA, 2, 0, 0), "frame of epoch 2"),
        ((KIND_HEARTBEAT, 2, 0, 0), "frame of epoch 2"),
        ((KIND_HEARTBEAT, 3, 0, 8), "kind 3, 8 bytes"),
        ((9, 3, 0, 0), "kind 9"),
        ((KIND_METADATA, 3, 0, METADATA_BYTES_MAX + 1), "at most"),
        ((KIND_METADATA, 3, 0, -1), "metadata of -1 bytes"),
        ((KIND_METADATA, 3, -2, 1), "at position -2"),
        ((KIND_LOG, 3, 0, -1), "frame of -1 bytes"),
    ],
)
def test_a_slave_refuses_frames_that_are_none_of_its_link(
    header: tuple[int, int, int, int], words: str
) -> None:
    _, theirs = linked()
    theirs.receive_data(EXTENDED_HEADER.pack(*header))
    with pytest.raises(RemoteProtocolError, match=words):
        theirs.next_event()


@pytest.mark.parametrize("position", [8, 2, -1])
def test_an_ack_of_metadata_that_was_not_sent_or_falls_ends_the_link(position: int) -> None:
    ours, theirs = linked()
    told(theirs, joined(ours.send_metadata(3, b"x", 0)))
    ours.receive_data(theirs.report(0))
    ours.next_event(0, 5000, 0)
    ours.send_metadata(7, b"y", 0)
    ours.receive_data(REPORT.pack(0) + REPORT.pack(position))
    with pytest.raises(RemoteProtocolError, match=f"acknowledges metadata up to {position}"):
        ours.next_event(0, 5000, 0)


def test_metadata_on_a_classic_link_is_our_own_mistake() -> None:
    ours = master()
    ours.receive_data(REPORT.pack(0))
    ours.next_event(0, 5000, 0)
    with pytest.raises(LocalProtocolError):
        ours.send_metadata(1, b"x", 0)


def test_a_flood_of_openings_is_not_kept() -> None:
    ours, _ = linked()
    for _ in range(100):
        ours.receive_data(REPORT.pack(0) * 2000)
    assert len(ours._buffer) <= 32


def test_no_offset_looks_like_the_magic_of_an_opening() -> None:
    opening = slave().report(0)
    assert REPORT.unpack_from(opening)[0] < 0
    assert EXTENDED_OPENING.size % REPORT.size == 0
