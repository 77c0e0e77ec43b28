"""A task that sleeps until a core's next deadline: how pure machines get their time."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import trio

from trioha.remoting.channel import Instant
from trioha.services.loop.clock import Clock, wake_time_s


@attrs.define(eq=False)
class Alarm:
    """Calls `on_time` when `next_deadline_ms` has come.

    `check` is for the end of a batch: it costs a comparison unless a deadline has come nearer. An
    alarm for a deadline that is gone rings for nothing: that is cheaper than moving it each time.
    """

    _clock: Clock
    _next_deadline_ms: Callable[[], int | None]
    _on_time: Callable[[Instant], None]
    _armed_ms: float = attrs.field(default=math.inf, init=False)
    _nearer: trio.Event = attrs.field(factory=trio.Event, init=False)

    def check(self) -> None:
        """Take note of a deadline that is nearer than the one slept for."""
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._armed_ms:
            self._armed_ms = deadline_ms
            self._nearer.set()

    def arm(self) -> None:
        """Take note of the first deadline there is. HOT.

        Instead of `check`, where no deadline comes nearer while one is slept for.
        """
        if self._armed_ms == math.inf:
            self.check()

    async def run(self) -> None:
        while True:
            self._nearer = trio.Event()
            deadline_ms = self._next_deadline_ms()
            if deadline_ms is None:
                self._armed_ms = math.inf
                await self._nearer.wait()
                continue
            self._armed_ms = deadline_ms
            with trio.move_on_at(wake_time_s(deadline_ms)):
                await self._nearer.wait()
            due_ms = self._next_deadline_ms()
            if due_ms is not None and self._clock.now_ms() >= due_ms:
                self._on_time(self._clock.instant())
