"""Master's side of replication on virtual time, with peers that are good, slow, silent or bad."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from support.memory.links import MemoryListener, SteeredTransport
from support.memory.log import MemoryLog

from trioha.config import BrokerConfig
from trioha.errors import ConfigError
from trioha.ha import auth
from trioha.ha.replicas import Replicas
from trioha.services.ha.master import (
    GATHER_S,
    UNREPORTED_MAX,
    HaMaster,
    open_replicas,
)
from trioha.services.ha.slave_links import GATHER_BYTES_MAX
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport, connect, open_listener
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.ha_frames import REPORT, TRANSFER_HEADER

SEGMENT = 4096


@attrs.define(eq=False)
class Node:
    """A master under test."""

    listener: MemoryListener
    log: MemoryLog
    replicas: Replicas
    events: RecordedEvents
    acks: list[int]
    lost: list[float]
    """Times at which waiting puts were to ask again whether a slave is there."""
    master: HaMaster

    async def connect(self) -> Transport:
        return await self.listener.connect("master", 10912)

    async def follow(self, offset: int) -> Transport:
        """Connect as a slave and report `offset`; a heartbeat greets it if it has all."""
        transport = await self.connect()
        await transport.send_all([REPORT.pack(offset)])
        return transport

    def grow(self, data: bytes, *, urgent: bool = True) -> None:
        self.log.write(data)
        self.master.on_log_grown(urgent=urgent)


@asynccontextmanager
async def serving(size: int = 0, **settings: Any) -> AsyncIterator[Node]:
    config = BrokerConfig(mapped_file_size_commit_log=SEGMENT, **settings)
    log, events, acks, lost = MemoryLog(SEGMENT), RecordedEvents(), list[int](), list[float]()
    log.write(bytes(index % 251 for index in range(size)))
    replicas, listener = open_replicas(config, events), MemoryListener()
    async with trio.open_nursery() as nursery:
        master = HaMaster(
            store=log,
            replicas=replicas,
            config=config,
            events=events,
            clock=Clock.virtual(),
            on_report=lambda _: acks.append(replicas.push2slave_max_offset),
            on_slave_lost=lambda: lost.append(trio.current_time()),
        )
        nursery.start_soon(master.serve, listener)
        yield Node(listener, log, replicas, events, acks, lost, master)
        nursery.cancel_scope.cancel()


def nothing(offset: int) -> None:
    pass


async def read_frame(transport: Transport) -> tuple[int, bytes]:
    """Read one frame; its pieces are joined here."""
    data = b""
    while len(data) < TRANSFER_HEADER.size or len(data) < 12 + TRANSFER_HEADER.unpack(data[:12])[1]:
        more = await transport.receive_some()
        assert more, f"closed after {data!r}"
        data += more
    offset, size = TRANSFER_HEADER.unpack(data[:12])
    assert len(data) == 12 + size, "the test reads one frame at a time"
    return offset, data[12:]


async def read_all(transport: Transport) -> bytes:
    """Read everything until the master closes."""
    data = b""
    while more := await transport.receive_some():
        data += more
    return data


async def settle(done: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not done():
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.01)


async def test_ships_from_the_report_and_acknowledges(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(100) as node:
        slave = await node.follow(40)
        assert await read_frame(slave) == (40, bytes(range(40, 100)))
        await slave.send_all([REPORT.pack(100)])
        await settle(lambda: node.acks == [40, 100])
        node.grow(b"more")
        assert await read_frame(slave) == (100, b"more")
        assert node.events.of("ha_connected") == [{"peer": "127.0.0.1:40001", "offset": 40}]
        (row,) = node.master.statistics()
        assert (row.slave_ack_offset, row.gap_bytes, row.in_sync) == (100, 4, True)


async def test_heartbeats_at_once_and_then_every_five_idle_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """haSendHeartbeatInterval; the first tells the slave that it is accepted."""
    async with serving(100) as node:
        slave = await node.follow(100)
        begun_s = trio.current_time()
        times = []
        for _ in range(4):
            assert await read_frame(slave) == (100, b"")
            times.append(round(trio.current_time() - begun_s, 1))
            await slave.send_all([REPORT.pack(100)])
        assert times == [0, 5, 10, 15]


async def test_traffic_puts_the_heartbeat_off(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as node:
        slave = await node.follow(0)
        assert await read_frame(slave) == (0, b"")
        await trio.sleep(3)
        node.grow(b"abc")
        assert await read_frame(slave) == (0, b"abc")
        sent_s = trio.current_time()
        assert await read_frame(slave) == (3, b"")
        assert 4.9 < trio.current_time() - sent_s < 5.1


async def test_a_slave_that_falls_silent_is_dropped_after_housekeeping(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(100) as node:
        slave = await node.follow(100)
        await trio.sleep(7)
        await slave.send_all([REPORT.pack(100)])
        last_s = trio.current_time()
        await read_all(slave)
        assert 20 <= trio.current_time() - last_s <= 20.2
        assert node.events.of("ha_heartbeat_late")[0]["age_ms"] in range(10_000, 10_100)
        reason = {"peer": "127.0.0.1:40001", "reason": "the slave said nothing for 20 s"}
        assert node.events.of("ha_disconnected") == [reason]
        assert node.events.of("ha_in_sync")[-1]["in_sync"] is False
        assert len(node.replicas) == 0


async def test_a_peer_that_never_reports_is_dropped_and_told_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(100) as node:
        probe = await node.connect()
        begun_s = trio.current_time()
        assert await read_all(probe) == b""
        assert trio.current_time() - begun_s == pytest.approx(20, abs=0.2)
        assert node.events.events == []


async def test_a_slave_ahead_of_us_is_refused_with_a_clear_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C1."""
    async with serving(100) as node:
        slave = await node.follow(101)
        assert TRANSFER_HEADER.unpack(await read_all(slave)) == (100, 0)
        assert "101, beyond our end 100" in str(node.events.of("ha_refused")[0]["reason"])
        assert "101, beyond our end 100" in node.replicas.refusals[-1].reason
        assert node.acks == []


