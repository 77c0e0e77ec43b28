"""The border between Trio's float seconds and the cores' integer milliseconds."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trioha.remoting.channel import Instant


class Clock:
    """Both times of a node, in one Trio run. HOT.

    `wall` gives seconds since 1970; if it is set back, `Clock` is not.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._last_wall_ms = 0
        self._current_time: Callable[[], float] = self._first_time
        self._offset_s = math.nan
        """What `clock_offset_s` returned; NaN before that too."""

    @classmethod
    def virtual(cls, epoch_s: float = 1_700_000_000.0) -> Clock:
        """A clock whose wall follows Trio's time: for MockClock."""
        return cls(lambda: epoch_s + trio.current_time())

    def _first_time(self) -> float:
        clock = trio.lowlevel.current_clock()
        self._offset_s = clock_offset_s(clock)
        self._current_time = clock.current_time
        return self._current_time()

    def _now_s(self) -> float:
        offset_s = self._offset_s
        # NaN is not equal to itself.
        return time.perf_counter() + offset_s if offset_s == offset_s else self._current_time()

    def now_ms(self) -> int:
        return int(self._now_s() * 1000)

    def wall_ms(self) -> int:
        wall_ms = int(self._wall() * 1000)
        # Store timestamps must not fall: time search and recovery rely on their order.
        if wall_ms < self._last_wall_ms:
            return self._last_wall_ms
        self._last_wall_ms = wall_ms
        return wall_ms

    def instant(self) -> Instant:
        return Instant(int(self._now_s() * 1000), self.wall_ms())


def clock_offset_s(clock: Any) -> float:
    """Return what to add to `time.perf_counter` for the time of Trio's own clock.

    Asking that clock costs a call of interpreted code, and each message asks several times. NaN for
    a clock that is none of Trio's own, or one that this Trio makes otherwise.
    """
    offset_s = getattr(clock, "offset", None)
    before_s = time.perf_counter()
    now_s = clock.current_time()
    if isinstance(offset_s, float) and before_s <= now_s - offset_s <= time.perf_counter():
        return offset_s
    return math.nan


def wake_time_s(deadline_ms: int) -> float:
    """Return the Trio time at which `Clock.now_ms()` has reached the deadline."""
    # An alarm is never early: half a millisecond keeps int(now * 1000) from falling short.
    return deadline_ms / 1000 + 0.0005


def sleep_until_ms(deadline_ms: int) -> Awaitable[None]:
    """Sleep until `Clock.now_ms()` has reached the deadline."""
    return trio.sleep_until(wake_time_s(deadline_ms))
