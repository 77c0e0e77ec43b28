"""The fsync of the log: when it starts, what it covers, and what its end proves."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing
from support.suite.skips import skip_unless

from trioha.errors import StoreError
from trioha.services.loop.clock import Clock
from trioha.services.loop.ready_reads import start_ready_reads
from trioha.services.node.log_flush import LogFlush
from trioha.testing.recorded_events import RecordedEvents

PATIENCE_S = 60.0
FAR_MS = 3_600_000
EARLY_S = 0.05
"""A thread that has something to do begins within it."""


class Disk:
    """Each fsync waits until it is let go."""

    def __init__(self) -> None:
        self.end = 0
        self.queue_flushes = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.broken = False
        self._is_busy = False

    def flush(self) -> int:
        assert not self._is_busy, "two at a time"
        self._is_busy = True
        offset = self.end
        self.started.release()
        assert self.go.acquire(timeout=PATIENCE_S)
        self._is_busy = False
        if self.broken:
            raise StoreError("fsync of the log failed: Input/output error")
        return offset

    def flush_queues(self) -> None:
        self.queue_flushes.release()


class Rig:
    def __init__(
        self,
        delay_ms: int = FAR_MS,
        queue_interval_ms: int = FAR_MS,
        clock: Clock | None = None,
    ) -> None:
        self.disk = Disk()
        self.cut_count = 0
        self.told: list[tuple[int, int]] = []
        self.failed: list[StoreError] = []
        self.raises: Exception | None = None
        self.events = RecordedEvents()
        self._news = trio.Event()
        self.flush = LogFlush(
            self.disk,
            clock or Clock(),
            self.events,
            delay_ms=delay_ms,
            queue_interval_ms=queue_interval_ms,
            on_flushed=self._flushed,
            on_failed=self.failed.append,
            cut_count=lambda: self.cut_count,
        )

    def _flushed(self, end: int, cut_count: int) -> None:
        self.told.append((end, cut_count))
        self._news.set()
        if self.raises is not None:
            raise self.raises

    def grow(self, end: int, *, urgent: bool = True, quiet: bool = False) -> None:
        self.disk.end = end
        self.flush.grown_nowait(urgent=urgent, quiet=quiet)

    async def fsync_started(self) -> None:
        with trio.fail_after(PATIENCE_S):
            await trio.to_thread.run_sync(self.disk.started.acquire)

    async def wait_told(self, count: int) -> None:
        with trio.fail_after(PATIENCE_S):
            while len(self.told) < count:
                self._news = trio.Event()
                await self._news.wait()

    async def collect(self, count: int) -> None:
        """Collect until so many ends were told. A thread that ends quietly gives no sign."""
        with trio.fail_after(PATIENCE_S):
            while len(self.told) < count:
                self.flush.collect_nowait()
                await trio.lowlevel.checkpoint()

    def has_started(self) -> bool:
        """Return whether one more fsync has started; waits a moment for its thread."""
        return self.disk.started.acquire(timeout=EARLY_S)


@pytest.fixture(params=["one of Trio's threads", "a thread that stays"])
async def either_thread(request: pytest.FixtureRequest) -> None:
    """A node's own thread needs sockets that are read inside the loop's wait."""
    if request.param == "a thread that stays":
        skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")


# Starts of fsyncs.


@pytest.mark.usefixtures("either_thread")
async def test_one_fsync_covers_everything_queued_while_the_last_one_ran() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
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
        assert rig.disk.started.acquire(timeout=PATIENCE_S)
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
        rig.grow(100, urgent=False)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.4)
        rig.grow(200, urgent=False)
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.has_started()
        mock_clock.jump(0.1)
        await rig.fsync_started()
        # Bytes that are appended while an fsync runs have a delay of their own.
        rig.grow(300, urgent=False)
        rig.disk.go.release(2)
        await rig.wait_told(1)
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.has_started()
        mock_clock.jump(0.5)
        await rig.wait_told(2)
        assert rig.told == [(200, 0), (300, 0)]
        nursery.cancel_scope.cancel()


async def test_a_put_that_waits_for_the_disk_cuts_the_delay_short(
    mock_clock: trio.testing.MockClock,
) -> None:
    rig = Rig(delay_ms=500)
    rig.disk.go.release(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, urgent=False)
        await trio.testing.wait_all_tasks_blocked()
        rig.grow(200)
        await rig.wait_told(1)
        assert rig.told == [(200, 0)]
        # The delay went with it.
        assert rig.has_started()
        mock_clock.jump(10)
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.has_started()
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("either_thread")
async def test_a_put_that_waits_while_one_runs_is_not_delayed_by_one_that_may() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100)
        await rig.fsync_started()
        rig.grow(200, urgent=False)
        rig.grow(300)
        rig.grow(400, urgent=False)
        rig.disk.go.release(2)
        await rig.wait_told(2)
        assert rig.told[1] == (400, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("either_thread")
async def test_what_has_grown_before_it_runs_is_flushed() -> None:
    rig = Rig()
    rig.grow(100)
    rig.disk.go.release()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await rig.wait_told(1)
        nursery.cancel_scope.cancel()


async def test_nothing_is_flushed_while_nothing_grows() -> None:
    rig = Rig(delay_ms=1, queue_interval_ms=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert not rig.has_started()
        assert not rig.disk.queue_flushes.acquire(blocking=False)
        nursery.cancel_scope.cancel()


async def test_queues_reach_the_disk_after_the_last_growth_too() -> None:
    rig = Rig(delay_ms=1, queue_interval_ms=1)
    rig.disk.go.release()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, urgent=False)
        with trio.fail_after(PATIENCE_S):
            await trio.to_thread.run_sync(rig.disk.queue_flushes.acquire)
        nursery.cancel_scope.cancel()
    assert rig.told == [(100, 0)]


# The end of an fsync proves what it covers, and no more.


@pytest.mark.usefixtures("either_thread")
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


@pytest.mark.usefixtures("either_thread")
async def test_a_failed_fsync_ends_the_node_and_acknowledges_nothing() -> None:
    """Fault A11: RocketMQ answered SEND_OK although the flush had failed."""
    rig = Rig()
    rig.disk.broken = True
    rig.disk.go.release()
    rig.grow(100)
    with trio.fail_after(PATIENCE_S), pytest.raises(StoreError, match="fsync"):
        await rig.flush.run()
    assert len(rig.failed) == 1
    assert rig.told == []
    assert rig.events.names() == ["flush_failed"]


@pytest.mark.usefixtures("either_thread")
async def test_what_the_listener_raises_ends_the_task_and_not_the_loop() -> None:
    rig = Rig()
    rig.raises = StoreError("the vote cannot be saved")
    rig.disk.go.release()
    rig.grow(100)
    with trio.fail_after(PATIENCE_S), pytest.raises(StoreError, match="vote"):
        await rig.flush.run()


@pytest.mark.usefixtures("either_thread")
async def test_it_ends_only_when_the_thread_has_left_the_store() -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100)
        await rig.fsync_started()
        nursery.cancel_scope.cancel()
        threading.Timer(0.02, rig.disk.go.release).start()
    assert rig.told == [(100, 0)]


async def test_a_flush_by_hand_tells_what_is_durable() -> None:
    rig = Rig()
    rig.disk.end = 100
    rig.disk.go.release(2)
    await rig.flush.flush_all()
    assert rig.told == [(100, 0)]
    assert rig.disk.queue_flushes.acquire(blocking=False)
    rig.disk.broken = True
    with pytest.raises(StoreError):
        await rig.flush.flush_log()
    assert rig.events.names() == ["flush_failed"]


# The thread that stays.


async def test_the_fsync_starts_behind_all_that_is_read_at_a_time() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked()
        for end in (100, 200):
            rig.grow(end)
        assert not rig.has_started(), "more may come before the loop waits"
        await rig.fsync_started()
        rig.grow(300)
        rig.disk.go.release(2)
        await rig.wait_told(2)
        assert rig.told == [(200, 0), (300, 0)]
        nursery.cancel_scope.cancel()


async def test_one_fsync_is_under_way_at_a_time() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig(delay_ms=0)
    rig.disk.go.release(1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        for number in range(1, 500):
            rig.grow(10 * number, urgent=False)
            # Its time has come; in the same pass, before or behind that, a put waits.
            await trio.lowlevel.checkpoint()
            rig.grow(10 * number + 1)
            while rig.told[-1:] != [(10 * number + 1, 0)]:
                await rig.wait_told(len(rig.told) + 1)
        nursery.cancel_scope.cancel()


async def test_what_was_put_off_when_it_is_cancelled_still_reaches_the_disk() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    rig.disk.go.release()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        await trio.testing.wait_all_tasks_blocked()
        rig.grow(100)
        nursery.cancel_scope.cancel()
    assert rig.told == [(100, 0)]


# While nothing waits for the fsync.


async def test_an_fsync_that_nothing_waits_for_is_told_when_somebody_looks() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        for end in (100, 200):
            rig.grow(end, quiet=True)
            await rig.fsync_started()
            rig.disk.go.release()
            await trio.testing.wait_all_tasks_blocked(EARLY_S)
            assert len(rig.told) == end // 100 - 1
            await rig.collect(end // 100)
        assert rig.told == [(100, 0), (200, 0)]
        nursery.cancel_scope.cancel()


async def test_an_fsync_that_is_waited_for_after_its_start_is_told_as_it_ends() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, quiet=True)
        await rig.fsync_started()
        rig.flush.awaited_nowait()
        rig.disk.go.release()
        await rig.wait_told(1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_ended", [False, True])
async def test_what_grows_meanwhile_is_flushed_though_nothing_waits(has_ended: bool) -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, quiet=True)
        await rig.fsync_started()
        if has_ended:
            rig.disk.go.release()
            await trio.testing.wait_all_tasks_blocked(EARLY_S)
        rig.grow(200, quiet=True)
        rig.disk.go.release(2)
        await rig.fsync_started()
        await rig.collect(2)
        assert rig.told == [(100, 0), (200, 0)]
        nursery.cancel_scope.cancel()


async def test_a_failed_fsync_that_nothing_waits_for_ends_the_node_too() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    rig.disk.broken = True
    rig.disk.go.release()
    rig.grow(100, quiet=True)
    with trio.fail_after(PATIENCE_S), pytest.raises(StoreError, match="fsync"):
        await rig.flush.run()
    assert rig.told == []


async def test_it_ends_when_an_fsync_that_nothing_waits_for_has_ended() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    rig = Rig()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.flush.run)
            rig.grow(100, quiet=True)
            await rig.fsync_started()
            nursery.cancel_scope.cancel()
            threading.Timer(0.02, rig.disk.go.release).start()
    assert rig.told == [(100, 0)]


class TwoTimes:
    """A clock that the test sets, for the loop and for the thread that flushes."""

    def __init__(self, thread_ms: int) -> None:
        self.loop = threading.get_ident()
        self.loop_ms = 0
        self.thread_ms = thread_ms

    def now_ms(self) -> int:
        return self.loop_ms if threading.get_ident() == self.loop else self.thread_ms


@pytest.mark.parametrize(("fsync_ms", "events"), [(999, []), (1000, ["flush_stalled"])])
async def test_an_fsync_is_slow_by_its_own_time_however_late_it_is_told(
    fsync_ms: int, events: list[str]
) -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    clock = TwoTimes(fsync_ms)
    rig = Rig(clock=clock)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.flush.run)
        rig.grow(100, quiet=True)
        await rig.fsync_started()
        clock.loop_ms = 5000
        rig.disk.go.release()
        await rig.collect(1)
        nursery.cancel_scope.cancel()
    assert rig.events.names() == events
