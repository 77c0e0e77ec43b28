"""Gives up what a store lacks, when an operator says so: nothing is given out a second time.

Theory of operation. What is left of the log goes under ``cut/`` (hard links), where `trioha log`
and `trioha ha recover` read it. The store of a lone broker then begins an empty log behind all that
it ever held, and each consume queue goes on at the index where it ended. The store of a replica
set's node begins at 0, to be filled by its master; a note, the file `loss`, keeps it from being
taken for whole until it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from trioha.errors import CommitLogCorrupted, StoreError
from trioha.store.checkpoint import Checkpoint, read_checkpoint
from trioha.store.consume_queues import ConsumeQueues, QueueKey
from trioha.store.cuts import set_log_aside
from trioha.store.extent_file import (
    ExtentFile,
    QueueEnd,
    StoreExtent,
    index_file_bytes,
    write_extent,
)
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.mapped_file_queue import MappedFileQueue
from trioha.store.self_check import (
    UNKNOWN_INDEX,
    check_epochs,
    check_log,
    counted_extent,
    is_same_boot,
    log_is_short,
    proven_end,
)
from trioha.store.store_config import StoreConfig
from trioha.store.store_lock import StoreLock
from trioha.store.store_mode import (
    EPOCHS_STEM,
    begin_files_at,
    check_mode,
    has_slots,
    segment_paths,
)

NOTE = "loss"


@attrs.frozen(kw_only=True)
class Loss:
    """Missing parts of a store, and the result of giving them up."""

    root: Path
    reason: str
    """Human-readable name of the missing files."""
    has_log: bool
    """No byte of the log is missing: it stays."""
    held_end: int
    """End of the log that the store held, as far as its files tell."""
    left: tuple[int, int] | None
    """Offsets of the segments that are left; None for none."""
    begins_at: int
    """Offset at which the log begins after the loss is accepted."""
    queues: int
    """Number of consume queues that go on where they ended."""
    set_aside: Path | None = None


def find_loss(config: StoreConfig, *, in_set: bool) -> Loss | None:
    """Find what is missing; None for a store that lacks nothing.

    `in_set`: a master can fill the node.
    Errors: StoreError for the store of a Raft member, or one that is in use.
    """
    return _Store(config).find(in_set)


def accept_loss(config: StoreConfig, wall_ms: int, *, in_set: bool) -> Loss | None:
    """Give it up. Durable when it returns; after a crash, do it again.

    Errors: StoreError, DiskFull.
    """
    store = _Store(config)
    lock = StoreLock(config.lock_path)
    try:
        loss = store.find(in_set)
        if loss is None:
            return None
        if loss.has_log:
            write_extent(
                config.extent_path, attrs.evolve(store.extent or StoreExtent(), has_epochs=False)
            )
            return loss
        if loss.left is not None:
            about = {"reason": "trioha log accept-loss", "missing": loss.reason}
            cut = set_log_aside(config.root, config.commitlog_path, *loss.left, wall_ms, about)
            loss = attrs.evolve(loss, set_aside=cut.path)
        if in_set:
            _write_note(config, loss, wall_ms)
        else:
            write_extent(config.extent_path, store.extent_behind(loss.begins_at))
        begin_files_at(config, loss.begins_at, keep_extent=not in_set)
    finally:
        lock.release()
    return loss


def is_noted(config: StoreConfig) -> bool:
    """Was a loss accepted that no master has made good yet?"""
    return (config.root / NOTE).exists()


def forget_loss(root: Path) -> None:
    """The log is whole again.

    Errors: StoreError.
    """
    try:
        (root / NOTE).unlink()
        fsync_directory(root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, f"cannot remove {root / NOTE}") from error


class _Store:
    """The files of a store that is not open."""

    def __init__(self, config: StoreConfig) -> None:
        if config.is_dledger:
            raise StoreError(
                f"{config.root} is a Raft member's: run `trioha raft repair {config.root}`"
            )
        check_mode(config)
        self._config = config
        self._checkpoint: Checkpoint = read_checkpoint(config.checkpoint_path)
        self.extent = counted_extent(ExtentFile(config).load(), self._checkpoint)
        self._queues = ConsumeQueues(config)
        self._queues.load()
        for key, queue in self._queues.table.items():
            if key not in self._queues.damaged:
                queue.recover(None, foreign=True)

    def find(self, in_set: bool) -> Loss | None:
        config = self._config
        reason, has_log = self._missing_log(), False
        if not reason:
            reason, has_log = self._missing_epochs(), True
        if not reason:
            return None
        paths = segment_paths(config)
        left = None
        if paths:
            left = (int(paths[0].name), int(paths[-1].name) + config.segment_bytes)
        held_end = max(
            proven_end(config, self._checkpoint, self.extent)[0],
            *(queue.max_phy_offset for queue in self._queues.table.values()),
            0 if left is None else left[1],
            0,
        )
        begins_at = 0 if in_set else -(-held_end // config.segment_bytes) * config.segment_bytes
        return Loss(
            root=config.root,
            reason=reason,
            has_log=has_log,
            held_end=held_end,
            left=left,
            begins_at=begins_at,
            queues=0 if in_set else len(self._rows()),
        )

    def extent_behind(self, log_end: int) -> StoreExtent:
        """The extent of a store whose empty log begins at `log_end`."""
        config = self._config
        return StoreExtent(
            log_begin=log_end,
            log_end=log_end,
            queues=self._rows(),
            has_epochs=has_slots(config.root, EPOCHS_STEM),
            queue_file_bytes=config.queue_file_bytes,
            index_file_bytes=index_file_bytes(config),
        )

    def _missing_epochs(self) -> str:
        try:
            check_epochs(self._config, self.extent)
        except StoreError as error:
            return _first_words(error)
        return ""

    def _missing_log(self) -> str:
        config, queues = self._config, self._queues
        files = MappedFileQueue(
            config.commitlog_path,
            config.segment_bytes,
            config.log_chunk_bytes,
            cure="",
            size_key="mappedFileSizeCommitLog",
        )
        clean = not config.abort_path.exists()
        sizes = {path.stat().st_size for path in segment_paths(config)[:-1]}
        try:
            files.load()
            check_log(config, files, queues, self._checkpoint, self.extent, clean=clean)
            if clean or is_same_boot(self._checkpoint):
                for queue in queues.table.values():
                    if queue.max_phy_offset > files.end_offset:
                        raise log_is_short(
                            config, files.end_offset, queue.max_phy_offset, queue.directory
                        )
        except CommitLogCorrupted as error:
            if sizes - {config.segment_bytes}:
                raise  # written with another setting, or cut short: nothing is missing
            return _first_words(error)
        return ""

    def _rows(self) -> Mapping[QueueKey, QueueEnd]:
        """Next index of each queue."""
        ends: dict[QueueKey, int] = {}
        if self.extent is not None:
            for key, row in self.extent.queues.items():
                if row.next_index != UNKNOWN_INDEX:
                    ends[key] = row.next_index
        for key, queue in self._queues.table.items():
            ends[key] = max(ends.get(key, 0), queue.next_index)
        return {key: QueueEnd(next_index, -1) for key, next_index in ends.items() if next_index}


def _first_words(error: StoreError) -> str:
    """The text of an error without its cure."""
    return str(error).partition(": ")[0]


def _write_note(config: StoreConfig, loss: Loss, wall_ms: int) -> None:
    path = config.root / NOTE
    note = {"held_end": loss.held_end, "reason": loss.reason, "accepted_wall_ms": wall_ms}
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(note, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fsync_directory(config.root)
    except OSError as error:
        raise disk_error(error, f"cannot write {path}") from error
