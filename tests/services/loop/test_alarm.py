from __future__ import annotations

import socket

import pytest
import trio
from support.suite.skips import skip_unless
from trio.testing import MockClock, wait_all_tasks_blocked

from trioha.remoting.channel import Instant
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.ready_reads import start_ready_reads
from trioha.services.loop.ringing import ring

PATIENCE_S = 60.0


class Core:
    """A machine with one deadline at a time."""

    def __init__(self) -> None:
        self.deadline_ms: int | None = None
        self.rung: list[int] = []

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_time(self, instant: Instant) -> None:
        assert self.deadline_ms is not None
        assert instant.now_ms >= self.deadline_ms
        self.rung.append(instant.now_ms)
        self.deadline_ms = None


async def test_an_alarm_rings_at_its_deadline_and_never_early(autojump_clock: MockClock) -> None:
    core = Core()
    alarm = Alarm(Clock.virtual(), core.next_deadline_ms, core.on_time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring, alarm)
        await wait_all_tasks_blocked()
        core.deadline_ms = 5000
        alarm.check()
        await trio.sleep(4.9)
        assert core.rung == []
        await trio.sleep(0.2)
        assert core.rung == [5000]
        nursery.cancel_scope.cancel()


async def test_a_nearer_deadline_is_noticed_by_check(autojump_clock: MockClock) -> None:
    core = Core()
    core.deadline_ms = 60_000
    alarm = Alarm(Clock.virtual(), core.next_deadline_ms, core.on_time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring, alarm)
        await wait_all_tasks_blocked()
        core.deadline_ms = 1000
        alarm.check()
        await trio.sleep(1.1)
        assert core.rung == [1000]
        nursery.cancel_scope.cancel()


async def test_the_first_deadline_arms_and_later_ones_cost_no_question(
    autojump_clock: MockClock,
) -> None:
    core, asked = Core(), 0

    def next_deadline_ms() -> int | None:
        nonlocal asked
        asked += 1
        return core.deadline_ms

    alarm = Alarm(Clock.virtual(), next_deadline_ms, core.on_time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring, alarm)
        await wait_all_tasks_blocked()
        alarm.arm()
        core.deadline_ms = 5000
        alarm.arm()
        await wait_all_tasks_blocked()
        before = asked
        for _ in range(10):
            alarm.arm()
        assert asked == before
        await trio.sleep(5.1)
        assert core.rung == [5000]
        core.deadline_ms = 9000
        alarm.arm()
        await trio.sleep(4.0)
        assert core.rung == [5000, 9000]
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_went_away_rings_nobody(autojump_clock: MockClock) -> None:
    core = Core()
    core.deadline_ms = 1000
    alarm = Alarm(Clock.virtual(), core.next_deadline_ms, core.on_time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring, alarm)
        await wait_all_tasks_blocked()
        core.deadline_ms = None
        await trio.sleep(2)
        assert core.rung == []
        core.deadline_ms = 3000
        alarm.check()
        await trio.sleep(2)
        assert core.rung == [3000]
        nursery.cancel_scope.cancel()


class Passes(trio.abc.Instrument):
    """Counts the steps of tasks by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.names.append(task.name)


@pytest.fixture
async def in_wait() -> None:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")


async def test_an_alarm_in_the_wait_rings_often_without_a_step_of_its_task(in_wait: None) -> None:
    clock, passes, done, rung = Clock(), Passes(), trio.Event(), []
    deadline_ms = 1 << 61

    def on_time(instant: Instant) -> None:
        nonlocal deadline_ms
        assert instant.now_ms >= deadline_ms
        rung.append(instant.now_ms)
        deadline_ms = instant.now_ms + 1
        if len(rung) == 5:
            done.set()

    alarm = Alarm(clock, lambda: deadline_ms, on_time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring, alarm, name="ring")
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(passes)
        deadline_ms = clock.now_ms() + 1
        alarm.check()
        with trio.fail_after(PATIENCE_S):
            await done.wait()
        trio.lowlevel.remove_instrument(passes)
        nursery.cancel_scope.cancel()
    assert "ring" not in passes.names


async def test_an_alarm_in_the_wait_rings_although_trio_has_events_at_each_wait(
    in_wait: None,
) -> None:
    clock, core, done = Clock(), Core(), trio.Event()

    def on_time(instant: Instant) -> None:
        core.on_time(instant)
        done.set()

    async def read_for_ever(sock: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(sock)

    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.send(b"x")
        core.deadline_ms = clock.now_ms() + 5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_for_ever, near)
            nursery.start_soon(ring, Alarm(clock, core.next_deadline_ms, on_time))
            with trio.fail_after(PATIENCE_S):
                await done.wait()
            nursery.cancel_scope.cancel()


async def test_two_alarms_in_the_wait_ring_each_at_its_time(in_wait: None) -> None:
    clock, first, second, done = Clock(), Core(), Core(), trio.Event()

    def on_time(instant: Instant) -> None:
        first.on_time(instant)
        done.set()

    alarms = [
        Alarm(clock, first.next_deadline_ms, on_time),
        Alarm(clock, second.next_deadline_ms, second.on_time),
    ]
    async with trio.open_nursery() as nursery:
        for alarm in alarms:
            nursery.start_soon(ring, alarm)
        await wait_all_tasks_blocked()
        now_ms = clock.now_ms()
        first.deadline_ms, second.deadline_ms = now_ms + 40, now_ms + 10
        for alarm in alarms:
            alarm.check()
        with trio.fail_after(PATIENCE_S):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert now_ms + 10 <= second.rung[0] <= first.rung[0]
    assert first.rung[0] >= now_ms + 40


async def test_an_error_of_an_alarm_in_the_wait_ends_its_task(in_wait: None) -> None:
    clock = Clock()
    due_ms = clock.now_ms()

    def on_time(_: Instant) -> None:
        raise ValueError("the disk failed")

    alarm = Alarm(clock, lambda: due_ms, on_time)
    with trio.fail_after(PATIENCE_S), pytest.raises(ValueError, match="the disk failed"):
        await ring(alarm)


async def test_an_alarm_in_the_wait_that_cancels_its_own_task_has_rung_for_the_last_time(
    in_wait: None,
) -> None:
    clock, rung = Clock(), []
    scope = trio.CancelScope()

    def on_time(instant: Instant) -> None:
        rung.append(instant.now_ms)
        scope.cancel()

    alarm = Alarm(clock, lambda: 0, on_time)
    with trio.fail_after(PATIENCE_S), scope:
        await ring(alarm)
    assert len(rung) == 1
    # All alarms are called when one is due, so a later one would bring it to ring again.
    later, due_ms = trio.CancelScope(), clock.now_ms() + 2
    with trio.fail_after(PATIENCE_S), later:
        await ring(Alarm(clock, lambda: due_ms, lambda _: later.cancel()))
    assert len(rung) == 1
