"""Notices that the other end of a terminal is gone.

SIGHUP tells it only to the processes of the terminal's own session. A console that was started in
another one would go on for ever, so a thread waits until the descriptor is hung up.
"""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable


def when_hung_up(descriptor: int, call: Callable[[], None]) -> None:
    """Call back on this loop once the descriptor is hung up."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        poll = select.poll()
        # No event is asked for: a hang-up is always told.
        poll.register(descriptor, 0)
        poll.poll()
        loop.call_soon_threadsafe(call)

    threading.Thread(target=wait, name="console.hung_up", daemon=True).start()
