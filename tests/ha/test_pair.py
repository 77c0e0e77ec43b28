"""Both machines back to back over a link that splits, delays, cuts and comes back.

Safety: a slave's log is always a prefix of its master's, and no ack exceeds what the slave holds.
Liveness: once the link is left alone, both logs end equal.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.memory.log import MemoryLog

from trioha.ha import auth
from trioha.ha.events import LogTransferred
from trioha.ha.master_connection import MasterConnection
from trioha.ha.replicas import Replicas
from trioha.ha.slave_connection import SlaveConnection
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.need_data import NEED_DATA

SEGMENT = 64
BATCH = 16
NONCE = bytes(28)


class Pair:
    """A master, a slave, and the bytes between them."""

    def __init__(self, master: MemoryLog, slave: MemoryLog, secret: str = "") -> None:
        self.master, self.slave = master, slave
        self.secret = secret
        self.replicas = Replicas(
            RecordedEvents(),
            fallbehind_max=1 << 20,
            heartbeat_interval_ms=5000,
            housekeeping_ms=20_000,
            stall_ms_max=3000,
        )
        self.now_ms = 0
        self.connected = False

    def connect(self) -> None:
        challenge = auth.challenge(NONCE) if self.secret else b""
        self.to_slave, self.to_master = bytearray(challenge), bytearray()
        self.ours = MasterConnection(
            segment_bytes=SEGMENT,
            transfer_batch_bytes_max=BATCH,
            heartbeat_interval_ms=5000,
            secret=self.secret,
            challenge=challenge,
        )
        self.theirs = SlaveConnection(
            self.slave.max_phy_offset if self.slave.data else 0,
            self.now_ms,
            report_interval_ms=5000,
            secret=self.secret,
        )
        self.replica = self.replicas.connect("slave", self.now_ms)
        self.connected = True
        self.slave_speaks()

    def cut(self) -> None:
        self.replicas.disconnect(self.replica, self.master.max_phy_offset)
        self.connected = False

    def slave_speaks(self) -> None:
        self.to_master += self.theirs.report(self.now_ms)

    def master_speaks(self, size_max: int) -> None:
        if self.ours.next_transfer_offset < 0:
            return
        body = self.master.read_log(self.ours.next_transfer_offset, size_max)
        if body:
            for buffer in self.ours.send_transfer(body, self.now_ms):
                self.to_slave += buffer
            self.replicas.transferred(
                self.replica, len(body), self.ours.next_transfer_offset, self.now_ms
            )
        elif self.ours.next_deadline_ms is not None and self.now_ms >= self.ours.next_deadline_ms:
            self.to_slave += self.ours.send_heartbeat(self.now_ms)

    def slave_hears(self, size: int) -> None:
        data = bytes(self.to_slave[:size])
        del self.to_slave[:size]
        self.theirs.receive_data(data)
        while (event := self.theirs.next_event()) is not NEED_DATA:
            if isinstance(event, LogTransferred):
                self.slave.append_log(event.phy_offset, event.body)
        self.slave_speaks()

    def master_hears(self, size: int) -> None:
        data = bytes(self.to_master[:size])
        del self.to_master[:size]
        self.ours.receive_data(data)
        least, most = self.master.min_phy_offset, self.master.max_phy_offset
        while (event := self.ours.next_event(least, most, self.now_ms)) is not NEED_DATA:
            self.replicas.acknowledge(self.replica, event.offset, most, self.now_ms)

    def settle(self) -> None:
        """Leave the link alone until nothing moves."""
        if not self.connected:
            self.connect()
        for _ in range(10_000):
            self.now_ms += 1
            self.master_speaks(SEGMENT)
            if not self.to_slave and not self.to_master and not self.theirs.report(self.now_ms):
                break
            self.slave_hears(len(self.to_slave))
            self.master_hears(len(self.to_master))

    def check(self) -> None:
        begin = self.slave.base - self.master.base
        held = bytes(self.slave.data)
        assert bytes(self.master.data[begin : begin + len(held)]) == held
        assert self.replicas.push2slave_max_offset <= self.slave.max_phy_offset


@pytest.mark.parametrize("secret", ["", "s3cret"])
@pytest.mark.parametrize("step", [1, 7, 4096])
def test_logs_become_equal_however_the_bytes_are_split(secret: str, step: int) -> None:
    master, slave = MemoryLog(SEGMENT), MemoryLog(SEGMENT)
    master.write(bytes(range(200)))
    pair = Pair(master, slave, secret)
    pair.connect()
    for _ in range(4000 // step + 20):
        pair.master_hears(step)
        pair.master_speaks(30)
        pair.slave_hears(step)
        pair.check()
    assert slave.data == master.data
    assert pair.replicas.push2slave_max_offset == 200


def test_logs_become_equal_after_a_cut_at_every_byte() -> None:
    wire_bytes = 200 + 12 * 15 + 32
    for cut in range(wire_bytes):
        master, slave = MemoryLog(SEGMENT), MemoryLog(SEGMENT)
        master.write(bytes(range(200)))
        pair = Pair(master, slave, "s3cret")
        pair.connect()
        left = cut
        while left:
            size = min(left, max(1, len(pair.to_slave)))
            pair.slave_hears(size)
            left -= size
            pair.master_hears(len(pair.to_master))
            pair.master_speaks(SEGMENT)
        pair.check()
        pair.cut()
        pair.now_ms += 5000
        pair.settle()
        pair.check()
        assert slave.data == master.data, f"cut after {cut} bytes"


def test_a_master_that_was_emptied_by_retention_feeds_a_new_slave_from_its_first_segment() -> None:
    master, slave = MemoryLog(SEGMENT), MemoryLog(SEGMENT)
    master.write(bytes(range(200)))
    master.forget_before(130)
    pair = Pair(master, slave)
    pair.settle()
    assert (slave.base, slave.data) == (128, master.data[128:])


class HostileLink(RuleBasedStateMachine):
    """Drawn per run: with or without a secret, master's log new or shortened by retention."""

    @initialize(
        secret=st.sampled_from(["", "s3cret"]), size=st.integers(0, 200), forgotten=st.booleans()
    )
    def start(self, secret: str, size: int, forgotten: bool) -> None:
        master = MemoryLog(SEGMENT)
        master.write(bytes(index % 251 for index in range(size)))
        if forgotten:
            master.forget_before(size)
        self.pair = Pair(master, MemoryLog(SEGMENT), secret)
        self.written = size

    @rule(size=st.integers(1, 90))
    def write(self, size: int) -> None:
        data = bytes(index % 251 for index in range(self.written, self.written + size))
        self.pair.master.write(data)
        self.written += size

    @precondition(lambda self: not self.pair.connected)
    @rule()
    def connect(self) -> None:
        self.pair.connect()

    @precondition(lambda self: self.pair.connected)
    @rule()
    def cut(self) -> None:
        self.pair.cut()

    @precondition(lambda self: self.pair.connected)
    @rule(size_max=st.integers(1, 100))
    def master_speaks(self, size_max: int) -> None:
        self.pair.master_speaks(size_max)

    @precondition(lambda self: self.pair.connected)
    @rule(size=st.integers(0, 80))
    def slave_hears(self, size: int) -> None:
        self.pair.slave_hears(size)

    @precondition(lambda self: self.pair.connected)
    @rule(size=st.integers(0, 40))
    def master_hears(self, size: int) -> None:
        self.pair.master_hears(size)

    @rule(elapsed_ms=st.sampled_from([1, 999, 5000]))
    def time_passes(self, elapsed_ms: int) -> None:
        # A challenge on its way must not outlast the slave's patience: that cuts the link.
        if self.pair.connected and self.pair.secret and not self.pair.ours.authenticated:
            elapsed_ms = 1
        self.pair.now_ms += elapsed_ms
        if self.pair.connected:
            self.pair.slave_speaks()

    @invariant()
    def is_safe(self) -> None:
        if hasattr(self, "pair"):
            self.pair.check()

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.settle()
            self.pair.check()
            slave, master = self.pair.slave, self.pair.master
            nothing_held = master.min_phy_offset == master.max_phy_offset
            assert nothing_held or slave.max_phy_offset == master.max_phy_offset


HostileLink.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_pair_over_a_hostile_link = HostileLink.TestCase
