"""One process per store: the file `lock`, byte 0, as RocketMQ locks it (BrokerStartup, DLedger)."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from trioha.errors import StoreError, StoreLocked

# The kernel's lock is the process's: it would let one process open a store twice, and the first
# close of any descriptor of the file would drop it.
_held: set[tuple[int, int]] = set()


class StoreLock:
    """Lock of a store, held from construction to `release`.

    Errors: StoreLocked when another process, or this one, has the store open.
    """

    def __init__(self, path: Path) -> None:
        self._fd: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and _identity(os.stat(path)) in _held:
                raise _locked(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _locked(path) from None
            raise StoreError(f"cannot lock {path}: {error.strerror}") from error
        self._fd = fd
        self._identity = _identity(os.fstat(fd))
        _held.add(self._identity)

    def release(self) -> None:
        """Let the next one in. Idempotent."""
        if self._fd is not None:
            _held.discard(self._identity)
            os.close(self._fd)
            self._fd = None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


def _locked(path: Path) -> StoreLocked:
    return StoreLocked(
        f"{path.parent} is in use by another process: stop it, or give this broker a directory "
        "of its own (storePathRootDir)"
    )
