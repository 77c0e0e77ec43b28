"""Tells which bytes of a mapping are in memory, and reads others without holding up the loop.

Theory of operation. A read of a mapped page that is not in the page cache makes the reading thread
wait for the disk: a tenth of a millisecond on a fast disk, many on a slow one, and the kernel reads
on around the page as far as the device is set to (read_ahead_kb). For a thread that runs an event
loop this is a pause of everything. `missing_bytes` asks mincore(2), 3 µs for up to a megabyte, and
reads nothing. `bring` reads parts of files in system calls that hold no lock of Python's, so the
loop goes on meanwhile; the bytes are dropped, the page cache keeps them. It reads what it is asked
for and no more; `MappedFile.random_view` keeps the kernel from reading on when the bytes are used.

Without mincore (Linux's tells of the page cache), everything counts as in memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from trioha.store.interface import DiskBlock

_PAGE_BYTES = mmap.PAGESIZE
_WINDOW_BYTES = 4 << 20
"""Bytes that one call of mincore(2) asks about."""
_SCRATCH_BYTES = 1 << 20


class _Residency:
    """mincore(2), and the memory that it answers into."""

    def __init__(self) -> None:
        # It is over in less time than it takes to give Python's lock up and get it back.
        self._mincore = ctypes.PyDLL(None).mincore
        self._mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._mincore.restype = ctypes.c_int
        self._vector = bytearray(_WINDOW_BYTES // _PAGE_BYTES + 1)
        self._vector_at = ctypes.addressof(ctypes.c_char.from_buffer(self._vector))

    def missing_bytes(self, view: memoryview) -> int:
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        end = start + len(view)
        begin = start - start % _PAGE_BYTES
        missing = 0
        while begin < end:
            length = min(end - begin, _WINDOW_BYTES)
            if self._mincore(begin, length, self._vector_at):
                return 0  # a sandbox forbids it
            pages = -(-length // _PAGE_BYTES)
            missing += self._vector.count(0, 0, pages)
            begin += length
        return missing * _PAGE_BYTES


_residency = _Residency() if sys.platform == "linux" else None


def missing_bytes(view: memoryview) -> int:
    """Return the bytes of a mapping's view that are not in memory, in whole pages."""
    if _residency is None or not view:
        return 0
    return _residency.missing_bytes(view)


def bring(blocks: Iterable[DiskBlock]) -> None:
    """Read parts of files into memory. Blocks; for a thread.

    Neighbours are read in one system call: after each the thread waits for Python's lock.
    Errors: none. What cannot be read, for instance since the file was deleted, is missed by its
    next reader.
    """
    scratch = _scratch()
    parts = sorted({(block.path, block.begin, block.begin + block.size) for block in blocks})
    for path, group in groupby(parts, key=itemgetter(0)):
        with suppress(OSError):
            _read(path, [(begin, end) for _, begin, end in group], scratch)


@cache
def _scratch() -> memoryview:
    """Return memory for bytes that nobody looks at: all threads may read into it at once.

    It is kept: new memory costs a read of a megabyte a millisecond of processor time, twice what
    the read itself does. And it is anonymous: Python would fill an array with zeros, and hold its
    lock meanwhile.
    """
    return memoryview(mmap.mmap(-1, _SCRATCH_BYTES))


def _read(path: Path, parts: list[tuple[int, int]], scratch: memoryview) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for position, end in _merged(parts):
            while position < end:
                count = os.preadv(fd, [scratch[: end - position]], position)
                if not count:
                    break
                position += count
    finally:
        os.close(fd)


def _merged(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join parts that touch or overlap; they are in order."""
    joined = parts[:1]
    for begin, end in parts[1:]:
        if begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined
