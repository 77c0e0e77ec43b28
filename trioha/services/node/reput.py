"""Brings consume queues and index up to the log (ReputMessageService).

Theory of operation. On a master the append itself does most of that, and leaves the index entries
to this part. On a slave this part does all of it: bytes arrive, and it makes queues of them.

A node under load dispatches as soon as 16 KiB wait, at the next moment at which it would sleep:
nothing can be read, and the answers have left. Clients and the other node then have something to
do, so it delays nobody. The task does what is less, what a flood of requests has put off for 20 ms,
and all of it where tasks read the sockets and while a slave catches up: then replication gets most
of the processor. It works in slices, so that requests and replication get their turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from trioha.errors import CommitLogCorrupted, DiskFull
from trioha.journal import EventSink
from trioha.services.loop.ready_reads import ReadyReads, ready_reads
from trioha.services.loop.wakeup import Wakeup

_SLICE_BYTES = 32_768  # about a tenth of a millisecond of small records
_PROMPT_BYTES = 16_384
"""So much is dispatched before the loop sleeps."""
_PROMPT_BYTES_MAX = 131_072
"""And at most so much: to append more took milliseconds itself."""
_GATHER_S = 0.02  # work that comes together is done together, a wake-up per batch saved
_CATCH_UP_PAUSE_S = 0.01
_DISK_FULL_PAUSE_S = 5.0


class DispatchedStore(Protocol):
    """The part of a store whose log is dispatched."""

    @property
    def max_phy_offset(self) -> int: ...
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
        self._grown = Wakeup()
        self._reads: ReadyReads | None = None
        """It calls `_dispatch_now` when it is idle. None while the task does not run."""
        self._is_called_soon = False
        self._done_end = 0
        """End of the log when all of it was dispatched last."""
        self._error: BaseException | None = None

    def grown_nowait(self) -> None:
        """The log has grown. HOT."""
        self._grown.set()
        if (
            self._reads is not None
            and not self._is_called_soon
            and self._store.max_phy_offset - self._done_end >= _PROMPT_BYTES
        ):
            self._is_called_soon = True
            self._reads.when_idle(self._dispatch_now)

    async def run(self) -> None:
        """Dispatch until cancelled. Errors: what `on_dispatched` and `on_damaged` raise."""
        self._reads = ready_reads()
        try:
            while True:
                await self._grown.event.wait()
                await trio.sleep(_GATHER_S)
                self._grown.clear()
                if self._error is not None:
                    raise self._error
                while await self._dispatch_slice():
                    if self._is_catching_up():
                        await trio.sleep(_CATCH_UP_PAUSE_S)
                    else:
                        await trio.lowlevel.checkpoint()
        finally:
            self._reads = None

    def _dispatch_now(self) -> None:
        """Dispatch before the loop sleeps. It raises nothing: `run` does."""
        self._is_called_soon = False
        if self._reads is None or self._is_catching_up():
            return
        try:
            try:
                self._dispatch(_PROMPT_BYTES_MAX)
            except (DiskFull, CommitLogCorrupted):
                return  # the task comes to the same record, and deals with it
            self._on_dispatched()
        except BaseException as error:
            self._error = error
            self._grown.set()

    def _dispatch(self, bytes_max: int) -> bool:
        """Dispatch a slice; True if more is left. Errors: DiskFull, CommitLogCorrupted."""
        more = self._store.dispatch(bytes_max)
        if not more:
            self._done_end = self._store.max_phy_offset
        return more

    async def _dispatch_slice(self) -> bool:
        try:
            more = self._dispatch(_SLICE_BYTES)
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
