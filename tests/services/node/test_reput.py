"""Dispatches of the log: before the loop sleeps or by the task, and what errors do to each."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing
from support.suite.skips import skip_unless

from trioha.errors import CommitLogCorrupted, DiskFull, StoreError
from trioha.services.loop.ready_reads import ready_reads, start_ready_reads
from trioha.services.node.log_growth import GATHER_S
from trioha.services.node.reput import Reput
from trioha.testing.recorded_events import RecordedEvents

PATIENCE_S = 60.0
SOME = 100
MUCH = 16_384


class Log:
    """A log whose dispatch is told; `fails` is raised once."""

    def __init__(self) -> None:
        self.max_phy_offset = 0
        self.dispatched_offset = 0
        self.fails: StoreError | None = None
        self.by_task: list[bool] = []
        """Whether a task called it, for each dispatch that moved on."""

    def dispatch(self, bytes_max: int) -> bool:
        error, self.fails = self.fails, None
        if error is not None:
            raise error
        before = self.dispatched_offset
        self.dispatched_offset = min(self.max_phy_offset, before + bytes_max)
        if self.dispatched_offset != before:
            self.by_task.append(_in_task())
        return self.dispatched_offset < self.max_phy_offset


def _in_task() -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


class Rig:
    def __init__(self) -> None:
        self.log = Log()
        self.events = RecordedEvents()
        self.catches_up = False
        self.damages: list[CommitLogCorrupted] = []
        self.raises: Exception | None = None
        self._news = trio.Event()
        self.reput = Reput(
            self.log,
            self.events,
            self._dispatched,
            lambda: self.catches_up,
            self.damages.append,
        )

    def _dispatched(self) -> None:
        self._news.set()
        if self.raises is not None:
            raise self.raises

    def grow(self, size: int) -> None:
        self.log.max_phy_offset += size
        self.reput.grown_nowait()

    async def wait_level(self) -> None:
        with trio.fail_after(PATIENCE_S):
            while self.log.dispatched_offset < self.log.max_phy_offset:
                self._news = trio.Event()
                await self._news.wait()


@pytest.fixture
async def rig() -> Rig:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    return Rig()


async def _started(rig: Rig, nursery: trio.Nursery) -> None:
    nursery.start_soon(rig.reput.run)
    await trio.testing.wait_all_tasks_blocked()


async def test_what_a_loaded_node_appends_is_dispatched_before_it_sleeps(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        for _ in range(3):
            rig.grow(MUCH)
            assert rig.log.dispatched_offset < rig.log.max_phy_offset, "answers go first"
            await rig.wait_level()
        assert rig.log.by_task == [False] * 3
        nursery.cancel_scope.cancel()


async def test_small_appends_are_dispatched_as_soon_as_they_are_much_together(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        for _ in range(MUCH // SOME + 1):
            rig.grow(SOME)
        await rig.wait_level()
        assert rig.log.by_task == [False]
        nursery.cancel_scope.cancel()


async def test_little_waits_for_more_and_wakes_no_task(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        began_s = trio.current_time()
        for _ in range(3):
            rig.grow(SOME)
        await rig.wait_level()
        assert trio.current_time() - began_s >= GATHER_S
        assert rig.log.by_task == [False]
        nursery.cancel_scope.cancel()


async def test_little_behind_much_waits_for_more_too(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.grow(MUCH)
        await rig.wait_level()
        rig.grow(SOME)
        await rig.wait_level()
        assert rig.log.by_task == [False, False]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [SOME, MUCH])
async def test_what_a_flood_of_reads_puts_off_is_done_by_the_task(rig: Rig, size: int) -> None:
    reads = ready_reads()
    assert reads is not None
    near, far = socket.socketpair()
    with near, far:
        far.send(b"x")
        async with trio.open_nursery() as nursery:
            await _started(rig, nursery)
            reads.add(near.fileno(), lambda: None)  # it stays readable
            rig.grow(size)
            await rig.wait_level()
            reads.remove(near.fileno())
            assert rig.log.by_task == [True]
            nursery.cancel_scope.cancel()


async def test_all_of_a_large_turn_is_dispatched(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.grow(20 * MUCH)
        await rig.wait_level()
        assert not rig.log.by_task[0]
        assert rig.log.by_task[1:] == [True] * (len(rig.log.by_task) - 1)
        nursery.cancel_scope.cancel()


async def test_after_a_cut_a_loaded_node_goes_on_as_before(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.grow(10 * MUCH)
        await rig.wait_level()
        rig.log.max_phy_offset = rig.log.dispatched_offset = MUCH
        rig.grow(SOME)
        await rig.wait_level()
        rig.grow(MUCH)
        await rig.wait_level()
        assert rig.log.by_task[-1] is False
        nursery.cancel_scope.cancel()


async def test_a_slave_that_catches_up_leaves_it_to_the_task(rig: Rig) -> None:
    rig.catches_up = True
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.grow(10 * MUCH)
        await rig.wait_level()
        assert all(rig.log.by_task)
        nursery.cancel_scope.cancel()


async def test_a_full_disk_is_told_by_the_task_and_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.log.fails = DiskFull("no space left")
        rig.grow(MUCH)
        await rig.wait_level()
        assert rig.events.names() == ["task_failed"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [DiskFull("no space left"), CommitLogCorrupted("no record")])
async def test_an_error_before_the_sleep_is_left_to_the_task(rig: Rig, error: StoreError) -> None:
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.log.fails = error
        rig.grow(MUCH)
        await rig.wait_level()
        # It came again there, and found the error gone.
        assert rig.log.by_task == [True]
        assert rig.damages == []
        assert rig.events.names() == []
        nursery.cancel_scope.cancel()


async def test_damage_goes_to_who_can_mend_it() -> None:
    rig, error = Rig(), CommitLogCorrupted("no record")
    rig.log.fails = error
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.reput.run)
        rig.grow(SOME)
        with trio.fail_after(PATIENCE_S):
            while not rig.damages:
                await trio.lowlevel.checkpoint()
        assert rig.damages == [error]
        nursery.cancel_scope.cancel()


async def test_what_the_listener_raises_ends_the_task_and_not_the_loop(rig: Rig) -> None:
    rig.raises = StoreError("a table cannot be saved")
    rig.grow(SOME)
    rig.grow(MUCH)
    with trio.fail_after(PATIENCE_S), pytest.raises(StoreError, match="table"):
        await rig.reput.run()


async def test_it_raises_too_what_was_raised_before_the_sleep(rig: Rig) -> None:
    rig.raises = StoreError("a table cannot be saved")
    failed = trio.Event()

    async def run() -> None:
        with pytest.raises(StoreError, match="table"):
            await rig.reput.run()
        failed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        rig.grow(MUCH)
        with trio.fail_after(PATIENCE_S):
            await failed.wait()
    assert rig.log.by_task == [False]


async def test_a_store_that_is_being_closed_is_left_alone(rig: Rig) -> None:
    reads, quiet = ready_reads(), trio.Event()
    assert reads is not None
    async with trio.open_nursery() as nursery:
        await _started(rig, nursery)
        rig.grow(MUCH)
        nursery.cancel_scope.cancel()
    rig.grow(MUCH)
    reads.when_idle(quiet.set)
    with trio.fail_after(PATIENCE_S):
        await quiet.wait()
    assert rig.log.by_task == []
