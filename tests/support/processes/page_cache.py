"""Messages that have left the page cache, as after a week."""

from __future__ import annotations

import os
from pathlib import Path


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
