"""Brings consume queues and index up to the log (ReputMessageService).

Theory of operation. On a master the append itself does most of that, and leaves the index entries
to this part. On a slave this part does all of it: bytes arrive, and it makes queues of them.

A node dispatches as soon as 16 KiB wait, or some for 20 ms, at the next moment at which it would
sleep: nothing can be read, and the answers have left. Clients and the other node then have
something to do, so it delays nobody. The task does what a flood of requests has put off, what is
left of a large turn, and all of it where tasks read the sockets and while a slave catches up: then
replication gets most of the processor. It works in slices, so that requests and replication get
their turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from trioha.errors import CommitLogCorrupted, DiskFull
from trioha.journal import EventSink
from trioha.services.loop.ready_reads import ready_reads
from trioha.services.node.log_growth import GATHER_S, GrowingLog, LogGrowth

_SLICE_BYTES = 32_768  # about a tenth of a millisecond of small records
_PROMPT_BYTES_MAX = 131_072
"""At most so much is dispatched before the loop sleeps: to append it took milliseconds."""
_CATCH_UP_PAUSE_S = 0.01
_DISK_FULL_PAUSE_S = 5.0


class DispatchedStore(GrowingLog, Protocol):
    """The part of a store whose log is dispatched."""

    def dispatch(self, bytes_max: int) -> bool: ...


class Reput:
    """Dispatches the records of the log; one per node."""

    def __init__(
        self,
        store: DispatchedStore,
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
        self._growth = LogGrowth(store, self._dispatch_now)
        # Bound here, so that an append is not one more call deep. HOT.
        self.grown_nowait = self._growth.grown_nowait
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Dispatch until cancelled. Errors: what `on_dispatched` and `on_damaged` raise."""
        growth = self._growth
        growth.start(ready_reads())
        try:
            while True:
                await growth.wakeup.event.wait()
                if not growth.is_in_wait:
                    await trio.sleep(GATHER_S)
                growth.wakeup.clear()
                if self._error is not None:
                    raise self._error
                while await self._dispatch_slice():
                    if self._is_catching_up():
                        await trio.sleep(_CATCH_UP_PAUSE_S)
                    else:
                        await trio.lowlevel.checkpoint()
                growth.done_end = self._store.max_phy_offset
        finally:
            growth.stop()

    def _dispatch_now(self) -> None:
        """Dispatch before the loop sleeps. It raises nothing: `run` does."""
        growth = self._growth
        if self._is_catching_up():
            growth.wakeup.set()
            return
        try:
            try:
                more = self._store.dispatch(_PROMPT_BYTES_MAX)
            except (DiskFull, CommitLogCorrupted):
                growth.wakeup.set()  # the task comes to the same record, and deals with it
                return
            if more:
                growth.wakeup.set()
            else:
                growth.done_end = self._store.max_phy_offset
            self._on_dispatched()
        except BaseException as error:
            self._error = error
            growth.wakeup.set()

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
