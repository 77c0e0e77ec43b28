"""Slave's side of replication on virtual time: masters that are good, silent, ahead or gone."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from support.memory.links import MemoryListener, SteeredTransport
from support.memory.log import MemoryLog

from trioha.config import BrokerConfig
from trioha.ha import auth
from trioha.services.ha.client import HaClient
from trioha.services.ha.client_link import FULL_READ_BYTES, SlaveContext
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.ha_frames import REPORT, TRANSFER_HEADER

SEGMENT = 1 << 20


@attrs.define(eq=False)
class Node:
    """A slave under test."""

    listener: MemoryListener
    log: MemoryLog
    address: MasterAddress
    events: RecordedEvents
    client: HaClient
    appended: list[int]

    async def accept(self, within_s: float = 100) -> Transport:
        with trio.fail_after(within_s):
            return await self.listener.accept()


@asynccontextmanager
async def following(
    data: bytes = b"", *, address: str = "master:10912", **settings: Any
) -> AsyncIterator[Node]:
    config = BrokerConfig(mapped_file_size_commit_log=SEGMENT, **settings)
    log, events, listener = MemoryLog(SEGMENT), RecordedEvents(), MemoryListener()
    log.write(data)
    master, appended = MasterAddress(address), list[int]()

    context = SlaveContext(
        store=log,
        config=config,
        events=events,
        clock=Clock.virtual(),
        on_appended=lambda: appended.append(log.max_phy_offset),
    )
    client = HaClient(context, master, connect_to=listener.connect)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        yield Node(listener, log, master, events, client, appended)
        nursery.cancel_scope.cancel()


def virtual_context() -> SlaveContext:
    return SlaveContext(
        store=MemoryLog(),
        config=BrokerConfig(),
        events=RecordedEvents(),
        clock=Clock.virtual(),
        on_appended=lambda: None,
    )


def frame(offset: int, body: bytes = b"") -> bytes:
    return TRANSFER_HEADER.pack(offset, len(body)) + body


async def read_report(transport: Transport) -> int:
    data = await transport.receive_some()
    offset: int = REPORT.unpack(data)[0]
    return offset


async def test_reports_at_once_and_after_every_read(autojump_clock: trio.testing.MockClock) -> None:
    """Java waits five seconds first; its master takes an early report."""
    async with following(b"abc") as node:
        begun_s = trio.current_time()
        master = await node.accept()
        assert await read_report(master) == 3
        assert trio.current_time() - begun_s < 0.1
        assert node.client.statistics().state == "HANDSHAKE"
        await master.send_all([frame(3, b"de") + frame(5, b"fgh") + frame(8)])
        assert await read_report(master) == 8
        assert node.log.data == b"abcdefgh"
        assert node.appended == [8]
        assert node.client.statistics().state == "TRANSFER"
        assert node.events.of("ha_connected") == [{"peer": "master:10912", "offset": 8}]


async def test_reports_every_five_seconds_when_nothing_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc") as node:
        master = await node.accept()
        times = []
        for _ in range(4):
            assert await read_report(master) == 3
            times.append(round(trio.current_time(), 1))
        assert times == [0, 5, 10, 15]


async def test_frames_split_byte_by_byte_are_appended_as_they_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following() as node:
        master = await node.accept()
        assert await read_report(master) == 0
        for byte in frame(0, b"abc") + frame(3) + frame(3, b"de"):
            await master.send_all([bytes([byte])])
            await trio.testing.wait_all_tasks_blocked()
        assert node.log.data == b"abcde"


async def test_a_lost_link_is_tried_again_after_the_reconnect_interval(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc", ha_reconnect_interval=5000) as node:
        for _ in range(5):
            master = await node.accept()
            await read_report(master)
            await master.send_all([frame(3)])
            await trio.testing.wait_all_tasks_blocked()
            master.close()
            await trio.testing.wait_all_tasks_blocked()
            assert node.client.statistics().state == "PAUSED"
        times = node.listener.connects
        assert [round(b - a, 1) for a, b in itertools.pairwise(times)] == [5.0] * 4
        assert node.client.statistics().reconnects == 4
        assert node.client.statistics().last_error == "the master closed the link"


async def test_a_link_that_breaks_within_a_frame_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc") as node:
        master = await node.accept()
        await read_report(master)
        await master.send_all([frame(3, b"defg")[:-1]])
        await trio.testing.wait_all_tasks_blocked()
        master.close()
        await trio.testing.wait_all_tasks_blocked()
        assert (
            node.client.statistics().last_error
            == "the master closed the link, 1 bytes before the end of a frame"
        )
        assert node.log.data == b"abcdef"


async def test_a_master_that_is_away_is_tried_at_the_interval_and_told_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc", address="") as node:
        node.listener.refusing = True
        node.address.set("master:10912")
        await trio.sleep(52)
        assert len(node.listener.connects) == 11
        assert len(node.events.of("ha_disconnected")) == 1
        assert "nobody listens" in node.client.statistics().last_error
        node.listener.refusing = False
        await node.accept(within_s=6)


async def test_a_connect_that_hangs_is_given_up_after_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def hang(host: str, port: int) -> Transport:
        await trio.sleep_forever()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        address = MasterAddress("master:10912")
        client = HaClient(virtual_context(), address, connect_to=hang)
        nursery.start_soon(client.run)
        await trio.sleep(4.9)
        assert client.statistics().state == "CONNECTING"
        await trio.sleep(0.2)
        assert client.statistics().state == "PAUSED"
        assert "within 5 s" in client.statistics().last_error
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("last_words", [frame(2), b""])
async def test_a_slave_that_is_refused_backs_off_and_shows_why(
    autojump_clock: trio.testing.MockClock, last_words: bytes
) -> None:
    """Fault C1. A trioha master ends with its own offset, a Java master just hangs up."""
    async with following(b"abc") as node:
        for _ in range(7):
            master = await node.accept()
            assert await read_report(master) == 3
            if last_words:
                await master.send_all([last_words])
            master.close()
            await trio.testing.wait_all_tasks_blocked()
        times = node.listener.connects
        pauses = [round(b - a) for a, b in itertools.pairwise(times)]
        assert pauses == [5, 10, 20, 30, 30, 30]
        refusals = node.events.of("ha_refused")
        assert len(refusals) == 7
        words = (
            "master is at offset 2, our log ends at 3" if last_words else "our report of offset 3"
        )
        assert words in str(refusals[0]["reason"])
        assert words in node.client.statistics().last_error
        # The gap to a master that tells nothing is unknown, not zero.
        assert node.client.statistics().gap_bytes is None


async def test_a_link_that_works_again_is_tried_at_the_usual_pace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc") as node:
        for words in (frame(2), frame(2), frame(2), frame(3), frame(2), frame(2)):
            master = await node.accept()
            await read_report(master)
            await master.send_all([words])
            await trio.testing.wait_all_tasks_blocked()
            master.close()
            await trio.testing.wait_all_tasks_blocked()
        times = node.listener.connects
        pauses = [round(b - a) for a, b in itertools.pairwise(times)]
        assert pauses == [5, 10, 20, 5, 5]


async def test_a_master_that_falls_silent_is_left_after_housekeeping(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Keyed on reads; 4.9 keyed it on its own writes, and so never noticed."""
    async with following(b"abc") as node:
        master = await node.accept()
        await read_report(master)
        await trio.sleep(7)
        await master.send_all([frame(3)])
        last_s = trio.current_time()
        while await master.receive_some():
            pass
        assert 20 <= trio.current_time() - last_s <= 20.2
        assert len(node.events.of("ha_heartbeat_late")) == 1
        (ended,) = node.events.of("ha_disconnected")
        assert ended["reason"] == "the master said nothing for 20 s"


