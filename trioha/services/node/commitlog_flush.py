"""The one task, and the one thread, that calls fsync (FlushRealTimeService, GroupCommitService).

Appends only mark the log as grown. Asynchronous flushing waits `flushIntervalCommitLog` after the
first of them; a put that waits for the disk cuts that wait short. While one fsync runs, more puts
queue up, and the next one covers them all: that is the whole of group commit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import trio

from trioha.config import BrokerConfig
from trioha.errors import StoreError
from trioha.journal import EventSink
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking
from trioha.services.loop.wakeup import Wakeup
from trioha.store.interface import MessageStore

T = TypeVar("T")

_STALL_MS = 1000


class CommitlogFlush:
    """Brings the log, then its queues and index, to disk."""

    def __init__(
        self,
        store: MessageStore,
        config: BrokerConfig,
        clock: Clock,
        events: EventSink,
        on_flushed: Callable[[int], None],
    ) -> None:
        self._store = store
        self._interval_s = config.flush_interval_commit_log / 1000
        self._queue_interval_s = config.flush_interval_consume_queue / 1000
        self._clock = clock
        self._events = events
        self._on_flushed = on_flushed
        self._thread = trio.CapacityLimiter(1)
        self._grown = Wakeup()
        self._urgent = Wakeup()

    def grown_nowait(self, *, urgent: bool) -> None:
        """The log has grown; `urgent` when a send waits for the disk."""
        self._grown.set()
        if urgent:
            self._urgent.set()

    async def run(self) -> None:
        """Flush as the log grows.

        Errors: StoreError when fsync fails; the page cache may have lied, so the node must end.
        """
        queues_due_s = math.inf
        while True:
            with trio.move_on_at(queues_due_s):
                await self._grown.event.wait()
            if self._grown.is_set:
                with trio.move_on_after(self._interval_s):
                    await self._urgent.event.wait()
                self._grown.clear()
                self._urgent.clear()
                await self.flush_log()
                queues_due_s = min(queues_due_s, trio.current_time() + self._queue_interval_s)
            if trio.current_time() >= queues_due_s:
                queues_due_s = math.inf
                await self._in_thread(self._store.flush_queues)

    async def flush_all(self) -> None:
        """Bring everything to disk once."""
        await self.flush_log()
        await self._in_thread(self._store.flush_queues)

    async def flush_log(self) -> None:
        """Bring the log to disk once."""
        started_ms = self._clock.now_ms()
        try:
            offset = await self._in_thread(self._store.flush)
        except StoreError as error:
            self._events.event("flush_failed", error=str(error))
            raise
        elapsed_ms = self._clock.now_ms() - started_ms
        if elapsed_ms >= _STALL_MS:
            self._events.event("flush_stalled", elapsed_ms=elapsed_ms)
        self._on_flushed(offset)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await run_blocking(function, limiter=self._thread)
