"""An alarm for a core's next deadline: how pure machines get their time.

The task of an alarm is `trioha.services.loop.ringing`. It parks here, and the alarm rings inside
Trio's wait for I/O (`ready_reads`). Where that is not possible, the task sleeps until the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import outcome
import trio

from trioha.remoting.channel import Instant
from trioha.services.loop.clock import Clock, wake_time_s
from trioha.services.loop.ready_reads import ReadyReads

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
        """Set when a task that sleeps has to look again before what `arm_next` returned."""
        self._reads: ReadyReads | None = None
        self._task: trio.lowlevel.Task | None = None
        """The task that is parked."""
        self._rings = False
        self._is_aborted = False

    def check(self) -> None:
        """Take note of a deadline that is nearer than the one slept for. HOT."""
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._armed_ms:
            self._armed_ms = deadline_ms
            if self._reads is not None:
                self._reads.wake_at(wake_time_s(deadline_ms))
            else:
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

    def park(self, task: trio.lowlevel.Task, reads: ReadyReads) -> None:
        """Ring inside the wait, for this task, which waits to be rescheduled, with `abort`.

        It is rescheduled with what `on_time` has raised; with None when that has cancelled it.
        """
        self._task, self._reads, self._is_aborted = task, reads, False
        reads.add_alarm(self._on_wake)
        self._arm_again()

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """Ring no more: the task is cancelled. Trio calls it."""
        if self._rings:
            # `on_time` may raise an error yet, which must not be lost.
            self._is_aborted = True
            return trio.lowlevel.Abort.FAILED
        self._leave()
        return trio.lowlevel.Abort.SUCCEEDED

    def _on_wake(self) -> None:
        reads, armed_ms = self._reads, self._armed_ms
        if reads is None or armed_ms == _NEVER_MS:
            return
        if self._clock.now_ms() < armed_ms:  # another's time has come
            reads.wake_at(wake_time_s(armed_ms))
            return
        ended: outcome.Outcome[None]
        self._rings = True
        try:
            self.ring_if_due()
            ended = outcome.Value(None)
            if not self._is_aborted:
                self._arm_again()
                return
        except BaseException as error:
            ended = outcome.Error(error)
        finally:
            self._rings = False
        task = self._leave()
        if task is not None:
            trio.lowlevel.reschedule(task, ended)

    def _arm_again(self) -> None:
        self._armed_ms = _NEVER_MS
        self.check()

    def _leave(self) -> trio.lowlevel.Task | None:
        if self._reads is not None:
            self._reads.remove_alarm(self._on_wake)
        task, self._task, self._reads = self._task, None, None
        return task