async def test_a_master_that_is_late_and_speaks_again_has_its_silence_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc") as node:
        master = await node.accept()
        await read_report(master)
        await trio.sleep(12)
        await master.send_all([frame(3)])
        await trio.testing.wait_all_tasks_blocked()
        (resumed,) = node.events.of("ha_heartbeat_resumed")
        assert resumed["gap_ms"] in range(12_000, 12_010)


async def test_another_address_ends_the_link_and_is_followed_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc", address="") as node:
        await trio.sleep(60)
        assert node.client.statistics().state == "NO_MASTER"
        node.address.set("first:1")
        first = await node.accept(within_s=0.1)
        await read_report(first)
        node.address.set("first:1")
        await trio.sleep(1)
        assert len(node.listener.connects) == 1
        node.address.set("second:2")
        await node.accept(within_s=0.1)
        assert await first.receive_some() == b""
        assert node.client.statistics().master == "second:2"


async def test_a_full_disk_ends_the_link_and_no_ack_leaves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault C8: a slave that stays connected and silent makes every put wait in vain."""
    async with following(b"abc") as node:
        node.log.room = 5
        for _ in range(3):
            master = await node.accept()
            offset = await read_report(master)
            await master.send_all([frame(offset, b"x" * (5 - offset)), frame(5, b"yz")])
            rest = b""
            while data := await master.receive_some():
                rest += data
            assert rest == b""
        assert node.log.data == b"abcxx"
        assert node.appended == [5]
        times = node.listener.connects
        assert [round(b - a) for a, b in itertools.pairwise(times)] == [5, 10]
        assert "our own log takes no more: no room for 2 bytes" in (
            node.client.statistics().last_error
        )
        assert len(node.events.of("ha_disconnected")) == 3
        node.log.room = None
        master = await node.accept()
        assert await read_report(master) == 5
        await master.send_all([frame(5, b"yz")])
        assert await read_report(master) == 7


async def test_a_challenge_is_answered_before_the_first_report(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc", ha_secret="s3cret") as node:
        master = await node.accept()
        message = auth.challenge(bytes(28))
        await trio.sleep(0.5)
        await master.send_all([message])
        assert await master.receive_some() == auth.answer("s3cret", message) + REPORT.pack(3)


async def test_with_a_secret_a_classic_master_gets_its_report_after_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"abc", ha_secret="s3cret") as node:
        master = await node.accept()
        begun_s = trio.current_time()
        assert await read_report(master) == 3
        assert trio.current_time() - begun_s == pytest.approx(1, abs=0.01)


async def test_full_reads_show_as_catching_up_and_short_ones_end_it() -> None:
    transport = SteeredTransport()

    async def connect(host: str, port: int) -> Transport:
        return transport

    async with trio.open_nursery() as nursery:
        context = attrs.evolve(virtual_context(), clock=Clock())
        client = HaClient(context, MasterAddress("master:10912"), connect_to=connect)
        nursery.start_soon(client.run)
        await trio.testing.wait_all_tasks_blocked()
        seen = [client.catching_up]
        data = frame(0, bytes(FULL_READ_BYTES))
        transport.feed(data[:FULL_READ_BYTES])
        await trio.testing.wait_all_tasks_blocked()
        seen.append(client.catching_up)
        assert client.statistics().gap_bytes == 12
        # In the middle of a frame in bulk a report would tell the master nothing it can use.
        assert transport.sent == REPORT.pack(0)
        transport.feed(data[FULL_READ_BYTES:])
        await trio.testing.wait_all_tasks_blocked()
        seen.append(client.catching_up)
        assert seen == [False, True, False]
        assert client.statistics().gap_bytes == 0
        assert transport.sent == REPORT.pack(0) + REPORT.pack(FULL_READ_BYTES)
        nursery.cancel_scope.cancel()


async def test_progress_is_told_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    async with following() as node:
        master = await node.accept()
        await read_report(master)
        for number in range(50):
            await master.send_all([frame(number, b"x")])
            assert await read_report(master) == number + 1
            await trio.sleep(0.1)
        assert len(node.events.of("ha_progress")) == 4


async def test_the_last_progress_is_told_before_the_end_of_the_link(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following() as node:
        master = await node.accept()
        await read_report(master)
        await master.send_all([frame(0, b"12345")])
        assert await read_report(master) == 5
        master.close()
        await trio.testing.wait_all_tasks_blocked()
        names = [name for name, _ in node.events.events if name.startswith("ha_")]
        assert names[-2:] == ["ha_progress", "ha_disconnected"]
        assert node.events.of("ha_progress")[-1]["ack_offset"] == 5


async def test_a_suspended_slave_acknowledges_nothing_and_follows_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with following(b"12345") as node:
        master = await node.accept()
        assert await master.receive_some() == REPORT.pack(5)
        await master.send_all([frame(5, b"67")])
        assert await master.receive_some() == REPORT.pack(7)
        await trio.testing.wait_all_tasks_blocked()
        await master.send_all([frame(7, b"on its way already")])
        node.client.suspend("a forced failover is under way")
        assert await master.receive_some() == b""
        assert node.log.max_phy_offset == 7
        await trio.sleep(100)
        assert len(node.listener.connects) == 1
        told = node.client.statistics()
        assert (told.state, told.last_error) == ("SUSPENDED", "a forced failover is under way")
        node.client.resume()
        master = await node.accept(within_s=1)
        assert await master.receive_some() == REPORT.pack(7)


async def test_a_hurry_during_an_attempt_leads_to_the_next_one_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A master may name itself while it answers an earlier question as a node that was none."""
    async with following(b"abc") as node:
        attempt = await node.accept()
        node.client.hurry()
        attempt.close()
        (await node.accept(within_s=0.1)).close()
        began_s = trio.current_time()
        (await node.accept()).close()
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.1)
