"""The file `extent`: what the store held when it was last written.

Theory of operation. A log of which a file is missing, and a consume queue of which one is missing,
look like ones that never had it. So the store keeps beside them how far the log went, and how many
entries each queue had. The numbers are lower bounds: the file is written when files of a queue come
or go, before segments are deleted, and at an orderly stop. What it says was on disk at that time.

Whatever makes a queue or the log shorter on purpose first replaces it by one that tells of neither
(`void`); the next checkpoint writes it anew. RocketMQ does not look at it. A store that a Java
broker wrote in between may have lost topics in order, so its `extent` does not count
(`trioha.store.self_check`).
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import attrs
import msgpack

from trioha.checksum import crc32
from trioha.errors import DiskFull
from trioha.store.consume_queues import ConsumeQueues, QueueKey
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.store_config import StoreConfig
from trioha.store.store_mode import EPOCHS_STEM, has_slots

_MAGIC = b"TRIOHAEX"
_HEADER = struct.Struct(">8sII")
_VERSION = 1


@attrs.frozen
class QueueEnd:
    """Next index and end of one consume queue."""

    next_index: int
    end_phy_offset: int
    """End, in the log, of the newest record that it listed; -1 for none."""
    first_index: int = 0
    """First index of its oldest file while the log began at `log_begin`."""


@attrs.frozen(kw_only=True)
class StoreExtent:
    """Lower bounds of what the files hold."""

    log_begin: int = 0
    log_end: int = 0
    """Offset below which the log was on disk."""
    queues: Mapping[QueueKey, QueueEnd] = MappingProxyType({})
    is_void: bool = False
    """The extent tells of no queue and no log: something was being cut or deleted."""
    is_rebuilding: bool = False
    """Queues were being rebuilt: any of them may lack entries."""
    has_epochs: bool = False
    """The store had an `epochs` file."""
    queue_file_bytes: int = 0
    index_file_bytes: int = 0

    def encode(self) -> bytes:
        fields = {
            "version": _VERSION,
            "log_begin": self.log_begin,
            "log_end": self.log_end,
            "queues": [
                [topic, queue_id, end.next_index, end.end_phy_offset, end.first_index]
                for (topic, queue_id), end in self.queues.items()
            ],
            "is_void": self.is_void,
            "is_rebuilding": self.is_rebuilding,
            "has_epochs": self.has_epochs,
            "queue_file_bytes": self.queue_file_bytes,
            "index_file_bytes": self.index_file_bytes,
        }
        body: bytes = msgpack.packb(fields)
        return _HEADER.pack(_MAGIC, len(body), crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> StoreExtent | None:
        """Return the extent; None for bytes that are none, or of a newer version."""
        if len(data) < _HEADER.size:
            return None
        magic, size, crc = _HEADER.unpack_from(data)
        body = data[_HEADER.size :]
        if magic != _MAGIC or len(body) != size or crc32(body) != crc:
            return None
        fields = msgpack.unpackb(body)
        if fields.pop("version") != _VERSION:
            return None
        rows = fields.pop("queues")
        queues = {(topic, queue_id): QueueEnd(*row) for topic, queue_id, *row in rows}
        return cls(queues=queues, **fields)


def index_file_bytes(config: StoreConfig) -> int:
    """Size of each index file."""
    return 40 + 4 * config.hash_slot_count + 20 * config.index_entry_count


def measure_extent(
    config: StoreConfig, queues: ConsumeQueues, log_begin: int, log_end: int
) -> StoreExtent:
    """Read the extent of the store below `log_end`, which is on disk. Thread-safe."""
    ends = {}
    for key, queue in list(queues.table.items()):
        if not queue.files.files:
            continue
        next_index, end_phy_offset = queue.next_index, queue.max_phy_offset
        if end_phy_offset > log_end:
            next_index = queue.bisect(
                queue.min_index, next_index, lambda at, size: at + size <= log_end
            )
            entry = queue.entry(next_index - 1)
            end_phy_offset = -1 if entry is None else entry[0] + entry[1]
        ends[key] = QueueEnd(next_index, end_phy_offset, queue.first_index)
    return StoreExtent(
        log_begin=log_begin,
        log_end=log_end,
        queues=ends,
        has_epochs=has_slots(config.root, EPOCHS_STEM),
        queue_file_bytes=config.queue_file_bytes,
        index_file_bytes=index_file_bytes(config),
    )


def write_extent(path: Path, extent: StoreExtent) -> None:
    """Replace the file, durably.

    Errors: StoreError, DiskFull.
    """
    part = path.with_name("extent.part")
    try:
        with open(part, "wb") as file:
            file.write(extent.encode())
            file.flush()
            os.fdatasync(file.fileno())
        part.replace(path)
        fsync_directory(path.parent)
    except OSError as error:
        raise disk_error(error, f"cannot write {path}") from error


class ExtentFile:
    """Written by the flush thread, voided by the loop."""

    def __init__(self, config: StoreConfig) -> None:
        self.path = config.extent_path
        self._config = config
        self.is_void = True
        """No file of this opening is there: what recovery found stays until the first `keep`."""
        self.has_epochs = False
        """Whether the file says that an `epochs` file is there."""
        self._voided_count = 0
        self._lock = threading.Lock()

    @property
    def is_stale(self) -> bool:
        """Has it been voided, or an `epochs` file come or gone since?"""
        return self.is_void or has_slots(self.path.parent, EPOCHS_STEM) != self.has_epochs

    def load(self) -> StoreExtent | None:
        """Return the extent; None where there is none that can be read.

        Errors: StoreError.
        """
        try:
            return StoreExtent.decode(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(error, f"cannot read {self.path}") from error

    def keep(self, queues: ConsumeQueues, log_begin: int, log_end: int) -> None:
        """Write what the store holds below `log_end`, which is on disk. Durable when it returns.

        On a full disk the file stays as it is: it tells of less, and that is still true.
        Errors: StoreError.
        """
        voided_count = self._voided_count
        extent = measure_extent(self._config, queues, log_begin, log_end)
        with self._lock:
            if voided_count != self._voided_count:
                return  # measured before a queue lost entries; the next checkpoint tries again
            with contextlib.suppress(DiskFull):
                write_extent(self.path, extent)
                self.is_void, self.has_epochs = False, extent.has_epochs

    def void(self) -> None:
        """Let the file tell of nothing, durably: queues or log are about to get shorter.

        Errors: StoreError, DiskFull.
        """
        config = self._config
        with self._lock:
            self._voided_count += 1
            if self.is_void:
                return
            void = StoreExtent(
                is_void=True,
                has_epochs=has_slots(config.root, EPOCHS_STEM),
                queue_file_bytes=config.queue_file_bytes,
                index_file_bytes=index_file_bytes(config),
            )
            write_extent(self.path, void)
            self.is_void = True
