"""Brings the log to disk (FlushRealTimeService, GroupCommitService), then its queues and index.

Theory of operation. Appends only mark the log as grown. If a put waits for the disk, the fsync
starts before the loop waits again: it covers all that the loop has read until then. Else it starts
`delay_ms` after the first append. While one fsync runs, more puts queue up, and the next one covers
them all: that is the whole of group commit. No task stands between an append and the fsync, nor
between the end of the fsync and the answers.

A thread that stays makes the call (`CallThread`); where tasks read sockets, one of Trio's does.
An fsync that nothing waits for may end *quietly*: it does not wake the loop. The leader of a Raft
group needs a follower's answer first, and hears of its own fsync when that has come.

The count of cuts is taken when an fsync starts: an fsync that began before a cut proves nothing
about the bytes written after the cut. A Raft member tells its core both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import outcome
import trio

from trioha.errors import StoreError
from trioha.journal import EventSink
from trioha.services.loop.call_thread import CallThread
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import is_simulated, run_blocking, start_blocking
from trioha.services.loop.ready_reads import ReadyReads, ready_reads

_STALL_MS = 1000
_NEVER_S = math.inf


class FlushedStore(Protocol):
    """The part of a store that is flushed. Both calls may run in threads, at the same time too."""

    def flush(self) -> int: ...
    def flush_queues(self) -> None: ...


class LogFlush:
    """Flushes the log as it grows, and its queues and index `queue_interval_ms` later."""

    def __init__(
        self,
        store: FlushedStore,
        clock: Clock,
        events: EventSink,
        *,
        delay_ms: int,
        queue_interval_ms: int,
        on_flushed: Callable[[int, int], None],
        on_failed: Callable[[StoreError], None] | None = None,
        cut_count: Callable[[], int] | None = None,
    ) -> None:
        """`on_flushed` gets the durable end of the log, and `cut_count()` when the fsync began."""
        self._store = store
        self._clock = clock
        self._events = events
        self._delay_s = delay_ms / 1000
        self._queue_interval_s = queue_interval_ms / 1000
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._cut_count = cut_count
        self.is_quiet = False
        """The end of the fsync that runs, or is about to, need wake nobody: `collect_nowait` tells
        it. One of Trio's threads tells it all the same."""
        self._is_open = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._reads: ReadyReads | None = None
        self._thread: CallThread | None = None
        self._is_running = self._is_grown = self._is_urgent = self._may_be_quiet = False
        self._began = (0, 0)
        """Count of cuts and time in ms when the fsync that runs began."""
        self._due_s = self._queues_due_s = _NEVER_S
        """Times of the delayed fsync and of the queues', in Trio's seconds; infinite for none."""
        self._error: BaseException | None = None
        self._news = trio.Event()

    def grown_nowait(self, *, urgent: bool, quiet: bool = False) -> None:
        """The log has grown; `urgent` when a put waits for the disk. HOT.

        `quiet`: nothing waits for the fsync now. If that changes, call `awaited_nowait`.
        """
        self._may_be_quiet = quiet
        if self._is_grown and (self._is_urgent or not urgent):
            return
        self._is_grown = True
        self._is_urgent = urgent
        if not self._is_running:
            if self._is_open:
                self._take_up()
        elif self.is_quiet:
            # The end of the fsync that runs starts the next one.
            self.awaited_nowait()

    def collect_nowait(self) -> None:
        """Tell the end of an fsync that has woken nobody. HOT."""
        if self.is_quiet and self._thread is not None:
            self._thread.collect()

    def awaited_nowait(self) -> None:
        """Something waits for the fsync: tell its end now, or when it comes."""
        if self.is_quiet:
            self.is_quiet = False
            if self._thread is not None:
                self._thread.collect_soon()

    async def run(self) -> None:
        """Flush as the log grows.

        Cancellation: waits for the fsync that runs, since it uses the store.
        Errors: StoreError if an fsync fails: the page cache may have lied, so the node must end.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._is_open = True
        self._reads = ready_reads()
        if self._reads is not None and not is_simulated():
            self._thread = CallThread(self._reads, "commitlog_flush")
        try:
            if self._is_grown:
                self._take_up()
            while self._error is None:
                with trio.move_on_at(min(self._due_s, self._queues_due_s)):
                    await self._news.wait()
                self._news = trio.Event()
                if trio.current_time() >= self._due_s:
                    self._is_running = True
                    self._due_s = _NEVER_S
                    self._start()
                if trio.current_time() >= self._queues_due_s:
                    self._queues_due_s = _NEVER_S
                    await run_blocking(self._store.flush_queues)
            raise self._error
        finally:
            self._is_open = False
            self.awaited_nowait()
            with trio.CancelScope(shield=True):
                while self._is_running:
                    await self._news.wait()
                    self._news = trio.Event()
            if self._thread is not None:
                self._thread.close()

    async def flush_all(self) -> None:
        """Flush log, queues and index once. Errors: StoreError."""
        await self.flush_log()
        await run_blocking(self._store.flush_queues)

    async def flush_log(self) -> None:
        """Flush the log once. Errors: StoreError."""
        cut_count = self._cut_count() if self._cut_count is not None else 0
        started_ms = self._clock.now_ms()
        try:
            offset, ended_ms = await run_blocking(self._flush)
        except StoreError as error:
            self._events.event("flush_failed", error=str(error))
            raise
        if ended_ms - started_ms >= _STALL_MS:
            self._tell_stall(ended_ms - started_ms)
        self._on_flushed(offset, cut_count)

    def _take_up(self) -> None:
        """Start an fsync soon, or set its time; none may be running."""
        if not self._is_urgent:
            self._due_s = min(self._due_s, trio.current_time() + self._delay_s)
            self._news.set()
            return
        self._is_running = True
        self._due_s = _NEVER_S
        self.is_quiet = self._may_be_quiet
        if self._reads is not None:
            self._reads.before_wait(self._start)
        else:
            self._start()

    def _start(self) -> None:
        self._is_grown = self._is_urgent = False
        self._began = (
            self._cut_count() if self._cut_count is not None else 0,
            self._clock.now_ms(),
        )
        try:
            if self._thread is not None:
                self._thread.start(self._flush, self._ended, quiet=self.is_quiet)
            else:
                start_blocking(self._flush, self._tell_loop, "commitlog_flush")
        except BaseException as error:
            self._ended(outcome.Error(error))

    def _flush(self) -> tuple[int, int]:
        """Return the durable end of the log, and the time in ms. Thread: the one that flushes."""
        return self._store.flush(), self._clock.now_ms()

    def _tell_loop(self, result: outcome.Outcome[tuple[int, int]]) -> None:
        """Hand the result over. Thread: the one that has flushed."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._ended, result)

    def _ended(self, result: outcome.Outcome[tuple[int, int]]) -> None:
        """Handle the end of an fsync, on the loop. `run` raises what is raised here."""
        self._is_running = self.is_quiet = False
        cut_count, started_ms = self._began
        try:
            try:
                offset, ended_ms = result.unwrap()
            except StoreError as error:
                self._events.event("flush_failed", error=str(error))
                if self._on_failed is not None:
                    self._on_failed(error)
                raise
            if self._is_grown and self._is_open:
                self._take_up()
            if ended_ms - started_ms >= _STALL_MS:
                self._tell_stall(ended_ms - started_ms)
            if self._queues_due_s == _NEVER_S:
                self._queues_due_s = trio.current_time() + self._queue_interval_s
                self._news.set()
            self._on_flushed(offset, cut_count)
        except BaseException as error:
            self._error = error
            self._news.set()
        if not self._is_open:
            self._news.set()

    def _tell_stall(self, elapsed_ms: int) -> None:
        self._events.event("flush_stalled", elapsed_ms=elapsed_ms)
