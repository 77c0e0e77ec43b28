"""The pause of a delivery after an attempt that failed."""

from __future__ import annotations

from typing import Final

RETRY_MS: Final = 10_000


class RetryPause:
    """Delays the next attempt. A wall clock that was set back ends the pause."""

    def __init__(self) -> None:
        self._until_ms = 0

    def begin(self, wall_ms: int) -> None:
        """Pause for `RETRY_MS`."""
        self._until_ms = wall_ms + RETRY_MS

    def after(self, deadline_ms: int | None, wall_ms: int) -> int | None:
        """Return the deadline, or the end of the pause if that is later."""
        if deadline_ms is not None and wall_ms < self._until_ms <= wall_ms + RETRY_MS:
            return max(deadline_ms, self._until_ms)
        return deadline_ms
