"""SIGTERM and SIGINT: the first asks the node to stop in order, the second stops it at once."""

from __future__ import annotations

import os
import signal
import sys

import trio

_AT_ONCE_EXIT_CODE = 1


async def watch_signals(
    shutdown: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Set `shutdown` on the first signal; leave the process on the second.

    Durability: leaving at once is what kill -9 does: the next start recovers.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if shutdown.is_set():
                sys.stderr.write(f"trioha: {signal.Signals(number).name} again: stopping at once\n")
                sys.stderr.flush()
                os._exit(_AT_ONCE_EXIT_CODE)
            shutdown.set()
