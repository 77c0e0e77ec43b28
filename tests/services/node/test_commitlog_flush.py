from __future__ import annotations

import threading
from typing import cast

import pytest
import trio
import trio.lowlevel

from trioha.config import BrokerConfig
from trioha.errors import StoreError
from trioha.services.loop.clock import Clock
from trioha.services.node.commitlog_flush import CommitlogFlush
from trioha.store.interface import MessageStore
from trioha.testing.recorded_events import RecordedEvents


class Disk:
    """The two calls that the flush task makes; each fsync waits until it is let go."""

    def __init__(self) -> None:
        self.end = 0
        self.flushes: list[int] = []
        self.queue_flushes = 0
        self.go = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.broken = False

    def flush(self) -> int:
        offset = self.end
        self.started.release()
        assert self.go.acquire(timeout=10)
        if self.broken:
            raise StoreError("fsync of the log failed: Input/output error")
        self.flushes.append(offset)
        return offset

    def flush_queues(self) -> None:
        self.queue_flushes += 1


class Rig:
    def __init__(self, interval_ms: int) -> None:
        self.disk = Disk()
        self.flushed: list[int] = []
        self.events = RecordedEvents()
        self.flush = CommitlogFlush(
            cast("MessageStore", self.disk),
            BrokerConfig(flush_interval_commit_log=interval_ms, flush_interval_consume_queue=1),
            Clock(),
            self.events,
            self.flushed.append,
        )

    def grow(self, end: int, *, urgent: bool) -> None:
        self.disk.end = end
        self.flush.grown_nowait(urgent=urgent)

    async def fsync_started(self) -> None:
        with trio.fail_after(60):
            await trio.to_thread.run_sync(self.disk.started.acquire)


async def test_one_fsync_covers_everything_queued_while_the_last_one_ran() -> None:
    rig = Rig(interval_ms=3_600_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, urgent=True)
        await rig.fsync_started()
        for end in (200, 300, 400):
            rig.grow(end, urgent=True)
        rig.disk.go.release()
        await rig.fsync_started()
        rig.disk.go.release()
        with trio.fail_after(60):
            while rig.flushed != [100, 400]:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_nothing_is_flushed_while_nothing_grows() -> None:
    rig = Rig(interval_ms=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert rig.disk.flushes == []
        assert rig.disk.queue_flushes == 0
        nursery.cancel_scope.cancel()


async def test_queues_reach_the_disk_after_the_last_growth_too() -> None:
    rig = Rig(interval_ms=1)
    rig.disk.go.release(5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, urgent=False)
        with trio.fail_after(60):
            while rig.disk.queue_flushes == 0:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert rig.flushed == [100]


async def test_a_failed_fsync_ends_the_node_and_acknowledges_nothing() -> None:
    """Fault A11: RocketMQ answered SEND_OK although the flush had failed."""
    rig = Rig(interval_ms=1)
    rig.disk.broken = True
    rig.disk.go.release()
    rig.grow(100, urgent=True)
    with trio.fail_after(60), pytest.raises(StoreError, match="fsync"):
        await rig.flush.run()
    assert rig.flushed == []
    assert rig.events.names() == ["flush_failed"]
