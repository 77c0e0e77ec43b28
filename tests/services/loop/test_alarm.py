from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trioha.remoting.channel import Instant
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.ringing import ring


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
