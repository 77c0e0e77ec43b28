"""An event that may be set thousands of times before the task that waits for it runs."""

from __future__ import annotations

import trio


class Wakeup:
    """Wakes one task. While it is set, setting it again costs a comparison."""

    def __init__(self) -> None:
        self.event = trio.Event()
        """The task waits for it; each `clear` makes another one."""
        self.is_set = False

    def set(self) -> None:
        """Wake the task. HOT."""
        if not self.is_set:
            self.is_set = True
            self.event.set()

    def clear(self) -> None:
        """Let the next `set` wake the task again; the task calls it."""
        self.is_set = False
        self.event = trio.Event()
