"""Master and slave with their real shells, over memory streams and over loopback."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from support.memory.links import MemoryListener
from support.memory.log import MemoryLog

from trioha.config import BrokerConfig
from trioha.ha.events import Term
from trioha.ha.replicas import Replicas
from trioha.services.ha import master_link as ha_master_link
from trioha.services.ha.client import HaClient
from trioha.services.ha.client_link import HaClientLink, SlaveContext
from trioha.services.ha.client_link_tasks import follow_master
from trioha.services.ha.master import HaMaster, open_replicas
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport, connect, open_listener
from trioha.testing.recorded_events import RecordedEvents

SEGMENT = 4096


class Acks:
    """Offsets acknowledged at each call of `on_report`, and an event for the next call."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.offsets: list[int] = []
        self.came = trio.Event()

    def add(self, now_ms: int) -> None:
        self.offsets.append(self._replicas.push2slave_max_offset)
        self.came.set()
        self.came = trio.Event()


@attrs.define(eq=False)
class Pair:
    master_log: MemoryLog
    slave_log: MemoryLog
    replicas: Replicas
    master_events: RecordedEvents
    slave_events: RecordedEvents
    acks: Acks
    master: HaMaster
    slave: HaClient

    def grow(self, data: bytes) -> None:
        self.master_log.write(data)
        self.master.on_log_grown(urgent=True)

    async def wait(self, done: Callable[[], bool], within_s: float = 60) -> None:
        """Wait for what only an ack can bring about."""
        with trio.fail_after(within_s):
            while not done():
                await self.acks.came.wait()

    async def wait_equal(self) -> None:
        await self.wait(
            lambda: self.replicas.push2slave_max_offset == self.master_log.max_phy_offset
        )
        assert self.slave_log.data == self.master_log.data[self.slave_log.base :]


@asynccontextmanager
async def paired(
    *,
    loopback: bool = False,
    master_data: bytes = b"",
    slave_data: bytes = b"",
    master_settings: dict[str, Any] | None = None,
    slave_settings: dict[str, Any] | None = None,
) -> AsyncIterator[Pair]:
    ours = BrokerConfig(mapped_file_size_commit_log=SEGMENT, **(master_settings or {}))
    theirs = BrokerConfig(mapped_file_size_commit_log=SEGMENT, **(slave_settings or {}))
    master_log, slave_log = MemoryLog(SEGMENT), MemoryLog(SEGMENT)
    master_log.write(master_data)
    slave_log.write(slave_data)
    master_events, slave_events = RecordedEvents(), RecordedEvents()
    replicas = open_replicas(ours, master_events)
    acks = Acks(replicas)
    memory = MemoryListener()
    socket = open_listener("127.0.0.1", 0) if loopback else None
    address = MasterAddress(socket.address if socket else "master:10912")
    clock = Clock() if loopback else Clock.virtual()

    master = HaMaster(
        store=master_log,
        replicas=replicas,
        config=ours,
        events=master_events,
        clock=clock,
        on_report=acks.add,
    )
    context = SlaveContext(
        store=slave_log, config=theirs, events=slave_events, clock=clock, on_appended=lambda: None
    )
    slave = HaClient(context, address, connect_to=connect if loopback else memory.connect)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(master.serve, socket or memory)
        nursery.start_soon(slave.run)
        yield Pair(
            master_log, slave_log, replicas, master_events, slave_events, acks, master, slave
        )
        nursery.cancel_scope.cancel()
    if socket:
        socket.close()


@pytest.mark.parametrize("loopback", [False, True])
async def test_logs_become_and_stay_equal(loopback: bool) -> None:
    rng = random.Random(7)
    async with paired(loopback=loopback, master_data=rng.randbytes(5 * SEGMENT - 99)) as pair:
        await pair.wait_equal()
        for _ in range(200):
            pair.grow(rng.randbytes(rng.randrange(1, 600)))
            if rng.random() < 0.3:
                await trio.lowlevel.checkpoint()
        await pair.wait_equal()
        assert pair.acks.offsets == sorted(pair.acks.offsets)


async def test_one_put_at_a_time_is_acknowledged_over_loopback() -> None:
    async with paired(loopback=True) as pair:
        await pair.wait(lambda: pair.replicas.slave_available(100))
        for _ in range(300):
            pair.grow(b"x" * 200)
            await pair.wait_equal()
        assert pair.slave_log.data == pair.master_log.data


