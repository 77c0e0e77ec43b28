"""One file of fixed size, mapped into memory (MappedFile.java).

Bytes are written through the mapping, or with pwrite where whole buffers arrive (the page cache is
one and the same, and pwrite copies six times faster into fresh pages). A store into a mapped hole
on a full disk would kill the process with SIGBUS. So blocks are reserved with posix_fallocate a
chunk ahead of the writing, and a full disk is an ordinary error.

Views of the mapping go to readers and sockets and may outlive the file: nothing here ever closes a
mapping. The object forgets it, the file is unlinked, and the last view takes the mapping along.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from trioha.errors import DiskFull, StoreError
from trioha.wire.remoting_command import Buffer

T = TypeVar("T")

_PIECE_BYTES = 1 << 20
_WRITE_BYTES: Final = 128 << 10
"""Most bytes in one write. For one of a mebibyte the kernel asks for so much memory in one piece,
and some hosts have none at hand: they take three to ten times as long over it."""
_ZEROS = bytes(_PIECE_BYTES)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

NO_BUFFER: Final = mmap.mmap(-1, 1)
"""Stands for "no file is selected"; nobody writes to it."""


def fsync_directory(path: Path) -> None:
    """Make names created or removed in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def disk_error(error: OSError, what: str) -> StoreError:
    """DiskFull for want of space, StoreError for anything else."""
    if error.errno in _NO_SPACE:
        return DiskFull(f"{what}: the disk is full; free some space, writing goes on by itself")
    return StoreError(f"{what}: {error.strerror or error}")


