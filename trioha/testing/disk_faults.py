"""Disks of in-process brokers that are full or fail.

While a fault is on, system calls of this process on files below the broker's directory fail; all
others go through. Not ideal: it replaces functions of `os`, since the store calls them directly.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SYNCS = ("fsync", "fdatasync")


class DiskFaults:
    """The faults of one cluster."""

    def __init__(self) -> None:
        self._full: set[Path] = set()
        self._broken: set[Path] = set()
        self._real: dict[str, Callable[..., Any]] = {}

    def set_full(self, root: Path, full: bool) -> None:
        """Let a directory have no space left, or space again."""
        (self._full.add if full else self._full.discard)(root)
        self._install()

    def set_broken(self, root: Path, broken: bool) -> None:
        """Let every fsync in a directory fail, or none."""
        (self._broken.add if broken else self._broken.discard)(root)
        self._install()

    def clear(self) -> None:
        """End all faults."""
        self._full.clear()
        self._broken.clear()
        self._install()

    def _install(self) -> None:
        wanted = bool(self._full or self._broken)
        if wanted and not self._real:
            self._real = {
                name: getattr(os, name) for name in ("posix_fallocate", "statvfs", *_SYNCS)
            }
            os.posix_fallocate = self._fallocate
            os.statvfs = self._statvfs
            for name in _SYNCS:
                setattr(os, name, self._sync_of(name))
        elif not wanted and self._real:
            for name, function in self._real.items():
                setattr(os, name, function)
            self._real = {}

    def _fallocate(self, fd: int, offset: int, size: int, /) -> None:
        if _is_below(_path_of(fd), self._full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real["posix_fallocate"](fd, offset, size)

    def _statvfs(self, path: Any) -> os.statvfs_result:
        found: os.statvfs_result = self._real["statvfs"](path)
        if not isinstance(path, int) and _is_below(Path(path), self._full):
            rows = list(found)
            rows[3] = rows[4] = 0  # f_bfree, f_bavail
            return os.statvfs_result(rows)
        return found

    def _sync_of(self, name: str) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            if _is_below(_path_of(fd), self._broken):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._real[name](fd)

        return sync


def _path_of(fd: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{fd}"))


def _is_below(path: Path, roots: set[Path]) -> bool:
    return any(root == path or root in path.parents for root in roots)
