"""Python's search for cycles, for programs that run long and make few of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
