"""Notes that the log has grown, and has it dispatched soon if there is much. See `reput`, whose
task cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trioha.services.loop.ready_reads import ReadyReads
from trioha.services.loop.wakeup import Wakeup

PROMPT_BYTES: Final = 16_384
"""So much is dispatched before the loop sleeps."""


class GrowingLog(Protocol):
    @property
    def max_phy_offset(self) -> int: ...


class LogGrowth:
    """Wakes the task, and calls `dispatch` when the loop is idle and `PROMPT_BYTES` wait."""

    def __init__(self, log: GrowingLog, dispatch: Callable[[], None]) -> None:
        self.wakeup = Wakeup()
        self.reads: ReadyReads | None = None
        """The wait of the loop. None while the task does not run, and where tasks read sockets."""
        self.done_end = 0
        """End of the log when all of it was dispatched last."""
        self._log = log
        self._dispatch = dispatch
        self._is_called_soon = False

    def grown_nowait(self) -> None:
        """The log has grown. HOT."""
        self.wakeup.set()
        if (
            self.reads is not None
            and not self._is_called_soon
            and self._log.max_phy_offset - self.done_end >= PROMPT_BYTES
        ):
            self._is_called_soon = True
            self.reads.when_idle(self._on_idle)

    def _on_idle(self) -> None:
        self._is_called_soon = False
        if self.reads is not None:
            self._dispatch()
