"""Finds a directory on a disk: where temporary directories are in memory, others may not be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from support.suite.skips import skip_unless

_REPO = Path(__file__).parents[3]


@contextlib.contextmanager
def directory_on_disk(first: Path, is_on_disk: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a new directory below `first`, or elsewhere, for which `is_on_disk` is true."""
    with contextlib.ExitStack() as stack:
        for parent in (first, Path("/var/tmp"), _REPO):
            if parent.is_dir() and os.access(parent, os.W_OK):
                path = Path(stack.enter_context(TemporaryDirectory(prefix=".disk", dir=parent)))
                if is_on_disk(path):
                    yield path
                    return
        skip_unless(False, "a directory on a disk, not in memory")
