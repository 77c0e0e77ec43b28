"""Notes that the log has grown, and has it dispatched soon if there is much. See `reput`, whose
task cannot be compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from trioha.services.loop.ready_reads import ReadyReads
from trioha.services.loop.wakeup import Wakeup

PROMPT_BYTES: Final = 16_384
"""So much is dispatched before the loop sleeps."""
GATHER_S: Final = 0.02
"""Less than that waits so long for more: work that comes together is done together."""


class GrowingLog(Protocol):
    @property
    def max_phy_offset(self) -> int: ...


class LogGrowth:
    """Calls `dispatch` when the loop is idle: once `PROMPT_BYTES` wait, or some for `GATHER_S`.

    It wakes the task when the loop has not become idle for so long, and always where tasks read
    sockets.
    """

    def __init__(self, log: GrowingLog, dispatch: Callable[[], None]) -> None:
        self.wakeup = Wakeup()
        self.done_end = 0
        """End of the log when all of it was dispatched last."""
        self._log = log
        self._dispatch = dispatch
        self._reads: ReadyReads | None = None
        """The wait of the loop. None while the task does not run, and where tasks read sockets."""
        self._is_called_soon = False
        self._is_put_off = False
        """If the loop is not idle before the next wake-up, the task has to do it."""
        self._due_s = math.inf
        """Time, as Trio tells it, to look at what waits; infinite while nothing does."""

    @property
    def is_in_wait(self) -> bool:
        """The task is woken only for what has waited long enough."""
        return self._reads is not None

    def start(self, reads: ReadyReads | None) -> None:
        """Dispatch inside the wait `reads`, until `stop`."""
        if reads is not None and reads.has_real_clock:
            self._reads = reads
            reads.add_alarm(self._on_wake)

    def stop(self) -> None:
        if self._reads is not None:
            self._reads.remove_alarm(self._on_wake)
        self._reads = None
        self._due_s = math.inf

    def grown_nowait(self) -> None:
        """The log has grown. HOT."""
        reads = self._reads
        if reads is None:
            self.wakeup.set()
            return
        if self._due_s == math.inf:
            self._wait(reads)
        if not self._is_called_soon and self._log.max_phy_offset - self.done_end >= PROMPT_BYTES:
            self._call_soon(reads)

    def _on_wake(self) -> None:
        reads = self._reads
        if reads is None or self._due_s == math.inf:
            return
        if reads.time_s() < self._due_s:
            reads.wake_at(self._due_s)
            return
        self._due_s = math.inf
        if self._is_put_off:  # a flood of reads keeps the loop from being idle
            self.wakeup.set()
        elif self._is_called_soon:
            self._is_put_off = True
            self._wait(reads)
        elif self._log.max_phy_offset != self.done_end:
            self._call_soon(reads)
            self._is_put_off = True
            self._wait(reads)

    def _wait(self, reads: ReadyReads) -> None:
        self._due_s = reads.time_s() + GATHER_S
        reads.wake_at(self._due_s)

    def _call_soon(self, reads: ReadyReads) -> None:
        self._is_called_soon = True
        reads.when_idle(self._on_idle)

    def _on_idle(self) -> None:
        self._is_called_soon = self._is_put_off = False
        if self._reads is not None:
            self._dispatch()