async def test_a_slave_with_one_message_more_is_refused_on_both_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C1."""
    async with paired(master_data=b"abc", slave_data=b"abcd") as pair:
        await trio.sleep(120)
        (ours, theirs) = (pair.master_events.of("ha_refused"), pair.slave_events.of("ha_refused"))
        assert 5 <= len(ours) <= 7, "a growing pause, not a loop"
        assert len(theirs) == len(ours)
        assert "4, beyond our end 3" in pair.replicas.refusals[-1].reason
        assert "offset 3, our log ends at 4" in pair.slave.statistics().last_error
        assert pair.acks.offsets == []


async def test_a_fresh_slave_copies_all_five_segments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C2."""
    async with paired(master_data=bytes(5 * SEGMENT - 1)) as pair:
        await pair.wait_equal()
        assert (pair.slave_log.base, len(pair.slave_log.data)) == (0, 5 * SEGMENT - 1)


async def test_a_fresh_slave_may_be_given_the_last_segment_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    settings = {"ha_empty_slave_from": "last"}
    async with paired(master_data=bytes(5 * SEGMENT - 1), master_settings=settings) as pair:
        await pair.wait_equal()
        assert (pair.slave_log.base, len(pair.slave_log.data)) == (4 * SEGMENT, SEGMENT - 1)


@pytest.mark.parametrize("data", [b"", b"abc"])
async def test_ten_idle_minutes_later_it_is_the_same_link(
    autojump_clock: trio.testing.MockClock, data: bytes
) -> None:
    """Fault C7."""
    async with paired(master_data=data) as pair:
        await trio.sleep(600)
        (row,) = pair.master.statistics()
        assert row.connected_s > 599
        assert row.last_ack_age_s <= 5.1
        assert pair.slave.statistics().reconnects == 0
        assert (pair.slave.statistics().last_read_age_s or 0) <= 5.1
        for events in (pair.master_events, pair.slave_events):
            assert not events.of("ha_disconnected")
            assert not events.of("ha_heartbeat_late")


async def test_a_slave_with_a_full_disk_leaves_the_in_sync_set_and_comes_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C8."""
    async with paired(master_data=b"abc") as pair:
        await pair.wait_equal()
        pair.slave_log.room = 5
        pair.grow(b"more than that")
        await trio.sleep(0.1)
        assert not pair.replicas.slave_available(pair.master_log.max_phy_offset)
        assert pair.replicas.push2slave_max_offset == 3
        assert pair.slave.statistics().state == "PAUSED"
        assert "no room" in pair.slave.statistics().last_error
        assert "no room" in str(pair.slave_events.of("ha_disconnected")[-1]["reason"])
        pair.slave_log.room = None
        await pair.wait_equal()
        assert pair.slave.statistics().state == "TRANSFER"


async def test_both_ends_with_the_secret_replicate(autojump_clock: trio.testing.MockClock) -> None:
    secret = {"ha_secret": "s3cret"}
    async with paired(master_data=b"abc", master_settings=secret, slave_settings=secret) as pair:
        await pair.wait_equal()


async def test_a_slave_without_the_secret_is_told_what_to_set(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C4."""
    async with paired(master_data=b"abc", master_settings={"ha_secret": "s3cret"}) as pair:
        await trio.sleep(3)
        assert "set haSecret" in pair.slave.statistics().last_error
        assert pair.slave_log.data == b""
        assert pair.acks.offsets == []


async def test_a_slave_with_another_secret_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C4."""
    async with paired(
        master_data=b"abc",
        master_settings={"ha_secret": "s3cret"},
        slave_settings={"ha_secret": "guess"},
    ) as pair:
        await trio.sleep(3)
        assert "wrong answer" in pair.replicas.refusals[-1].reason
        assert pair.slave_log.data == b""


async def test_a_slave_with_the_secret_follows_a_master_that_allows_its_address(
    autojump_clock: trio.testing.MockClock,
) -> None:
    settings = {"ha_secret": "s3cret", "ha_allowed_peers": "127.0.0.1"}
    async with paired(
        master_data=b"abc", master_settings=settings, slave_settings={"ha_secret": "s3cret"}
    ) as pair:
        await pair.wait_equal()


async def test_leaving_the_block_ends_every_task(autojump_clock: trio.testing.MockClock) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with paired(master_data=b"abc") as pair:
        await pair.wait_equal()
    assert trio.lowlevel.current_statistics().tasks_living == before
    assert len(pair.replicas) == 0


TERM = Term(2, b"\x02" * 8)


@attrs.define(eq=False)
class ExtendedPair:
    master_log: MemoryLog
    slave_log: MemoryLog
    replicas: Replicas
    master: HaMaster
    acks: Acks
    told: list[tuple[int, bytes, int]]
    """Position and body of each piece of metadata, and where the slave's log ended then."""

    async def wait(self, done: Callable[[], bool]) -> None:
        with trio.fail_after(60):
            while not done():
                await self.acks.came.wait()


