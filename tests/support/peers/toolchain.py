"""Builds peers of other languages, one builder at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """Several pytest processes may want the same thing built at once: one builds, the rest wait."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
