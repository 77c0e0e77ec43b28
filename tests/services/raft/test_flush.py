"""The fsync thread of a member: started by who appends, and what it proves."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from trioha.errors import StoreError
from trioha.services.loop.clock import Clock
from trioha.services.raft.flush import RaftFlush
from trioha.testing.recorded_events import RecordedEvents


class Disk:
    """Each fsync waits until it is let go."""

    def __init__(self) -> None:
        self.end = 0
        self.queues_flushed = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.broken = False

    def flush(self) -> int:
        offset = self.end
        self.started.release()
        assert self.go.acquire(timeout=10)
        if self.broken:
            raise StoreError("fsync of the log failed: Input/output error")
        return offset

    def flush_queues(self) -> None:
        self.queues_flushed.release()


class Rig:
    """Listens, too."""

    def __init__(self, queue_interval_ms: int = 3_600_000, delay_ms: int = 0) -> None:
        self.disk = Disk()
        self.cut_count = 0
        self.told: list[tuple[int, int]] = []
        self.failed: list[StoreError] = []
        self.news = trio.Event()
        self.raises: Exception | None = None
        self.events = RecordedEvents()
        self.flush = RaftFlush(
            self.disk,
            queue_interval_ms,
            Clock(),
            self.events,
            listener=lambda: self,
            delay_ms=delay_ms,
        )

    def flushed(self, end_offset: int, cut_count: int) -> None:
        self.told.append((end_offset, cut_count))
        self.news.set()
        if self.raises is not None:
            raise self.raises

    def flush_failed(self, error: StoreError) -> None:
        self.failed.append(error)

    def grow(self, end: int) -> None:
        self.disk.end = end
        self.flush.grown_nowait()

    async def fsync_started(self) -> None:
        with trio.fail_after(10):
            await trio.to_thread.run_sync(self.disk.started.acquire)

    async def wait_told(self, count: int) -> None:
        with trio.fail_after(10):
            while len(self.told) < count:
                self.news = trio.Event()
                await self.news.wait()


async def test_one_fsync_covers_what_was_appended_while_the_last_one_ran() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked()
        rig.grow(100)
        await rig.fsync_started()
        for end in (200, 300, 400):
            rig.grow(end)
        rig.disk.go.release(2)
        await rig.wait_told(2)
        assert rig.told == [(100, 0), (400, 0)]
        nursery.cancel_scope.cancel()


async def test_the_fsync_starts_in_the_pass_that_appends() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked()
        rig.grow(100)
        # Nothing of ours has run since: not one checkpoint.
        assert rig.disk.started.acquire(timeout=10)
        rig.disk.go.release()
        await rig.wait_told(1)
        nursery.cancel_scope.cancel()


async def test_what_may_wait_is_flushed_together_after_its_delay(
    mock_clock: trio.testing.MockClock,
) -> None:
    rig = Rig(delay_ms=500)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked()
        rig.grow(100)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.4)
        rig.grow(200)
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.disk.started.acquire(blocking=False)
        mock_clock.jump(0.1)
        await rig.fsync_started()
        # What comes while it runs has a delay of its own.
        rig.grow(300)
        rig.disk.go.release(2)
        await rig.wait_told(1)
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.disk.started.acquire(blocking=False)
        mock_clock.jump(0.5)
        await rig.wait_told(2)
        assert rig.told == [(200, 0), (300, 0)]
        nursery.cancel_scope.cancel()


async def test_an_fsync_tells_how_often_the_log_had_been_cut_when_it_began() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100)
        await rig.fsync_started()
        rig.cut_count = 1
        rig.grow(90)
        rig.disk.go.release(2)
        await rig.wait_told(2)
        assert rig.told == [(100, 0), (90, 1)]
        nursery.cancel_scope.cancel()


async def test_a_failed_fsync_is_told_and_ends_the_task() -> None:
    rig = Rig()
    rig.disk.broken = True
    with pytest.RaisesGroup(StoreError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.flush.run)
            rig.grow(100)
            rig.disk.go.release()
    assert len(rig.failed) == 1
    assert rig.events.names() == ["flush_failed"]
    assert not rig.told


async def test_what_the_listener_raises_ends_the_task_and_not_the_loop() -> None:
    rig = Rig()
    rig.raises = StoreError("the vote cannot be saved")
    with pytest.RaisesGroup(StoreError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.flush.run)
            rig.grow(100)
            rig.disk.go.release()


async def test_it_ends_only_when_the_thread_has_left_the_store() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100)
        await rig.fsync_started()
        nursery.cancel_scope.cancel()
        threading.Timer(0.02, rig.disk.go.release).start()
    assert rig.told == [(100, 0)]


async def test_queues_are_flushed_later() -> None:
    rig = Rig(queue_interval_ms=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.disk.go.release()
        rig.grow(100)
        await rig.wait_told(1)
        with trio.fail_after(10):
            await trio.to_thread.run_sync(rig.disk.queues_flushed.acquire)
        nursery.cancel_scope.cancel()
