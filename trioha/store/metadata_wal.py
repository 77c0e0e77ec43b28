"""Changes in a node's tables since they were saved: ``config/metadata.wal/``.

Theory of operation. A body with its position is copied behind the last one, through the mapping of
a file, as the commitlog does: what was appended survives the process, and `sync` makes it survive
the machine. Files are named by the first position in them and are not written again by another
run, so a torn end needs no repair: it is the end of what that run has left. A file goes as soon as
every table has been saved beyond it; an orderly stop leaves none.

::

    file   := magic  record*  zeros
    record := length u32 | crc32 u32 | position u64 | body     crc of the body, seeded with position

On a full disk nothing is appended: `append` says so by raising, the tables in memory and their
files are as good as ever, and the next append tries again. The gap is not dangerous: a body says
what is (`trioha.broker.metadata_ops`), never what to add.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import attrs

from trioha.checksum import crc32
from trioha.errors import StoreError
from trioha.store.mapped_file import NO_BUFFER, MappedFile, disk_error, fsync_directory

FILE_BYTES = 1 << 20
"""A snapshot that is larger gets a file of its own size."""
_CHUNK_BYTES = 1 << 18
_MAGIC = b"TRIOHAW1"
_HEAD = struct.Struct(">IIQ")
_PACK_HEAD = _HEAD.pack
_DIGITS = 20


@attrs.define(eq=False)
class _File:
    mapped: MappedFile
    last_position: int
    synced: bool = False
    """The file is on disk, and not written any more."""


class MetadataWal:
    """Bodies by rising position. One thread appends; `sync` may run in another."""

    def __init__(self, directory: Path) -> None:
        self.position = 0
        """Position of the newest body, of this run or an earlier one."""
        self.synced_position = 0
        """Position up to which all bodies are on disk."""
        self.directory = directory
        # Those of former runs first; the last one is being written if there is a buffer.
        self._files: list[_File] = []
        self._current: MappedFile | None = None
        self._buffer = NO_BUFFER
        self._end = 0
        # Up to here the current file has blocks on disk.
        self._limit = 0

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Yield all that former runs have left, in order. Call it once, before the first `append`.

        Errors: StoreError when a file cannot be read.
        """
        for path in sorted(self.directory.glob("[0-9]" * _DIGITS)):
            try:
                data = path.read_bytes()
            except OSError as error:
                raise disk_error(error, f"cannot read {path}") from error
            mapped = MappedFile(path, 0, max(len(data), 1), _CHUNK_BYTES)
            file = _File(mapped, int(path.name), synced=True)
            self._files.append(file)
            for position, body in _records(data):
                if position > self.position:
                    self.position = file.last_position = position
                    yield position, body
        # They were written by a process that is gone: on disk or not, nobody waits for it.
        self.synced_position = self.position

    def append(self, position: int, body: bytes) -> None:
        """Keep a body. HOT: once per batch of requests that commit offsets.

        Errors: DiskFull, StoreError; nothing is kept then.
        """
        record = _PACK_HEAD(len(body), _crc(position, body), position) + body
        end = self._end + len(record)
        if end > self._limit:
            end = self._make_room(position, len(record))
        self._buffer[self._end : end] = record
        self._end = end
        self.position = position

    def sync(self) -> int:
        """Bring everything to disk and return the position now durable. Thread-safe; blocks.

        Errors: StoreError when fsync fails: the page cache may have lied, the node must stop.
        """
        position = self.position
        unsynced = [file for file in tuple(self._files) if not file.synced]
        # Asked for last: a file begun meanwhile is not among them, one that was left is complete.
        current = self._current
        for file in unsynced:
            file.mapped.sync()
        if unsynced:
            fsync_directory(self.directory)
        for file in unsynced:
            file.synced = file.mapped is not current
        self.synced_position = position
        return position

    def forget(self, position: int) -> None:
        """Delete what is not needed any more: every table is saved as it is at `position`.

        Errors: StoreError when a file cannot be deleted.
        """
        files = self._files
        try:
            self._mark_end()
            while files and files[0].last_position <= position:
                if files[0].mapped is self._current:
                    self._current, self._buffer, self._limit = None, NO_BUFFER, 0
                files.pop(0).mapped.unlink()
        except OSError as error:
            raise disk_error(error, f"cannot delete from {self.directory}") from error

    def _mark_end(self) -> None:
        if self._current is not None:
            self._files[-1].last_position = self.position

    def _make_room(self, position: int, size: int) -> int:
        """Have blocks for `size` bytes, in a new file if need be; returns where they will end."""
        file = self._current
        if file is None or self._end + size > file.size:
            file = self._begin_file(position, size)
        end = self._end + size
        if end > file.reserved:
            file.reserve(end)
        self._limit = min(file.reserved, file.size)
        return end

    def _begin_file(self, position: int, size: int) -> MappedFile:
        needed = len(_MAGIC) + size
        path = self.directory / f"{position:0{_DIGITS}}"
        file = MappedFile(path, 0, max(FILE_BYTES, needed), _CHUNK_BYTES, keep_descriptor=True)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # A file that an earlier run left there was replayed, or could not be read.
            path.unlink(missing_ok=True)
            file.create()
            file.reserve(needed)
        except StoreError:
            path.unlink(missing_ok=True)
            raise
        except OSError as error:
            raise disk_error(error, f"cannot create {path}") from error
        self._mark_end()
        self._buffer = file.buffer
        self._buffer[: len(_MAGIC)] = _MAGIC
        self._files = [other for other in self._files if other.mapped.path != path]
        self._files.append(_File(file, position - 1))
        self._current = file
        self._end = len(_MAGIC)
        return file


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield position and body of each record of a file, up to its end or the first damage."""
    offset = len(_MAGIC)
    if data[:offset] != _MAGIC:
        return
    while offset + _HEAD.size <= len(data):
        length, crc, position = _HEAD.unpack_from(data, offset)
        offset += _HEAD.size
        body = data[offset : offset + length]
        offset += length
        if not length or len(body) != length or crc != _crc(position, body):
            return
        yield position, body


def _crc(position: int, body: bytes) -> int:
    return crc32(body, (position ^ position >> 32) & 0xFFFFFFFF)
