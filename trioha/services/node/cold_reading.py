"""The one thread that reads from disk: for pulls that wait, and for deliveries that are due soon.

A task exists only while pulls wait: most brokers are never asked for old messages. While one batch
is read more pulls come, and the next batch takes them all: a slow disk makes batches larger, not
the loop slower. The pulls of a batch are answered one in each pass of the loop. What is read, and
when, `broker.cold_reads` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from trioha.broker.cold_reads import ColdReads
from trioha.services.loop.clock import Clock, wake_time_s
from trioha.services.loop.host import run_blocking
from trioha.store.interface import DiskBlock
from trioha.store.page_cache import bring


class ColdReading:
    """Reads for the pulls of one broker."""

    def __init__(
        self,
        reads: ColdReads,
        clock: Clock,
        log_end: Callable[[], int],
        on_read: Callable[[], None],
    ) -> None:
        """`on_read` answers the pulls that a read made due."""
        self._reads = reads
        self._clock = clock
        self._log_end = log_end
        self._on_read = on_read
        self._new = trio.Event()
        self._thread = trio.CapacityLimiter(1)
        self._nursery: trio.Nursery | None = None
        self._is_reading = False

    def begin(self, nursery: trio.Nursery) -> None:
        """Read in this nursery from now on, whenever pulls wait."""
        self._nursery = nursery

    def has_new(self) -> None:
        """Read for the pulls that came since the last call."""
        self._new.set()
        if not self._is_reading and self._nursery is not None:
            self._is_reading = True
            self._nursery.start_soon(self._read, name="cold_reads")

    def read_soon(self, blocks: list[DiskBlock]) -> None:
        """Read messages that are due soon into the page cache."""
        if blocks and self._nursery is not None:
            self._nursery.start_soon(self._bring, blocks, name="read_ahead")

    async def _bring(self, blocks: list[DiskBlock]) -> None:
        await run_blocking(partial(bring, blocks), limiter=self._thread)

    async def _read(self) -> None:
        """Read until no pull waits."""
        while True:
            self._new = trio.Event()
            now_ms = self._clock.now_ms()
            pulls = self._reads.take(now_ms, self._log_end())
            if pulls:
                blocks = [block for pull in pulls for block in pull.blocks]
                await self._bring(blocks)
                for pull in pulls:
                    self._reads.were_read([pull])
                    self._on_read()
                    # Producers have their turn between the answers, which are long.
                    await trio.lowlevel.checkpoint()
                continue
            due_ms = self._reads.next_read_ms(now_ms)
            if due_ms is None:
                self._is_reading = False
                return
            with trio.move_on_at(wake_time_s(due_ms)):
                await self._new.wait()
