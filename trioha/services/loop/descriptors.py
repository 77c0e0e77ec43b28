"""The file descriptors of this process, and the reserve that connections leave to its files.

A store opens files as it grows. Without a descriptor an fsync fails, and a node whose fsync fails
ends. So the last descriptors below RLIMIT_NOFILE are for files and for replication.
"""

from __future__ import annotations

import os
import resource

_RESERVE_MIN, _RESERVE_MAX = 64, 1024


def reserve_of(limit: int) -> int:
    """Return how many of `limit` descriptors clients leave free."""
    return min(max(_RESERVE_MIN, limit // 8), _RESERVE_MAX, limit // 2)


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def are_scarce(share: float = 1.0) -> bool:
    """Return whether new connections take from the reserve, or from this share of it.

    The kernel gives out the lowest free number: one near the limit tells that all below are taken.
    """
    limit = descriptor_limit()
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return True
    os.close(lowest)
    return lowest >= limit - int(reserve_of(limit) * share)
