"""Memory of the test's own process."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import tempfile
from pathlib import Path

_FREE = re.compile(rb"(\d+) unused pools \* (\d+) bytes|# bytes in available blocks *= *([\d,]+)")


def own_bytes() -> int:
    """Memory that this process uses, without the files that it has mapped.

    Python keeps memory that one small object pins: a round of hostile frames left 168 MiB behind of
    which 0.1 MiB were in use. What lies ready for reuse does not count.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    resident = int(status.partition("RssAnon:")[2].split()[0]) << 10
    return resident - _free_bytes()


def _free_bytes() -> int:
    """Bytes of Python's own arenas without an object; CPython tells them on stderr alone."""
    with tempfile.TemporaryFile() as told:
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(told.fileno(), 2)
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        told.seek(0)
        found = _FREE.findall(told.read())
    assert found, "this Python does not tell what its arenas hold"
    return sum(
        int(blocks.replace(b",", b"")) if blocks else int(pools) * int(size)
        for pools, size, blocks in found
    )
