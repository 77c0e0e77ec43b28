"""Peers on the HA port that do what no real one can be made to do, before real nodes of ours.

Each is named in words in the journal and in `trioha ha status`, disturbs no node, and is followed
by a peer that behaves. What real peers do wrong is in `tests/interop/test_bad_links.py`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest
from support.clusters.pair import SMALL_FILES
from support.processes.admin import put_topic, request
from support.processes.faults import RawPeer
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv
from support.processes.status import check_sound, journal, node_status, run_trioha, wait_until

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.codes import ResponseCode
from trioha.wire.ha_frames import REPORT, TRANSFER_HEADER

pytestmark = pytest.mark.slow

PACE = {"haReconnectInterval": 200}
SETTINGS = {**SMALL_FILES, **PACE}
ANSWER_S = 10.0
HANDSHAKE_OF_RELEASE_5 = struct.pack(">iHHi", 1, 0, 0, 15) + b"127.0.0.1:10911"


def send_some(broker: Node, count: int = 20) -> int:
    """Send messages; return the end of the log afterwards."""
    put_topic(broker.address, "T")
    for number in range(count):
        command = send_command(
            "g", Message("T", b"x" * 100), str(number), MessageQueue("T", "", 0), 1
        )
        assert request(broker.address, command).code == ResponseCode.SUCCESS
    end = node_status(broker)["max_phy_offset"]
    assert isinstance(end, int)
    return end


def words_of(namesrv: Node) -> str:
    """Return what `ha status` prints."""
    return run_trioha("ha", "status", "-n", namesrv.address).out


def reasons(node: Node, *events: str) -> list[str]:
    return [event.fields["reason"] for event in journal(node) if event.name in events]


@pytest.fixture
def namesrv(processes: Processes) -> Node:
    return trioha_namesrv(processes).start()


@pytest.fixture
def master(processes: Processes, namesrv: Node) -> Node:
    return trioha_broker(processes, namesrv.address, settings=SETTINGS).start()


class FakeSlave(RawPeer):
    """Reports what it is told to, and reads what comes."""

    def __enter__(self) -> FakeSlave:
        return self

    def report(self, offset: int) -> FakeSlave:
        self.send(REPORT.pack(offset))
        return self

    def read(self, size: int) -> bytes:
        self.socket.settimeout(ANSWER_S)
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, f"the master hung up after {len(data)} bytes"
            data += part
        return data

    def read_frame(self) -> tuple[int, bytes]:
        offset, size = TRANSFER_HEADER.unpack(self.read(TRANSFER_HEADER.size))
        return offset, self.read(size)


def _beyond_the_end(slave: FakeSlave, end: int) -> None:
    slave.report(end + 1)


def _never_sent(slave: FakeSlave, end: int) -> None:
    slave.report(end)
    slave.read_frame()
    slave.report(end + 1)


def _backwards(slave: FakeSlave, end: int) -> None:
    slave.report(end)
    slave.read_frame()
    slave.report(end - 100)


def _below_zero(slave: FakeSlave, end: int) -> None:
    slave.report(-1)


def _another_protocol(slave: FakeSlave, end: int) -> None:
    slave.send(b"GET / HTTP/1.1\r\n\r\n")


def _controller_mode(slave: FakeSlave, end: int) -> None:
    slave.send(HANDSHAKE_OF_RELEASE_5)


@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        (_beyond_the_end, "beyond our end"),
        (_never_sent, "but was sent only up to"),
        (_backwards, "it lost part of its log"),
        (_below_zero, "slave reports offset -1"),
        (_another_protocol, "slave reports offset"),
        (_controller_mode, "controller mode"),
    ],
)
def test_a_slave_that_reports_nonsense_is_named_and_a_sane_one_is_served(
    master: Node, namesrv: Node, misbehave: Callable[[FakeSlave, int], None], words: str
) -> None:
    end = send_some(master)
    assert master.ha_address is not None
    with FakeSlave(master.ha_address) as slave:
        misbehave(slave, end)
        slave.wait_closed(ANSWER_S)
    wait_until("told", lambda: any(words in reason for reason in reasons(master, "ha_refused")))
    assert words in words_of(namesrv)
    assert node_status(master)["connections"] == []

    with FakeSlave(master.ha_address) as sane:
        assert sane.report(0).read_frame()[0] == 0
        wait_until("connected", lambda: node_status(master)["connections"])
        (link,) = node_status(master)["connections"]
        # The host it came from has a story, and it is told.
        assert words in link["last_error"]


def test_a_slave_that_ends_within_a_record_is_served_and_doubted(
    master: Node, namesrv: Node
) -> None:
    end = send_some(master)
    assert master.ha_address is not None
    with FakeSlave(master.ha_address) as slave:
        assert slave.report(end - 10).read_frame()[0] == end - 10
        wait_until("doubted", lambda: reasons(master, "ha_doubtful"))
        assert f"ends at {end - 10}, within one of our records" in reasons(master, "ha_doubtful")[0]
        assert "within one of our records" in words_of(namesrv)


def test_a_gap_has_the_age_of_the_oldest_message_the_slave_lacks(master: Node) -> None:
    end = send_some(master)
    assert master.ha_address is not None
    with FakeSlave(master.ha_address) as slave:
        slave.report(0).read_frame()

        def link() -> dict[str, Any]:
            (link,) = node_status(master)["connections"] or [{}]
            return dict(link)

        wait_until("known", lambda: link().get("gap_bytes") == end)
        first, second = link()["gap_s"], link()["gap_s"]
        assert isinstance(first, float)
        assert isinstance(second, float)
        assert 0 < first <= second < 60
        slave.report(end)
        wait_until("level", lambda: link()["gap_s"] == 0.0)


def test_a_link_that_broke_within_a_record_is_no_reason_to_doubt(master: Node) -> None:
    end = send_some(master)
    assert master.ha_address is not None
    with FakeSlave(master.ha_address) as slave:
        slave.report(0).read(100)
        wait_until("connected", lambda: node_status(master)["connections"])
    wait_until("gone", lambda: not node_status(master)["connections"])
    with FakeSlave(master.ha_address) as slave:
        assert slave.report(77).read_frame()[0] == 77
    assert end > 77
    assert reasons(master, "ha_doubtful") == []


@attrs.define(eq=False)
class FakeMaster:
    """Answers each link's first report with the next of `answers`, the last one for ever."""

    answers: Sequence[Callable[[int], bytes]]
    listener: socket.socket = attrs.Factory(lambda: socket.create_server(("127.0.0.1", 0)))
    links: list[socket.socket] = attrs.Factory(list)

    @property
    def address(self) -> str:
        host, port = self.listener.getsockname()
        return f"{host}:{port}"

    def serve(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
                (offset,) = REPORT.unpack(link.recv(REPORT.size, socket.MSG_WAITALL))
            except (OSError, struct.error):
                return
            answer = self.answers[min(len(self.links), len(self.answers) - 1)](offset)
            self.links.append(link)
            link.sendall(answer)
            if not answer:
                link.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for link in self.links:
            link.close()


@pytest.fixture
def log(processes: Processes, namesrv: Node) -> bytes:
    """Return the log of a broker that is gone."""
    donor = trioha_broker(processes, namesrv.address, name="donor", settings=SETTINGS).start()
    end = send_some(donor)
    donor.stop()
    return min(donor.commitlog.iterdir()).read_bytes()[:end]


@pytest.fixture
def fake_master(request: pytest.FixtureRequest, log: bytes) -> Iterator[FakeMaster]:
    """Start a master that behaves badly once, as the test's parameter says, then ships the log."""

    def behave(offset: int) -> bytes:
        return TRANSFER_HEADER.pack(offset, len(log) - offset) + log[offset:]

    master = FakeMaster([lambda offset: request.param(offset, log), behave])
    thread = threading.Thread(target=master.serve, name="fake_master", daemon=True)
    thread.start()
    yield master
    master.close()
    thread.join(ANSWER_S)


def _garbage(offset: int, log: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def _hang_up(offset: int, log: bytes) -> bytes:
    return b""


def _huge_frame(offset: int, log: bytes) -> bytes:
    return TRANSFER_HEADER.pack(offset, 64 << 20) + log


def _gap(offset: int, log: bytes) -> bytes:
    half = TRANSFER_HEADER.pack(0, 40) + log[:40]
    return half + TRANSFER_HEADER.pack(80, 40) + log[80:120]


def _not_a_record(offset: int, log: bytes) -> bytes:
    return TRANSFER_HEADER.pack(offset, 100) + log[50:150]


@pytest.mark.parametrize(
    ("fake_master", "words"),
    [
        (_garbage, "this is no HA port"),
        (_hang_up, "hung up on our report of offset 0"),
        (_huge_frame, "haTransferBatchSize of the master is too large"),
        (_gap, "goes on at offset 80, ours ends at 40"),
        (_not_a_record, "no record begins at offset 0"),
    ],
    indirect=["fake_master"],
)
def test_a_master_that_sends_nonsense_is_named_and_followed_when_it_behaves(
    processes: Processes, namesrv: Node, fake_master: FakeMaster, log: bytes, words: str
) -> None:
    settings = {**SETTINGS, "haMasterAddress": fake_master.address}
    slave = trioha_broker(
        processes, namesrv.address, broker_id=1, role="SLAVE", settings=settings
    ).start()
    wait_until("told", lambda: reasons(slave, "ha_refused", "ha_disconnected"))
    assert words in reasons(slave, "ha_refused", "ha_disconnected")[0]
    wait_until("level", lambda: node_status(slave)["dispatched_offset"] == len(log))
    told = node_status(slave)["slave"]
    assert told["state"] == "TRANSFER"
    assert words in told["last_error"]
    assert told["reconnects"] == 1
    status = words_of(namesrv)
    assert "LAST ERROR OF" in status
    assert "TRANSFER" in status
    slave.stop()
    check_sound(slave)
    assert min(slave.commitlog.iterdir()).read_bytes()[: len(log)] == log
