"""Messages that have left the page cache, as after a week, and those that cannot leave it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.suite.skips import skip_unless


def drop_page_cache(store: Path) -> None:
    """Bring the files of a store to disk and out of memory. No process may have them mapped."""
    for path in store.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


@contextmanager
def held_in_memory(*parts: tuple[Path, int, int]) -> Iterator[None]:
    """Keep parts of files in memory, by path, beginning and end in bytes, while the block runs.

    A page that was only read may be gone a second later, however much memory is free: some
    machines give theirs back to their host. mlock(2) allows an ordinary user 8 MiB as a rule.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as stack:
        for path, begin, end in parts:
            begin -= begin % mmap.PAGESIZE
            with path.open("r+b") as file:
                mapping = stack.enter_context(mmap.mmap(file.fileno(), end - begin, offset=begin))
            address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
            failed = libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(end - begin))
            why = f"mlock of {end - begin} bytes: {os.strerror(ctypes.get_errno())}"
            skip_unless(not failed, f"{why}; see ulimit -l")
        yield