async def test_a_new_slave_gets_all_five_segments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C2."""
    async with serving(5 * SEGMENT - 100, ha_transfer_batch_size=1000) as node:
        slave = await node.follow(0)
        data, wanted = b"", 5 * SEGMENT - 100
        log = bytearray()
        while len(log) < wanted:
            data += await slave.receive_some()
            while len(data) >= 12 and len(data) >= 12 + TRANSFER_HEADER.unpack(data[:12])[1]:
                offset, size = TRANSFER_HEADER.unpack(data[:12])
                assert offset == len(log)
                assert size <= 1000
                assert offset // SEGMENT == (offset + max(1, size) - 1) // SEGMENT
                log += data[12 : 12 + size]
                data = data[12 + size :]
        assert log == node.log.data


@pytest.mark.parametrize("first", [True, False])
async def test_a_rogue_ack_makes_no_write_succeed(
    autojump_clock: trio.testing.MockClock, first: bool
) -> None:
    """Fault C3."""
    async with serving(100) as node:
        rogue = await node.follow(2**62 if first else 0)
        if not first:
            assert (await read_frame(rogue))[0] == 0
            await rogue.send_all([REPORT.pack(2**62)])
        await read_all(rogue)
        assert node.replicas.push2slave_max_offset == 0
        assert set(node.acks) <= {0}
        assert not node.replicas.slave_available(200)
        assert str(2**62) in str(node.events.of("ha_refused")[0]["reason"])


async def test_a_peer_without_the_secret_gets_no_byte_of_log(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C4."""
    async with serving(100, ha_secret="s3cret") as node:
        stranger = await node.follow(0)
        await stranger.send_all([REPORT.pack(0) * 8])
        assert len(await read_all(stranger)) == auth.CHALLENGE_BYTES
        assert "wrong answer" in str(node.events.of("ha_refused")[0]["reason"])
        assert node.acks == []


async def test_a_peer_that_answers_nothing_is_refused_in_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C4."""
    async with serving(100, ha_secret="s3cret") as node:
        stranger = await node.connect()
        begun_s = trio.current_time()
        assert len(await stranger.receive_some()) == auth.CHALLENGE_BYTES
        await trio.sleep(3)
        await stranger.send_all([b"x"])  # a byte now and then buys no time
        assert await read_all(stranger) == b""
        assert trio.current_time() - begun_s == pytest.approx(5, abs=0.1)
        assert "no answer to the challenge" in str(node.events.of("ha_refused")[0]["reason"])


async def test_a_peer_outside_the_allowed_networks_gets_nothing_at_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C4."""
    async with serving(100, ha_allowed_peers="10.0.0.0/8") as node:
        stranger = await node.connect()
        assert await read_all(stranger) == b""
        assert "haAllowedPeers" in str(node.events.of("ha_refused")[0]["reason"])