@asynccontextmanager
async def extended(*, loopback: bool, master_data: bytes = b"") -> AsyncIterator[ExtendedPair]:
    config = BrokerConfig(mapped_file_size_commit_log=SEGMENT)
    master_log, slave_log = MemoryLog(SEGMENT), MemoryLog(SEGMENT)
    master_log.write(master_data)
    events = RecordedEvents()
    replicas = open_replicas(config, events)
    acks = Acks(replicas)
    memory = MemoryListener()
    socket = open_listener("127.0.0.1", 0) if loopback else None
    clock = Clock() if loopback else Clock.virtual()
    told: list[tuple[int, bytes, int]] = []

    def on_metadata(position: int, body: bytes) -> None:
        told.append((position, body, slave_log.max_phy_offset))

    async def follow(transport: Transport) -> None:
        context = SlaveContext(
            store=slave_log,
            config=config,
            events=events,
            clock=clock,
            on_appended=lambda: None,
            on_metadata=on_metadata,
        )
        link = HaClientLink(context, transport, term=TERM, home_id=1)
        try:
            await follow_master(link)
        finally:
            transport.close()

    async with trio.open_nursery() as nursery:
        master = HaMaster(
            store=master_log,
            replicas=replicas,
            config=config,
            events=events,
            clock=clock,
            on_report=acks.add,
            term=TERM,
            metadata_snapshot=lambda: (10, b"snapshot"),
        )
        nursery.start_soon(master.serve, socket or memory)
        if socket is not None:
            transport: Transport = await connect(socket.host, socket.port)
        else:
            transport = await memory.connect("master", 10912)
        nursery.start_soon(follow, transport)
        yield ExtendedPair(master_log, slave_log, replicas, master, acks, told)
        nursery.cancel_scope.cancel()
    if socket is not None:
        socket.close()


@pytest.mark.parametrize("loopback", [False, True])
async def test_metadata_reaches_the_slave_between_the_bytes_it_was_made_between(
    loopback: bool,
) -> None:
    rng = random.Random(3)
    async with extended(loopback=loopback, master_data=rng.randbytes(3 * SEGMENT)) as pair:
        await pair.wait(lambda: pair.replicas.push2slave_max_metadata == 10)
        assert pair.told[0] == (10, b"snapshot", 0), "before the log"
        expected = []
        for position in range(11, 200):
            pair.master_log.write(rng.randbytes(rng.randrange(500)))
            if rng.random() < 0.5:
                pair.master.on_log_grown(urgent=rng.random() < 0.5)
            body = rng.randbytes(rng.randrange(40))
            expected.append((position, body, pair.master_log.max_phy_offset))
            pair.master.send_metadata_nowait(position, body, urgent=rng.random() < 0.5)
        await pair.wait(lambda: pair.replicas.push2slave_max_metadata == 199)
        assert pair.told[1:] == expected
        assert pair.slave_log.data == pair.master_log.data
        (link,) = pair.master.statistics()
        assert (link.home_id, link.epoch, link.metadata_ack_position) == (1, 2, 199)


async def test_metadata_that_somebody_waits_for_leaves_in_the_pass_that_made_it() -> None:
    async with extended(loopback=True) as pair:
        await pair.wait(lambda: pair.replicas.push2slave_max_metadata == 10)
        await trio.testing.wait_all_tasks_blocked(0.01)
        (link,) = pair.master._slaves
        pair.master.send_metadata_nowait(11, b"commit", urgent=True)
        assert not link._metadata
        assert link.connection.metadata_sent_position == 11


async def test_a_slave_far_behind_gets_a_snapshot_instead_of_all_that_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ha_master_link, "METADATA_WAITING_BYTES_MAX", 100)
    async with extended(loopback=False) as pair:
        await pair.wait(lambda: pair.replicas.push2slave_max_metadata == 10)
        pair.master_log.write(bytes(5 * SEGMENT))
        for _ in range(20):
            pair.master.send_metadata_nowait(10, b"x" * 20, urgent=False)
        pair.master.on_log_grown(urgent=True)
        await pair.wait(lambda: len(pair.told) == 2)
        assert pair.told[1] == (10, b"snapshot", 5 * SEGMENT)


async def test_a_link_that_ends_with_the_role_acknowledges_nothing_more() -> None:
    async with extended(loopback=False) as pair:
        await pair.wait(lambda: pair.replicas.push2slave_max_metadata == 10)
        count = len(pair.acks.offsets)
        pair.master_log.write(b"x" * 100)
        pair.master.on_log_grown(urgent=True)
        pair.master.end_nowait("another node is master")
        await trio.testing.wait_all_tasks_blocked()
        assert len(pair.acks.offsets) == count
        assert pair.master.statistics() == ()
