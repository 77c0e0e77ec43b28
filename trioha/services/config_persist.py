"""Writes config/*.json as the tables change (ConfigManager's scheduled persist).

Topics and groups go to disk at once; consumer and delay offsets, which change all the time, after
`flushConsumerOffsetInterval` and `flushDelayOffsetInterval`. The text is made on the loop, in one
piece; the writing and its fsync happen in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import attrs
import trio

from trioha.journal import EventSink
from trioha.store import config_files


class Table(Protocol):
    """Anything that is kept in one file of config/."""

    dirty: bool

    def encode(self) -> bytes: ...
    def load(self, data: bytes) -> None: ...


@attrs.frozen
class TableFile:
    """One table, its file, and how long a change may stay in memory."""

    path: Path
    table: Table
    delay_s: float


class ConfigPersist:
    """One task per table file; `save_all` at the end of the node."""

    def __init__(self, files: Sequence[TableFile], events: EventSink) -> None:
        self._files = files
        self._events = events
        self._changed = [trio.Event() for _ in files]
        self._thread = trio.CapacityLimiter(1)

    def check(self) -> None:
        """Wake the writers of tables that have changed; for the end of a batch."""
        for file, changed in zip(self._files, self._changed, strict=True):
            if file.table.dirty:
                changed.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for index, file in enumerate(self._files):
                nursery.start_soon(self._keep, index, name=f"config_persist[{file.path.name}]")

    async def save_all(self) -> None:
        """Write every table that has changed since it was written."""
        for file in self._files:
            if file.table.dirty:
                await self._save(file)

    async def _keep(self, index: int) -> None:
        file = self._files[index]
        while True:
            await self._changed[index].wait()
            await trio.sleep(file.delay_s)
            self._changed[index] = trio.Event()
            if file.table.dirty:
                await self._save(file)

    async def _save(self, file: TableFile) -> None:
        data = file.table.encode()
        file.table.dirty = False
        try:
            await trio.to_thread.run_sync(config_files.save, file.path, data, limiter=self._thread)
        except OSError as error:
            # The old file is whole; the next change tries again.
            file.table.dirty = True
            self._events.event("task_failed", task=f"save {file.path.name}", error=str(error))