class MappedFile:
    """A file of exactly `size` bytes whose first byte has the offset `from_offset`.

    It is mapped when first touched. `keep_descriptor` is for the log, which is written and synced
    all the time; thousands of consume queues would run out of descriptors, so they open theirs for
    each sync.
    """

    __slots__ = (
        "_chunk_bytes",
        "_fd",
        "_keep_descriptor",
        "_mapping",
        "_random_mapping",
        "_random_view",
        "_view",
        "from_offset",
        "path",
        "reserved",
        "size",
    )

    def __init__(
        self,
        path: Path,
        from_offset: int,
        size: int,
        chunk_bytes: int,
        *,
        keep_descriptor: bool = False,
    ) -> None:
        self.path = path
        self.from_offset = from_offset
        self.size = size
        self.reserved = 0
        """Below this position every block is on disk."""
        self._chunk_bytes = chunk_bytes
        self._keep_descriptor = keep_descriptor
        self._fd: int | None = None
        self._mapping: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._random_mapping: mmap.mmap | None = None
        self._random_view: memoryview | None = None

    def __del__(self) -> None:
        # Not sooner: the flush thread may be inside fdatasync with this very number.
        if self._fd is not None:
            os.close(self._fd)

    def create(self) -> None:
        """Make the file, full size and full of zeros, or finish making it.

        Errors: StoreError, DiskFull.
        """
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, self.size)
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error(error, f"cannot create {self.path}") from error

    @property
    def end_offset(self) -> int:
        return self.from_offset + self.size

    @property
    def buffer(self) -> mmap.mmap:
        mapping = self._mapping
        if mapping is None:
            mapping = self._mapping = self._map()
        return mapping

    def expect_writes(self, position: int) -> None:
        """Tell the kernel that writes follow from `position` on: it shall not read ahead there.

        Else it takes the writer for a reader, and brings the zeros ahead of it in pieces that grow
        up to 2 MiB. A store into a mapped piece makes all of it dirty, so an fsync of 200 bytes
        wrote 2 MiB and took five times as long (Linux 6.18, ext4).
        """
        begin = position - position % mmap.PAGESIZE
        if begin < self.size and hasattr(mmap, "MADV_RANDOM"):
            # It is advice. The kernel may refuse it: each mapping has two parts then, and a
            # process may have only so many.
            with suppress(OSError):
                if begin > 0:
                    self.buffer.madvise(mmap.MADV_NORMAL, 0, begin)
                self.buffer.madvise(mmap.MADV_RANDOM, begin)

    def expect_reads(self) -> None:
        """Tell the kernel that nothing is written any more: it may read ahead everywhere."""
        if self._mapping is not None and hasattr(mmap, "MADV_NORMAL"):
            self._mapping.madvise(mmap.MADV_NORMAL)

    @property
    def random_buffer(self) -> mmap.mmap:
        """The same bytes through another mapping, for which the kernel does not read ahead.

        A reader of these has read from disk what it asked for, and no more.
        """
        mapping = self._random_mapping
        if mapping is None:
            mapping = self._map()
            if hasattr(mmap, "MADV_RANDOM"):
                mapping.madvise(mmap.MADV_RANDOM)
            self._random_mapping = mapping
        return mapping

    @property
    def view(self) -> memoryview:
        view = self._view
        if view is None:
            view = self._view = memoryview(self.buffer)
        return view

    @property
    def random_view(self) -> memoryview:
        """A view of `random_buffer`."""
        view = self._random_view
        if view is None:
            view = self._random_view = memoryview(self.random_buffer)
        return view

    def reserve(self, end: int, begin: int = 0) -> None:
        """Have blocks for every byte below `end`; those below `begin` have theirs already.

        Errors: DiskFull; nothing has changed then.
        """
        if end <= self.reserved:
            return
        start = max(self.reserved, begin)
        stop = min(self.size, -(-end // self._chunk_bytes) * self._chunk_bytes)
        try:
            self._call(lambda fd: os.posix_fallocate(fd, start, stop - start))
        except OSError as error:
            raise disk_error(
                error, f"cannot reserve {stop - start} bytes of {self.path}"
            ) from error
        self.reserved = stop

    def write(self, position: int, data: Buffer) -> None:
        """Copy a buffer in; for large ones.

        Errors: DiskFull; a part may have been written, the caller has not moved its end.
        """
        try:
            if self._fd is not None:  # as it mostly is: no closure for each message
                self._pwrite(self._fd, position, data)
            else:
                self._call(lambda fd: self._pwrite(fd, position, data))
        except OSError as error:
            raise disk_error(error, f"cannot write {self.path}") from error

    @staticmethod
    def _pwrite(fd: int, position: int, data: Buffer) -> None:
        # Mostly one write does it.
        written = os.pwrite(fd, data, position) if len(data) <= _WRITE_BYTES else 0
        while written < len(data):
            piece = memoryview(data)[written : written + _WRITE_BYTES]
            written += os.pwrite(fd, piece, position + written)

    def sync(self) -> None:
        """Bring the file to disk. Safe in another thread, also while the file is being deleted.

        Errors: StoreError.
        """
        try:
            self._call(os.fdatasync)
        except FileNotFoundError:
            return  # deleted meanwhile, with all that was to be kept of it
        except OSError as error:
            raise StoreError(f"fsync of {self.path} failed: {error.strerror or error}") from error

    def clear(self, begin: int) -> int:
        """Zero everything from `begin` on, durably, and return where the last of it ended.

        Holes are skipped, so a fresh gigabyte costs nothing.

        Errors: StoreError.
        """
        try:
            return self._call(lambda fd: self._clear(fd, begin))
        except OSError as error:
            raise StoreError(f"cannot clear the end of {self.path}: {error.strerror}") from error

    def _clear(self, fd: int, begin: int) -> int:
        last = position = begin
        while position < self.size:
            try:
                position = os.lseek(fd, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # only a hole is left
            piece = os.pread(fd, min(_PIECE_BYTES, self.size - position), position)
            if piece != _ZEROS[: len(piece)]:
                os.pwrite(fd, _ZEROS[: len(piece)], position)
                last = position + len(piece.rstrip(b"\0"))
            position += len(piece)
        if last > begin:
            os.fdatasync(fd)
        return last

    def unlink(self) -> None:
        """Remove the name and forget the mapping; views that are out stay good."""
        self.path.unlink(missing_ok=True)
        self._view = self._random_view = None
        self._mapping = self._random_mapping = None

    def _map(self) -> mmap.mmap:
        try:
            return self._call(lambda fd: mmap.mmap(fd, self.size))
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot map {self.path}: {error}") from error

    def _call(self, function: Callable[[int], T]) -> T:
        """Return what `function` makes of the file's descriptor. HOT: each fsync calls it.

        Errors: OSError, also when the file cannot be opened.
        """
        if self._fd is not None:
            return function(self._fd)
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        if self._keep_descriptor:
            self._fd = fd
            return function(fd)
        try:
            return function(fd)
        finally:
            os.close(fd)
