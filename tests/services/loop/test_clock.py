"""The border between Trio's seconds and our milliseconds."""

from __future__ import annotations

import math
import time

import trio
import trio.testing

from trioha.services.loop.clock import Clock, clock_offset_s


class _Clock(trio.abc.Clock):
    """A clock whose time differs from the one that it says."""

    def __init__(self, offset: object, real_offset_s: float) -> None:
        self.offset = offset
        self._real_offset_s = real_offset_s

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._real_offset_s + time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


def test_trio_s_own_clock_is_read_without_asking_it() -> None:
    async def main() -> None:
        offset_s = clock_offset_s(trio.lowlevel.current_clock())
        before_s = trio.current_time()
        now_s = time.perf_counter() + offset_s
        assert before_s <= now_s <= trio.current_time()
        clock = Clock()
        for _ in range(2):  # the first time it asks
            before_ms = int(trio.current_time() * 1000)
            assert before_ms <= clock.now_ms() <= int(trio.current_time() * 1000)

    trio.run(main)


def test_a_clock_that_is_none_of_trio_s_own_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert math.isnan(clock_offset_s(autojump_clock))


def test_an_offset_that_does_not_hold_is_not_believed() -> None:
    assert clock_offset_s(_Clock(7.0, 7.0)) == 7.0
    assert math.isnan(clock_offset_s(_Clock(7.0, 8.0)))
    assert math.isnan(clock_offset_s(_Clock("7", 7.0)))


async def test_virtual_time_goes_on_as_trio_s_does(autojump_clock: trio.testing.MockClock) -> None:
    clock = Clock.virtual()
    begin = clock.instant()
    await trio.sleep(1.5)
    assert clock.now_ms() - begin.now_ms == 1500
    assert clock.instant().wall_ms - begin.wall_ms == 1500


async def test_the_wall_never_goes_back(autojump_clock: trio.testing.MockClock) -> None:
    times = iter((10.0, 9.0, 11.0))
    clock = Clock(lambda: next(times))
    assert [clock.wall_ms() for _ in range(3)] == [10_000, 10_000, 11_000]
