"""Notices that the other end of a terminal is gone.

SIGHUP tells it only to the processes of the terminal's own session. A console that was started in
another one would go on for ever, so a thread waits until the descriptor is hung up.

A console that is just about to leave has no loop any more, or one that does nothing else. Textual
then fails to write to the terminal, does not stop the thread that reads from it, and the process
waits for that thread for ever. So the process ends here if it has not ended by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Callable

_PATIENCE_S = 2.0
"""Time for `call` to end the process. The terminal is gone, so further output is not seen."""


def when_hung_up(descriptor: int, call: Callable[[], None]) -> None:
    """Call back on this loop once the descriptor is hung up, then end the process with code 1."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        poll = select.poll()
        # No event is asked for: a hang-up is always told.
        poll.register(descriptor, 0)
        poll.poll()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(call)
        threading.Event().wait(_PATIENCE_S)
        os._exit(1)

    threading.Thread(target=wait, name="console.hung_up", daemon=True).start()
