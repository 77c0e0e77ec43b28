"""Notices that this process did not run for a while: SIGSTOP, or a paused virtual machine.

A master that stood still may have been replaced meanwhile, and would answer what lies in its
sockets before it hears of that. So the first request that a connection brings after a pause asks
here before it is handled. A task keeps the time while nothing arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio

from trioha.services.loop.clock import Clock
from trioha.services.loop.host import is_simulated

LIMIT_MS = 2_000
"""Less time than a command needs to find a master silent and to promote another node."""
TICK_S = 0.5


class StandStill:
    """Calls `on_stood_still` with the length of the pause in milliseconds, once for each pause."""

    def __init__(self, clock: Clock, on_stood_still: Callable[[int], None]) -> None:
        self._clock = clock
        self._on_stood_still = on_stood_still
        self._limit_ms: float = LIMIT_MS
        self._seen_ms: int | None = None

    def check(self, now_ms: int) -> None:
        """The process runs at this moment."""
        before_ms, self._seen_ms = self._seen_ms, now_ms
        if before_ms is not None and now_ms - before_ms > self._limit_ms:
            self._on_stood_still(now_ms - before_ms)

    async def run(self) -> None:
        """Keep the time until cancelled."""
        if is_simulated():
            self._limit_ms = inf
            await trio.sleep_forever()
        while True:
            self.check(self._clock.now_ms())
            await trio.sleep(TICK_S)
