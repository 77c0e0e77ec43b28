"""Python's search for cycles and the C library's freed memory, for programs that run long."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 << 20
"""Room for the largest frame and its copy. glibc takes no larger M_MMAP_THRESHOLD."""


@contextmanager
def importing() -> Iterator[None]:
    """Do not search for cycles while modules are imported: modules stay in memory anyway."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def tune_garbage_collector() -> None:
    """Look for cycles rarely, and never at what was there before the work began.

    Neither handling a request nor drawing a frame makes many, so reference counting frees nearly
    all of it; what the collector looks through again and again are modules, tables and connections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def keep_freed_memory() -> bool:
    """Have the C library keep some freed memory for the next large frame; return whether it will.

    By default glibc gives the memory of a frame of 1 MiB back to the kernel at once, which clears
    every page of it for the next one. That was a third of a follower's time while its log was
    refilled. Whoever has set malloc's options keeps them; other C libraries are left alone.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD)
    return all([mallopt(option, _KEPT_BYTES) == 1 for option in options])
