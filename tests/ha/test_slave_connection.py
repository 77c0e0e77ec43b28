"""The slave's half of a link, byte by byte and number by number."""

from __future__ import annotations

import struct

import pytest

from trioha.errors import RemoteProtocolError
from trioha.ha import auth
from trioha.ha.events import LogTransferred, MasterHeartbeat, MetadataTransferred
from trioha.ha.slave_connection import CHALLENGE_PATIENCE_MS, FRAME_BYTES_MAX, SlaveConnection
from trioha.wire import record
from trioha.wire.ha_frames import REPORT, TRANSFER_HEADER
from trioha.wire.need_data import NEED_DATA

CHALLENGE = auth.challenge(bytes(range(28)))


def connection(
    max_phy_offset: int = 1000, *, secret: str = "", at_record: bool = False
) -> SlaveConnection:
    return SlaveConnection(
        max_phy_offset, 0, report_interval_ms=5000, secret=secret, at_record=at_record
    )


Event = LogTransferred | MetadataTransferred | MasterHeartbeat


def frame(phy_offset: int, body: bytes) -> bytes:
    return TRANSFER_HEADER.pack(phy_offset, len(body)) + body


def received(conn: SlaveConnection, data: bytes) -> list[Event]:
    conn.receive_data(data)
    events: list[Event] = []
    while True:
        event = conn.next_event()
        if event is NEED_DATA:
            return events
        events.append(event)


def log_of(events: list[Event]) -> bytes:
    return b"".join(event.body for event in events if isinstance(event, LogTransferred))


def test_reports_at_once_then_every_five_seconds() -> None:
    conn = connection()
    assert conn.report(0) == REPORT.pack(1000)
    assert conn.report(4999) == b""
    assert conn.next_deadline_ms == 5000
    assert conn.report(5000) == REPORT.pack(1000)
    assert conn.next_deadline_ms == 10_000


