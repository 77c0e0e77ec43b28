"""Brings consume queues and index up to the log (ReputMessageService).

On a master the append itself does most of that, and leaves the index entries to this task. On a
slave this task does all of it: bytes arrive, and it makes queues of them. It works in slices, so
that requests and replication get their turns. While a slave catches up, replication gets most.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.errors import CommitLogCorrupted, DiskFull
from trioha.journal import EventSink
from trioha.services.loop.wakeup import Wakeup
from trioha.store.interface import MessageStore

_SLICE_BYTES = 32_768  # about a millisecond of small records: acks and requests wait no longer
_GATHER_S = 0.02  # work that comes together is done together, a wake-up per batch saved
_CATCH_UP_PAUSE_S = 0.01
_DISK_FULL_PAUSE_S = 5.0


class Reput:
    """The task that dispatches records of the log; one per node."""

    def __init__(
        self,
        store: MessageStore,
        events: EventSink,
        on_dispatched: Callable[[], None],
        is_catching_up: Callable[[], bool],
        on_damaged: Callable[[CommitLogCorrupted], None],
    ) -> None:
        """`on_damaged` is called when no record lies where one has to be. It mends the log, or
        raises the error."""
        self._store = store
        self._events = events
        self._on_dispatched = on_dispatched
        self._is_catching_up = is_catching_up
        self._on_damaged = on_damaged
        self.grown = Wakeup()
        """Set when the log has grown."""

    async def run(self) -> None:
        while True:
            await self.grown.event.wait()
            await trio.sleep(_GATHER_S)
            self.grown.clear()
            while await self._dispatch_slice():
                if self._is_catching_up():
                    await trio.sleep(_CATCH_UP_PAUSE_S)
                else:
                    await trio.lowlevel.checkpoint()

    async def _dispatch_slice(self) -> bool:
        try:
            more = self._store.dispatch(_SLICE_BYTES)
        except DiskFull as error:
            # The log holds the records; their queue entries follow when there is room.
            self._events.event("task_failed", task="reput", error=str(error))
            await trio.sleep(_DISK_FULL_PAUSE_S)
            return True
        except CommitLogCorrupted as error:
            self._on_damaged(error)
            return False
        self._on_dispatched()
        return more
