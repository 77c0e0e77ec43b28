"""Files that a broker keeps beside its log: four tables, and the log of their changes.

The tables are written every few seconds (`services.node.config_persist`); each change in between
goes to the log of changes in the scheduler pass that made it, before any answer leaves. Its fsync
has a thread of its own, so that puts that wait for theirs do not wait for this one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from trioha.broker.core import BrokerCore
from trioha.broker.metadata import MetadataTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import DiskFull, RemoteProtocolError, StoreError
from trioha.journal import EventSink
from trioha.services.loop.host import run_blocking
from trioha.services.node.config_persist import (
    ConfigPersist,
    PersistedTable,
    TableFile,
    position_of,
)
from trioha.store import config_files
from trioha.store.metadata_wal import MetadataWal
from trioha.wire.timers import TimerCheckpoint

WAL_NAME = "metadata.wal"
CHECKPOINT_NAME = "timercheck"
"""File written at a clean stop for RocketMQ 5, and read after a clean stop of RocketMQ 5."""
_CHECKPOINT_BYTES = 4096
_SOON_S = 0.2  # topics and groups: changes that come together are written together


class MetadataFiles:
    """Files of one broker's ``config/``."""

    def __init__(
        self,
        config: BrokerConfig,
        core: BrokerCore,
        events: EventSink,
        on_synced: Callable[[int], None],
        others: Mapping[str, PersistedTable],
    ) -> None:
        """`others`: tables that are kept here and never sent to another node, by file name."""
        directory = Path(os.path.expanduser(config.store_path_root_dir)) / "config"
        self._files = {
            table: TableFile(directory / table.value, owner, delay_s)
            for table, owner, delay_s in (
                (MetadataTable.TOPICS, core.topics, _SOON_S),
                (MetadataTable.GROUPS, core.groups, _SOON_S),
                (MetadataTable.OFFSETS, core.offsets, config.flush_consumer_offset_interval / 1000),
                (MetadataTable.DELAY, core.schedule, config.flush_delay_offset_interval / 1000),
            )
        }
        self._others = [TableFile(directory / name, own, _SOON_S) for name, own in others.items()]
        self.wal = MetadataWal(directory / WAL_NAME)
        self._checkpoint_path = directory / CHECKPOINT_NAME
        self.persist = ConfigPersist(
            [*self._files.values(), *self._others], events, self._position, self.wal.forget
        )
        self._core = core
        self._events = events
        self._on_synced = on_synced
        self._interval_s = config.flush_interval_commit_log / 1000
        self._thread = trio.CapacityLimiter(1)
        self._grown = trio.Event()
        self._urgent = trio.Event()
        self._full = False
        self._is_loaded = False

    def load(self) -> None:
        """Read the tables, then what changed after they were written.

        Errors: StoreError when something is there and cannot be read; it names the cure.
        """
        core, metadata = self._core, self._core.metadata
        # Offsets that this node took in as a slave are read by a slave's rule, whatever it is now.
        core.offsets.become_slave()
        saved = {table: self._load_table(file) for table, file in self._files.items()}
        for file in self._others:
            self._load_table(file)
        with suppress(OSError), open(self._checkpoint_path, "rb") as checkpoint_file:
            checkpoint = TimerCheckpoint.decode(checkpoint_file.read(_CHECKPOINT_BYTES))
            if checkpoint is not None:
                core.deliveries.timers.adopt(checkpoint)
        for position, body in self.wal.read():
            lacking = {table for table, at in saved.items() if at is not None and at < position}
            try:
                metadata.replay(position, body, lacking)
            except RemoteProtocolError as error:
                raise StoreError(
                    f"{self.wal.directory}: {error}; another version of trioha may have written "
                    "it: start that one, or move the folder away and lose what was changed last"
                ) from error
        known = [metadata.position, *(at for at in saved.values() if at is not None)]
        metadata.position = metadata.synced_position = max(known)
        if core.role is not BrokerRole.SLAVE:
            core.offsets.become_master()
        self._is_loaded = True

    async def save_all(self, wall_ms: int) -> None:
        """Write every table that has changed, and what RocketMQ's broker asks for beside them."""
        await self.persist.save_all()
        checkpoint = self._core.deliveries.timers.checkpoint(wall_ms)
        if checkpoint is None:
            return
        save = partial(config_files.save, self._checkpoint_path, checkpoint.encode())
        try:
            await run_blocking(save, limiter=self._thread)
        except OSError as error:
            # RocketMQ's broker would deliver more messages again; this one does not need it.
            self._events.event("task_failed", task=f"save {CHECKPOINT_NAME}", error=str(error))

    def grown_nowait(self, *, urgent: bool) -> None:
        """Note that the log of changes has grown; `urgent` when an answer waits for the disk."""
        self._grown.set()
        if urgent:
            self._urgent.set()

    async def flush_wal(self) -> None:
        """fsync the log of changes as it grows.

        Errors: StoreError when fsync fails; the page cache may have lied, so the node must end.
        """
        while True:
            await self._grown.wait()
            with trio.move_on_after(self._interval_s):
                await self._urgent.wait()
            self._grown, self._urgent = trio.Event(), trio.Event()
            self._on_synced(await run_blocking(self.wal.sync, limiter=self._thread))

    def _load_table(self, file: TableFile) -> int | None:
        """Return the position up to which the file is complete; None if another broker wrote it."""
        data = config_files.load(file.path)
        if data is None:
            return 0
        try:
            file.table.load(data)
        except RemoteProtocolError as error:
            raise StoreError(
                f"{file.path}: {error}; restore it from a slave or move it away"
            ) from error
        position = position_of(data)
        # A file without a position counts as newer than every change of ours: it gets one at once.
        file.table.dirty = position is None
        file.saved_position = position or 0
        return position

    def _position(self) -> int:
        self._core.metadata.flush()
        return self._core.metadata.position

    def keep(self, position: int, body: bytes) -> None:
        """Append to the log of changes. HOT."""
        # A position given out before `load` has read the log would stand there twice.
        assert self._is_loaded, f"a change at position {position} before the tables were read"
        try:
            self.wal.append(position, body)
        except DiskFull as error:
            # The tables have it, and their files will when there is room. Until then a slave, if
            # there is one, is all that an acknowledged change is safe on.
            if not self._full:
                self._full = True
                self._events.event("task_failed", task="keep metadata", error=str(error))
            return
        self._full = False
        self.grown_nowait(urgent=False)
