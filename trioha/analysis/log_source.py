"""Bytes of one segment, read a piece at a time.

Files are read and never mapped: somebody may cut one under us, which a mapping answers with SIGBUS.
A source keeps the size that it had when it was opened. What has been cut off since then reads as
zeros, like space that the broker has not used yet; so readers need not ask how much they got.
"""

from __future__ import annotations

import os
from typing import Protocol, Self

_PIECE_BYTES = 1 << 20


class LogSource(Protocol):
    """Source of the bytes of a scan."""

    @property
    def size(self) -> int:
        """Bytes of the segment."""

    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes; fewer only when the source's own size ends before."""

    def find(self, needle: bytes, begin: int, end: int) -> int:
        """Return the first place of `needle` within begin..end, or -1."""


class OpenSource(LogSource, Protocol):
    """One that is closed when its block is left."""

    def data_end(self) -> int:
        """Position behind which the file is a hole, as far as the storage tells."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class FileSource:
    """A segment on disk.

    Errors: OSError.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._file).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def data_end(self) -> int:
        """Position behind which the file is a hole, as far as the file system tells."""
        end = 0
        while end < self.size:
            try:
                end = os.lseek(self._file, os.lseek(self._file, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError:
                break  # no data behind it
        return min(end, self.size)

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._file, size, position)
        while len(data) < size:
            more = os.pread(self._file, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data.ljust(min(size, self.size - position), b"\0")

    def find(self, needle: bytes, begin: int, end: int) -> int:
        return find_in_pieces(self, needle, begin, end)


def find_in_pieces(source: LogSource, needle: bytes, begin: int, end: int) -> int:
    """First place of `needle` within begin..end, or -1, holding a mebibyte at a time."""
    overlap = len(needle) - 1
    while begin + overlap < end:
        piece = source.read(begin, min(_PIECE_BYTES, end - begin))
        at = piece.find(needle)
        if at >= 0:
            return begin + at
        if len(piece) <= overlap:
            break
        begin += len(piece) - overlap
    return -1
