"""The master's half of a link, byte by byte and number by number."""

from __future__ import annotations

import struct

import pytest

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.ha import auth
from trioha.ha.events import SlaveReported
from trioha.ha.master_connection import MasterConnection
from trioha.wire.ha_frames import REPORT, TRANSFER_HEADER
from trioha.wire.need_data import NEED_DATA

SEGMENT = 1024
CHALLENGE = auth.challenge(bytes(28))


def connection(*, from_last: bool = False, challenge: bytes = b"") -> MasterConnection:
    return MasterConnection(
        segment_bytes=SEGMENT,
        transfer_batch_bytes_max=100,
        heartbeat_interval_ms=5000,
        empty_slave_from_last=from_last,
        secret="s3cret" if challenge else "",
        challenge=challenge,
    )


def reported(conn: MasterConnection, offset: int, least: int = 0, most: int = 5000) -> None:
    conn.receive_data(REPORT.pack(offset))
    assert isinstance(conn.next_event(least, most, 0), SlaveReported)


def test_serves_from_where_the_slave_reports() -> None:
    conn = connection()
    conn.receive_data(REPORT.pack(700))
    assert conn.next_event(0, 5000, 10) == SlaveReported(700, first=True)
    assert conn.next_event(0, 5000, 10) is NEED_DATA
    assert (conn.slave_request_offset, conn.slave_ack_offset) == (700, 700)
    assert conn.next_transfer_offset == 700
    assert conn.next_deadline_ms == 10
    conn.send_heartbeat(10)
    assert conn.next_deadline_ms == 5010


def test_a_report_is_understood_byte_by_byte() -> None:
    conn = connection()
    for byte in REPORT.pack(700)[:-1]:
        conn.receive_data(bytes([byte]))
        assert conn.next_event(0, 5000, 0) is NEED_DATA
    conn.receive_data(REPORT.pack(700)[-1:])
    assert conn.next_event(0, 5000, 0) == SlaveReported(700, first=True)


@pytest.mark.parametrize("cut", range(1, 40))
def test_of_what_arrived_only_the_last_complete_report_counts(cut: int) -> None:
    """HAConnection.java, processReadEvent: aligned to 8, the rest is kept."""
    conn = connection()
    reported(conn, 100)
    conn.send_transfer(memoryview(bytes(900)), 0)
    data = b"".join(REPORT.pack(offset) for offset in (200, 300, 400, 500, 600))
    conn.receive_data(data[:cut])
    if cut >= 8:
        assert conn.next_event(0, 5000, 0) == SlaveReported(100 + cut // 8 * 100, first=False)
    assert conn.next_event(0, 5000, 0) is NEED_DATA
    conn.receive_data(data[cut:])
    assert conn.next_event(0, 5000, 0) == SlaveReported(600, first=False)
    assert conn.slave_ack_offset == 600


def test_frames_follow_each_other_and_never_exceed_the_batch_size() -> None:
    conn = connection()
    reported(conn, 1000)
    body = memoryview(bytes(range(250)))
    buffers = conn.send_transfer(body, 77)
    headers = [TRANSFER_HEADER.unpack(header) for header in buffers[0::2]]
    assert headers == [(1000, 100), (1100, 100), (1200, 50)]
    assert b"".join(buffers[1::2]) == body
    assert conn.next_transfer_offset == 1250
    assert conn.next_deadline_ms == 5077


def test_a_heartbeat_carries_the_next_offset() -> None:
    conn = connection()
    reported(conn, 1000)
    assert TRANSFER_HEADER.unpack(conn.send_heartbeat(5000)) == (1000, 0)
    assert conn.next_deadline_ms == 10_000


def test_says_nothing_before_the_first_report() -> None:
    conn = connection()
    assert conn.next_deadline_ms is None
    with pytest.raises(LocalProtocolError):
        conn.send_transfer(memoryview(b"x"), 0)
    with pytest.raises(LocalProtocolError):
        conn.send_heartbeat(0)


def test_an_empty_slave_gets_the_log_from_its_first_segment() -> None:
    """Fault C2: Java ships only the last file of five."""
    conn = connection()
    reported(conn, 0, 1 * SEGMENT, 5 * SEGMENT - 10)
    assert conn.next_transfer_offset == SEGMENT


def test_an_empty_slave_gets_the_last_segment_if_so_configured() -> None:
    conn = connection(from_last=True)
    reported(conn, 0, 1 * SEGMENT, 5 * SEGMENT - 10)
    assert conn.next_transfer_offset == 4 * SEGMENT


def test_a_slave_ahead_of_us_is_refused_with_both_numbers() -> None:
    """Fault C1: one message more than the master, and it reconnected for ever."""
    conn = connection()
    conn.receive_data(REPORT.pack(5001))
    with pytest.raises(RemoteProtocolError, match=r"5001, beyond our end 5000.*empty the slave"):
        conn.next_event(0, 5000, 0)
    assert TRANSFER_HEADER.unpack(conn.last_words) == (5000, 0)


def test_a_slave_below_our_first_offset_is_refused_not_stalled() -> None:
    """Fault C1."""
    conn = connection()
    conn.receive_data(REPORT.pack(500))
    with pytest.raises(RemoteProtocolError, match=r"500, below our first offset 1024.*empty"):
        conn.next_event(1024, 5000, 0)
    assert TRANSFER_HEADER.unpack(conn.last_words) == (1024, 0)


@pytest.mark.parametrize("address", [b"", b"10.0.0.2:10911", b"127.0.0.1:10911", b"1.1.1.1:1091"])
@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (1, 1)])
def test_a_slave_in_controller_mode_is_named_for_what_it_is(
    flags: tuple[int, int], address: bytes
) -> None:
    conn = connection()
    conn.receive_data(struct.pack(">iHHi", 1, *flags, len(address)) + address)
    with pytest.raises(RemoteProtocolError, match=r"controller mode.*enableControllerMode=false"):
        conn.next_event(0, 5000, 0)