async def test_an_allowed_network_follows_the_classic_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C4."""
    async with serving(100, ha_secret="s3cret", ha_allowed_peers="127.0.0.0/8") as node:
        slave = await node.follow(0)
        assert await read_frame(slave) == (0, bytes(range(100)))


async def test_an_answered_challenge_opens_the_log_and_the_lease_is_the_usual_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(100, ha_secret="s3cret") as node:
        slave = await node.connect()
        message = await slave.receive_some()
        await slave.send_all([auth.answer("s3cret", message) + REPORT.pack(100)])
        assert await read_frame(slave) == (100, b"")
        await trio.sleep(15)
        assert len(node.replicas) == 1


async def test_wrong_networks_are_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="haAllowedPeers"):
        HaMaster(
            store=MemoryLog(),
            replicas=open_replicas(BrokerConfig(), RecordedEvents()),
            config=BrokerConfig(ha_allowed_peers="everybody"),
            events=RecordedEvents(),
            clock=Clock.virtual(),
            on_report=nothing,
        )


async def test_probes_that_connect_and_go_leave_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C5: out of memory in twenty days."""
    async with serving(100) as node:

        async def probe(count: int) -> None:
            for number in range(count):
                transport = await node.connect()
                if number % 3 == 0:
                    await transport.send_all([b"GET / HTTP/1.1\r\n"[: number % 8]])
                transport.close()
                await trio.testing.wait_all_tasks_blocked()

        async def grown_bytes(count: int) -> int:
            before = tracemalloc.get_traced_memory()[0]
            await probe(count)
            # what this test records of each probe
            node.lost.clear()
            node.listener.connects.clear()
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before

        await probe(100)
        gc.collect()
        tracemalloc.start()
        try:
            # Memory that is kept for each probe grows with every batch. A cache of something else
            # in this process grows with some batches only.
            kept_bytes = min([await grown_bytes(100) for _ in range(8)])
        finally:
            tracemalloc.stop()
        assert kept_bytes < 40 * 100
        assert len(node.replicas) == 0
        assert trio.lowlevel.current_statistics().tasks_living < 20
        assert node.events.events == []


async def test_probes_that_stay_are_bounded_and_keep_no_slave_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C5."""
    async with serving(100) as node:
        probes = [await node.connect() for _ in range(3 * UNREPORTED_MAX)]
        slave = await node.follow(100)
        assert await read_frame(slave) == (100, b"")
        await trio.testing.wait_all_tasks_blocked()
        assert len(node.replicas) <= UNREPORTED_MAX + 1
        await trio.sleep(10)
        await slave.send_all([REPORT.pack(100)])
        await trio.sleep(12)
        assert len(node.replicas) == 1
        assert len(probes) == 3 * UNREPORTED_MAX


async def test_sockets_of_probes_are_given_back() -> None:
    """Fault C5."""
    config, log, events = BrokerConfig(), MemoryLog(SEGMENT), RecordedEvents()
    replicas, listener = open_replicas(config, events), open_listener("127.0.0.1", 0)
    before = len(os.listdir("/proc/self/fd"))
    async with trio.open_nursery() as nursery:
        master = HaMaster(
            store=log,
            replicas=replicas,
            config=config,
            events=events,
            clock=Clock(),
            on_report=nothing,
        )
        nursery.start_soon(master.serve, listener)
        with trio.fail_after(20):
            idle = []
            for number in range(1000):
                transport = await connect("127.0.0.1", listener.port)
                if number % 5:
                    transport.close()
                else:
                    idle.append(transport)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(replicas) <= UNREPORTED_MAX
            for transport in idle:
                transport.close()
        nursery.cancel_scope.cancel()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    listener.close()


async def test_a_slave_that_stops_acknowledging_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C8: it leaves the set within a second; puts do not time out one by one."""
    async with serving(100) as node:
        slave = await node.follow(100)
        await read_frame(slave)
        await settle(lambda: node.replicas.slave_available(200))
        node.grow(b"more")
        lost = len(node.lost)
        await trio.sleep(0.8)
        assert node.replicas.slave_available(200)
        assert len(node.lost) == lost
        await trio.sleep(0.15)
        assert not node.replicas.slave_available(200)
        assert node.lost[-1] == pytest.approx(trio.current_time(), abs=0.1)
        assert node.events.of("ha_in_sync")[-1]["in_sync"] is False
        await slave.send_all([REPORT.pack(104)])
        await settle(lambda: node.replicas.slave_available(200))


async def test_a_slave_that_retention_overtakes_is_refused_with_the_cure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(3 * SEGMENT) as node:
        transport = SteeredTransport(room=100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.master.serve_slave, transport)
            transport.feed(REPORT.pack(0))
            await trio.testing.wait_all_tasks_blocked()
            node.log.forget_before(3 * SEGMENT)
            transport.grant(1 << 20)
        assert "empty its store" in str(node.events.of("ha_refused")[0]["reason"])