def test_in_bulk_the_middle_of_a_frame_is_reported_every_four_mebibytes_only() -> None:
    conn = connection()
    conn.report(0)
    part = bytes(1 << 20)
    reports = []
    data = TRANSFER_HEADER.pack(1000, FRAME_BYTES_MAX)
    for _ in range(FRAME_BYTES_MAX // len(part)):
        received(conn, data + part)
        data = b""
        reports.append(conn.report(1, in_bulk=True))
    assert [bool(report) for report in reports] == [False, False, False, True] * 4
    assert reports[-1] == REPORT.pack(1000 + FRAME_BYTES_MAX)


def test_in_bulk_a_frame_s_end_is_reported_at_once_and_a_due_report_leaves() -> None:
    conn = connection()
    conn.report(0)
    received(conn, frame(1000, bytes(10)) + TRANSFER_HEADER.pack(1010, 10))
    # Nothing of the second frame is here, yet its rest is sure to come.
    assert conn.report(1, in_bulk=True) == b""
    assert conn.report(5000, in_bulk=True) == REPORT.pack(1010)
    received(conn, bytes(10))
    assert conn.report(5001, in_bulk=True) == REPORT.pack(1020)


def test_one_report_follows_all_the_frames_of_a_read() -> None:
    conn = connection()
    conn.report(0)
    events = received(conn, frame(1000, b"abc") + frame(1003, b"de") + frame(1005, b""))
    assert log_of(events) == b"abcde"
    assert events[-1] == MasterHeartbeat(1005)
    assert conn.report(1) == REPORT.pack(1005)
    assert conn.report(2) == b""


def test_frames_are_understood_byte_by_byte() -> None:
    conn = connection()
    data = frame(1000, b"abc") + frame(1003, b"") + frame(1003, b"defgh")
    events = [event for byte in data for event in received(conn, bytes([byte]))]
    assert log_of(events) == b"abcdefgh"
    assert MasterHeartbeat(1003) in events
    assert conn.max_phy_offset == 1008


@pytest.mark.parametrize("cut", range(38))
def test_frames_may_be_cut_at_any_byte(cut: int) -> None:
    conn = connection()
    data = frame(1000, b"abc") + frame(1003, b"") + frame(1003, b"defghijk")
    assert log_of(received(conn, data[:cut]) + received(conn, data[cut:])) == b"abcdefghijk"


def test_part_of_a_frame_is_handed_on_and_reported() -> None:
    conn = connection()
    conn.report(0)
    assert received(conn, frame(1000, b"abcdef")[:-2]) == [
        LogTransferred(1000, memoryview(b"abcd"))
    ]
    assert conn.gap_bytes == conn.frame_bytes_left == 2
    assert conn.report(1) == REPORT.pack(1004)
    assert received(conn, b"ef") == [LogTransferred(1004, memoryview(b"ef"))]
    assert conn.gap_bytes == conn.frame_bytes_left == 0


@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_master_behind_us_ends_the_link_with_both_numbers(body: bytes) -> None:
    """Fault C1."""
    conn = connection(1000)
    conn.receive_data(frame(900, body))
    with pytest.raises(RemoteProtocolError, match=r"master is at offset 900.*ends at 1000"):
        conn.next_event()
    assert not conn.heard


@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_gap_before_the_master_s_log_ends_the_link_with_both_numbers(body: bytes) -> None:
    """Fault C1."""
    conn = connection(1000)
    conn.receive_data(frame(2048, body))
    with pytest.raises(RemoteProtocolError, match=r"goes on at offset 2048, ours ends at 1000"):
        conn.next_event()


@pytest.mark.parametrize("cut", range(32))
@pytest.mark.parametrize("magic", [record.MAGIC, record.BLANK_MAGIC])
def test_behind_a_whole_record_another_one_begins_however_it_is_cut(magic: int, cut: int) -> None:
    conn = connection(at_record=True)
    body = struct.pack(">iI", 100, magic) + b"and the rest"
    data = frame(1000, body)
    assert log_of(received(conn, data[:cut]) + received(conn, data[cut:])) == body
    # It is asked once: later frames may begin anywhere.
    assert log_of(received(conn, frame(1020, b"go on"))) == b"go on"


@pytest.mark.parametrize("body", [bytes(range(40)), b"tiny", bytes(8)])
def test_a_log_that_meets_the_master_s_within_a_record_is_refused_and_kept(body: bytes) -> None:
    conn = connection(at_record=True)
    data = frame(1000, body)
    events = []
    with pytest.raises(RemoteProtocolError, match=r"no record begins at offset 1000 .* differ"):
        for byte in data:
            events += received(conn, bytes([byte]))
    assert events == []
    assert conn.max_phy_offset == 1000


def test_an_empty_log_takes_any_start_but_reports_nothing_before_it_holds_it() -> None:
    conn = connection(0)
    assert conn.report(0) == REPORT.pack(0)
    assert received(conn, frame(2048, b"")) == [MasterHeartbeat(2048)]
    assert received(conn, frame(2048, b"ab")[:12]) == []
    assert conn.report(5000) == REPORT.pack(0)
    assert received(conn, b"ab") == [LogTransferred(2048, memoryview(b"ab"))]
    assert conn.report(5001) == REPORT.pack(2050)


@pytest.mark.parametrize(
    ("phy_offset", "size"), [(1000, -1), (1000, FRAME_BYTES_MAX + 1), (-1, 4), (1000, -(2**31))]
)
def test_a_lying_size_or_offset_ends_the_link(phy_offset: int, size: int) -> None:
    conn = connection()
    conn.receive_data(TRANSFER_HEADER.pack(phy_offset, size))
    with pytest.raises(RemoteProtocolError, match=str(size)):
        conn.next_event()


def test_holds_its_report_back_until_it_has_answered_the_challenge() -> None:
    conn = connection(secret="s3cret")
    assert conn.report(0) == b""
    assert received(conn, CHALLENGE) == []
    assert conn.report(1) == auth.answer("s3cret", CHALLENGE) + REPORT.pack(1000)
    assert log_of(received(conn, frame(1000, b"abc"))) == b"abc"


@pytest.mark.parametrize("cut", range(1, 44))
def test_a_challenge_may_be_cut_at_any_byte(cut: int) -> None:
    conn = connection(secret="s3cret")
    data = CHALLENGE + frame(1000, b"abc")
    events = received(conn, data[:cut])
    said = conn.report(1)
    assert bool(said) is (cut >= auth.CHALLENGE_BYTES)
    assert log_of(events + received(conn, data[cut:])) == b"abc"


def test_a_master_without_a_challenge_gets_its_report_after_a_second() -> None:
    """A Java master, or one whose haAllowedPeers has us."""
    conn = connection(secret="s3cret")
    assert conn.next_deadline_ms == CHALLENGE_PATIENCE_MS
    assert conn.report(CHALLENGE_PATIENCE_MS) == REPORT.pack(1000)
    assert log_of(received(conn, frame(1000, b"abc"))) == b"abc"
    assert conn.report(CHALLENGE_PATIENCE_MS + 1) == REPORT.pack(1003)


def test_a_challenge_without_a_secret_says_what_to_set() -> None:
    conn = connection()
    conn.report(0)
    conn.receive_data(CHALLENGE)
    with pytest.raises(RemoteProtocolError, match="set haSecret"):
        conn.next_event()


def test_a_challenge_that_comes_too_late_ends_the_link() -> None:
    conn = connection(secret="s3cret")
    conn.report(CHALLENGE_PATIENCE_MS)
    conn.receive_data(CHALLENGE)
    with pytest.raises(RemoteProtocolError, match="trying again"):
        conn.next_event()