def test_a_slave_four_gibibytes_in_is_none() -> None:
    conn = connection()
    conn.receive_data(REPORT.pack(1 << 32) + REPORT.pack((1 << 32) + 1))
    assert conn.next_event(0, 1 << 33, 0) == SlaveReported((1 << 32) + 1, first=True)


@pytest.mark.parametrize("offset", [2**62, -1, -(2**63), 5001])
def test_a_bogus_first_report_is_refused(offset: int) -> None:
    """Fault C3."""
    conn = connection()
    conn.receive_data(REPORT.pack(offset))
    with pytest.raises(RemoteProtocolError, match=str(offset)):
        conn.next_event(0, 5000, 0)
    assert conn.slave_ack_offset == -1


@pytest.mark.parametrize("offset", [2**62, 5001, 1101, 999, 0, -1])
def test_a_bogus_ack_is_refused(offset: int) -> None:
    """Fault C3. Also one within our log but never sent to that slave."""
    conn = connection()
    reported(conn, 1000)
    conn.send_transfer(memoryview(bytes(100)), 0)
    conn.receive_data(REPORT.pack(offset))
    with pytest.raises(RemoteProtocolError, match=str(offset)):
        conn.next_event(0, 5000, 0)
    assert conn.slave_ack_offset == 1000


def test_nothing_is_sent_to_a_peer_that_has_proved_nothing() -> None:
    """Fault C4."""
    conn = connection(challenge=CHALLENGE)
    conn.receive_data(REPORT.pack(0))
    assert conn.next_event(0, 5000, 0) is NEED_DATA
    assert not conn.authenticated
    with pytest.raises(LocalProtocolError):
        conn.send_transfer(memoryview(b"log"), 0)
    conn.receive_data(REPORT.pack(0) * 3)
    with pytest.raises(RemoteProtocolError, match=r"haSecret.*haAllowedPeers"):
        conn.next_event(0, 5000, 0)
    assert conn.last_words == b""


def test_an_answer_then_a_report_are_understood_byte_by_byte() -> None:
    conn = connection(challenge=CHALLENGE)
    data = auth.answer("s3cret", CHALLENGE) + REPORT.pack(700)
    for count, byte in enumerate(data, 1):
        conn.receive_data(bytes([byte]))
        event = conn.next_event(0, 5000, 0)
        assert conn.authenticated is (count >= auth.ANSWER_BYTES)
        if count < len(data):
            assert event is NEED_DATA
    assert event == SlaveReported(700, first=True)


def test_an_answer_and_reports_in_one_read_are_told_apart() -> None:
    conn = connection(challenge=CHALLENGE)
    conn.receive_data(auth.answer("s3cret", CHALLENGE) + REPORT.pack(600) + REPORT.pack(700)[:5])
    assert conn.next_event(0, 5000, 0) == SlaveReported(600, first=True)


def test_a_flood_of_reports_is_not_kept() -> None:
    conn = connection()
    for _ in range(100):
        conn.receive_data(REPORT.pack(10) * 1000 + b"half")
        conn.receive_data(b"done")
    assert len(conn._buffer) <= 2 * REPORT.size
