"""Writes config/*.json as the tables change (ConfigManager's scheduled persist).

Topics and groups go to disk at once; consumer and delay offsets, which change all the time, after
`flushConsumerOffsetInterval` and `flushDelayOffsetInterval`. The text is made on the loop, in one
piece; the writing and its fsync happen in a thread.

What changes in between is in the node's log of changes (`trioha.store.metadata_wal`). Each file
says up to which position of that log it holds everything, in a key that RocketMQ ignores. A file
without the key was written by another broker, after every change of its table in the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs
import trio

from trioha.errors import StoreError
from trioha.journal import EventSink
from trioha.services.loop.host import run_blocking
from trioha.services.loop.wakeup import Wakeup
from trioha.services.node.batch_end import ChangedTables
from trioha.store import config_files

_position_at_end = re.compile(rb',"metadataPosition":(\d{1,18})\}\s*$').search
_POSITION = b',"metadataPosition":%d}'


class PersistedTable(Protocol):
    """A table that is kept in one file of config/, as a JSON object with at least one key."""

    dirty: bool

    def encode(self) -> bytes: ...
    def load(self, data: bytes) -> None: ...


@attrs.define(eq=False)
class TableFile:
    """One table, its file, and how long a change may stay in memory."""

    path: Path
    table: PersistedTable
    delay_s: float
    saved_position: int = 0
    """Position up to which the file holds all changes."""
    saving: bool = False

    @property
    def is_saved(self) -> bool:
        return not (self.table.dirty or self.saving)


def position_of(data: bytes) -> int | None:
    """Return the position up to which the file is complete; None if another broker wrote it."""
    found = _position_at_end(data)
    return None if found is None else int(found[1])


class ConfigPersist:
    """One task per table file; `save_all` at the end of the node.

    `position` returns the position of the tables in memory; `forget` gets the one that is saved.
    """

    def __init__(
        self,
        files: Sequence[TableFile],
        events: EventSink,
        position: Callable[[], int],
        forget: Callable[[int], None],
    ) -> None:
        self._files = files
        self._events = events
        self._position = position
        self._forget = forget
        self.changed = ChangedTables([file.table for file in files])
        """Each batch asks it for changes; it wakes the tasks below."""
        self._thread = trio.CapacityLimiter(1)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for file, wakeup in zip(self._files, self.changed.wakeups, strict=True):
                name = f"config_persist[{file.path.name}]"
                nursery.start_soon(self._keep, file, wakeup, name=name)

    async def save_all(self) -> None:
        """Write every table that has changed since it was written."""
        for file in self._files:
            if file.table.dirty:
                await self._save(file)
        self._forget_saved()

    async def _keep(self, file: TableFile, changed: Wakeup) -> None:
        while True:
            await changed.event.wait()
            await trio.sleep(file.delay_s)
            changed.clear()
            if file.table.dirty:
                await self._save(file)
                self._forget_saved()

    async def _save(self, file: TableFile) -> None:
        position = self._position()
        data = file.table.encode()
        assert data.endswith(b"}"), data[-20:]
        data = data[:-1] + _POSITION % position
        file.table.dirty = False
        file.saving = True
        try:
            await run_blocking(partial(config_files.save, file.path, data), limiter=self._thread)
        except OSError as error:
            # The old file is whole; the next change tries again.
            file.table.dirty = True
            self._events.event("task_failed", task=f"save {file.path.name}", error=str(error))
        else:
            file.saved_position = position
        finally:
            file.saving = False

    def _forget_saved(self) -> None:
        """Delete changes that every table's file holds."""
        needed = [file.saved_position for file in self._files if not file.is_saved]
        try:
            self._forget(min(needed, default=self._position()))
        except StoreError as error:
            self._events.event("task_failed", task="delete saved metadata", error=str(error))
