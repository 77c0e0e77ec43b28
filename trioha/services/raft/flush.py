"""The thread of a Raft member that calls fsync: only bytes on disk count as held.

This is like `commitlog_flush.py`. But here a put always waits, on this machine or on the leader's,
so no task stands between an append and the thread. The pass that appends starts the fsync, and the
pass in which it ends tells the core (decision 6): with an fsync that takes no time that is 38 µs
instead of 90. The next fsync covers the bytes appended during this one. It starts before the core
learns of this one's end.

Where bytes count as held once appended (`replicated_in_memory`), no put waits for the disk. Then
the fsync starts `delay_ms` after the first append, as with asynchronous flushing. An fsync for
every append would cost more than all the rest, and each makes the next write to its page fault.

The count of cuts is taken when an fsync starts: an fsync that began before a cut proves nothing
about the bytes written after the cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import outcome
import trio

from trioha.errors import StoreError
from trioha.journal import EventSink
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking, start_blocking

_STALL_MS = 1000


class FlushedStore(Protocol):
    """The part of a store that is flushed. Both calls may run in threads, at the same time too."""

    def flush(self) -> int: ...
    def flush_queues(self) -> None: ...


class FlushListener(Protocol):
    """The part of a `RaftMember` that hears of fsyncs."""

    @property
    def cut_count(self) -> int: ...
    def flushed(self, end_offset: int, cut_count: int) -> None: ...
    def flush_failed(self, error: StoreError) -> None: ...


class RaftFlush:
    """Flushes the log whenever it has grown, and its queues and index every `queue_interval_ms`."""

    def __init__(
        self,
        store: FlushedStore,
        queue_interval_ms: int,
        clock: Clock,
        events: EventSink,
        *,
        listener: Callable[[], FlushListener],
        delay_ms: int = 0,
    ) -> None:
        self._store = store
        self._queue_interval_s = queue_interval_ms / 1000
        self._clock = clock
        self._events = events
        self._listener = listener
        self._delay_s = delay_ms / 1000
        self._due_s = math.inf
        """Time of the next delayed fsync, in Trio's seconds; infinite for none."""
        self._token: trio.lowlevel.TrioToken | None = None
        self._running = False
        self._grown = False
        self._queues_due_s = math.inf
        self._error: BaseException | None = None
        self._news = trio.Event()

    def grown_nowait(self, *, urgent: bool = True) -> None:
        """Start or schedule an fsync: the log has grown. HOT."""
        if self._grown and self._delay_s:
            return
        self._grown = True
        if not self._running and self._token is not None:
            self._take_up(self._token)

    async def run(self) -> None:
        """Flush as the log grows.

        Cancellation: waits for the fsync that runs, since its thread uses the store.
        Errors: StoreError if an fsync fails: written pages may be lost, so the node must end.
        """
        token = self._token = trio.lowlevel.current_trio_token()
        try:
            if self._grown:
                self._take_up(token)
            while self._error is None:
                with trio.move_on_at(min(self._due_s, self._queues_due_s)):
                    await self._news.wait()
                self._news = trio.Event()
                if trio.current_time() >= self._due_s:
                    self._start(token)
                if trio.current_time() >= self._queues_due_s:
                    self._queues_due_s = math.inf
                    await run_blocking(self._store.flush_queues)
            raise self._error
        finally:
            self._token = None
            with trio.CancelScope(shield=True):
                while self._running:
                    await self._news.wait()
                    self._news = trio.Event()

    async def flush_all(self) -> None:
        """Flush log, queues and index once. Errors: StoreError."""
        await run_blocking(self._store.flush)
        await run_blocking(self._store.flush_queues)

    def _take_up(self, token: trio.lowlevel.TrioToken) -> None:
        """Start an fsync, or set its time with `delay_ms`; none may be running."""
        if not self._delay_s:
            self._start(token)
            return
        self._due_s = trio.current_time() + self._delay_s
        self._news.set()

    def _start(self, token: trio.lowlevel.TrioToken) -> None:
        self._running, self._grown = True, False
        self._due_s = math.inf
        flushed = partial(self._flushed, self._listener().cut_count, self._clock.now_ms())

        def deliver(result: outcome.Outcome[int]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(flushed, result)

        start_blocking(self._store.flush, deliver, "commitlog_flush")

    def _flushed(self, cut_count: int, started_ms: int, result: outcome.Outcome[int]) -> None:
        """Handle the end of an fsync, on the loop. `run` raises what is raised here."""
        self._running = False
        try:
            try:
                offset = result.unwrap()
            except StoreError as error:
                self._events.event("flush_failed", error=str(error))
                self._listener().flush_failed(error)
                raise
            if self._grown and self._token is not None:
                self._take_up(self._token)
            elapsed_ms = self._clock.now_ms() - started_ms
            if elapsed_ms >= _STALL_MS:
                self._events.event("flush_stalled", elapsed_ms=elapsed_ms)
            if self._queues_due_s == math.inf:
                self._queues_due_s = trio.current_time() + self._queue_interval_s
                self._news.set()
            self._listener().flushed(offset, cut_count)
        except BaseException as error:
            self._error = error
        if self._error is not None or self._token is None:
            self._news.set()