async def test_what_is_appended_leaves_without_a_task_switch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as node, trio.open_nursery() as nursery:
        transport = SteeredTransport()
        nursery.start_soon(node.master.serve_slave, transport)
        transport.feed(REPORT.pack(0))
        await trio.testing.wait_all_tasks_blocked()
        transport.sent.clear()
        node.grow(b"abc")
        assert transport.sent == TRANSFER_HEADER.pack(0, 3) + b"abc"
        node.grow(b"de")
        assert transport.sent[15:] == TRANSFER_HEADER.pack(3, 2) + b"de"
        nursery.cancel_scope.cancel()


async def test_what_the_kernel_does_not_take_at_once_follows_in_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(ha_transfer_batch_size=50) as node, trio.open_nursery() as nursery:
        transport = SteeredTransport()
        nursery.start_soon(node.master.serve_slave, transport)
        transport.feed(REPORT.pack(0))
        await trio.testing.wait_all_tasks_blocked()
        transport.sent.clear()
        transport.room = 7
        for _ in range(100):
            node.grow(bytes(index % 251 for index in range(100)))
            transport.grant(33)
            await trio.testing.wait_all_tasks_blocked()
        transport.grant(1 << 20)
        await trio.testing.wait_all_tasks_blocked()
        log, data = bytearray(), bytes(transport.sent)
        while data:
            offset, size = TRANSFER_HEADER.unpack(data[:12])
            assert offset == len(log)
            log += data[12 : 12 + size]
            data = data[12 + size :]
        assert log == node.log.data
        nursery.cancel_scope.cancel()


async def test_what_nobody_waits_for_is_gathered_into_one_frame(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as node:
        slave = await node.follow(0)
        assert await read_frame(slave) == (0, b"")
        begun_s = trio.current_time()
        for number in range(10):
            node.grow(b"%d" % number, urgent=False)
            await trio.sleep(GATHER_S / 20)
        assert await read_frame(slave) == (0, b"0123456789")
        assert trio.current_time() - begun_s <= 2 * GATHER_S


async def test_a_put_that_waits_takes_along_what_is_being_gathered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as node:
        slave = await node.follow(0)
        assert await read_frame(slave) == (0, b"")
        begun_s = trio.current_time()
        node.grow(b"nobody waits", urgent=False)
        node.grow(b", now one does")
        assert await read_frame(slave) == (0, b"nobody waits, now one does")
        assert trio.current_time() - begun_s < GATHER_S / 2
        await trio.sleep(1)
        node.grow(b"next")
        assert await read_frame(slave) == (26, b"next")


async def test_much_is_not_gathered() -> None:
    async with serving() as node, trio.open_nursery() as nursery:
        transport = SteeredTransport()
        nursery.start_soon(node.master.serve_slave, transport)
        transport.feed(REPORT.pack(0))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(GATHER_BYTES_MAX // SEGMENT):
            transport.sent.clear()
            node.grow(bytes(SEGMENT), urgent=False)
        # Within the call itself: no task has run since.
        assert TRANSFER_HEADER.unpack(transport.sent[:12]) == (0, SEGMENT)
        nursery.cancel_scope.cancel()


async def test_who_waits_is_told_when_a_slave_hangs_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(100) as node:
        slave = await node.follow(100)
        await settle(lambda: node.replicas.slave_available(200))
        node.grow(b"more")
        begun_s, before = trio.current_time(), len(node.lost)
        slave.close()
        await settle(lambda: len(node.lost) > before)
        assert node.lost[-1] - begun_s < 0.1
        assert not node.replicas.slave_available(104)


async def test_a_slave_that_reports_but_never_reads_is_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(SEGMENT) as node:
        transport = SteeredTransport(room=100)

        async def report() -> None:
            while not transport.closed:
                transport.feed(REPORT.pack(0))
                await trio.sleep(5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(report)
            await node.master.serve_slave(transport)
        assert node.events.of("ha_disconnected")[0]["reason"] == "it has read nothing for 20 s"


async def test_a_planned_stop_waits_for_slaves_in_sync_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(100) as node:
        slave = await node.follow(100)
        await settle(lambda: len(node.acks) == 1)
        node.grow(b"more")
        finished: list[float] = []

        async def stop() -> None:
            await node.master.wait_transferred()
            finished.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            await trio.sleep(0.5)
            assert not finished
            await slave.send_all([REPORT.pack(104)])
        assert finished
        node.grow(b"again")
        with trio.fail_after(4):  # it stalls, and so leaves the set
            await node.master.wait_transferred()


async def test_progress_is_told_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as node:
        slave = await node.follow(0)
        await read_frame(slave)
        for number in range(1, 51):
            node.grow(b"x")
            assert await read_frame(slave) == (number - 1, b"x")
            await slave.send_all([REPORT.pack(number)])
            await trio.sleep(0.1)
        assert len(node.events.of("ha_progress")) in (4, 5)
