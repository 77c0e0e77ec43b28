"""The border between Trio's float seconds and the cores' integer milliseconds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

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

    @classmethod
    def virtual(cls, epoch_s: float = 1_700_000_000.0) -> Clock:
        """A clock whose wall follows Trio's time: for MockClock."""
        return cls(lambda: epoch_s + trio.current_time())

    def _first_time(self) -> float:
        # Trio's own clock, asked directly: two calls less each time.
        self._current_time = trio.lowlevel.current_clock().current_time
        return self._current_time()

    def now_ms(self) -> int:
        return int(self._current_time() * 1000)

    def wall_ms(self) -> int:
        wall_ms = int(self._wall() * 1000)
        # Store timestamps must not fall: time search and recovery rely on their order.
        if wall_ms < self._last_wall_ms:
            return self._last_wall_ms
        self._last_wall_ms = wall_ms
        return wall_ms

    def instant(self) -> Instant:
        return Instant(int(self._current_time() * 1000), self.wall_ms())


def wake_time_s(deadline_ms: int) -> float:
    """Return the Trio time at which `Clock.now_ms()` has reached the deadline."""
    # An alarm is never early: half a millisecond keeps int(now * 1000) from falling short.
    return deadline_ms / 1000 + 0.0005


def sleep_until_ms(deadline_ms: int) -> Awaitable[None]:
    """Sleep until `Clock.now_ms()` has reached the deadline."""
    return trio.sleep_until(wake_time_s(deadline_ms))
