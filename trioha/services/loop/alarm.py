"""An alarm for a core's next deadline: how pure machines get their time.

The task that sleeps until then is `trioha.services.loop.ringing`. What each batch calls is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from trioha.remoting.channel import Instant
from trioha.services.loop.clock import Clock

_NEVER_MS: Final = 1 << 61


class Alarm:
    """Calls `on_time` when `next_deadline_ms` has come.

    `check` is for the end of a batch: it costs a comparison unless a deadline has come nearer. An
    alarm for a deadline that is gone rings for nothing: that is cheaper than moving it each time.
    """

    def __init__(
        self,
        clock: Clock,
        next_deadline_ms: Callable[[], int | None],
        on_time: Callable[[Instant], None],
    ) -> None:
        self._clock = clock
        self._next_deadline_ms = next_deadline_ms
        self._on_time = on_time
        self._armed_ms = _NEVER_MS
        self.nearer = trio.Event()
        """Set when the task has to look again before what `arm_next` returned."""

    def check(self) -> None:
        """Take note of a deadline that is nearer than the one slept for. HOT."""
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._armed_ms:
            self._armed_ms = deadline_ms
            self.nearer.set()

    def arm(self) -> None:
        """Take note of the first deadline there is. HOT.

        Instead of `check`, where no deadline comes nearer while one is slept for.
        """
        if self._armed_ms == _NEVER_MS:
            self.check()

    def arm_next(self) -> int | None:
        """Return the deadline to sleep for, or None: then until `nearer` is set."""
        self.nearer = trio.Event()
        deadline_ms = self._next_deadline_ms()
        self._armed_ms = _NEVER_MS if deadline_ms is None else deadline_ms
        return deadline_ms

    def ring_if_due(self) -> None:
        """Call `on_time` if the deadline has come."""
        due_ms = self._next_deadline_ms()
        if due_ms is not None and self._clock.now_ms() >= due_ms:
            self._on_time(self._clock.instant())
