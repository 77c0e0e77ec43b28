"""An event that wakes the same task again and again."""

from __future__ import annotations

import trio


class Signal:
    """`set` wakes the one task in `wait`, or lets its next `wait` return at once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait until `set` is called, and reset the signal."""
        await self._event.wait()
        self._event = trio.Event()
