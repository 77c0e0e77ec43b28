"""Ports of loopback for what a test listens at, each claimed so that no other test takes it."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

# Below Linux's ephemeral range, so that no client socket takes a port between choosing and binding;
# apart from those that `trioha` chooses for a whole cluster.
PORTS = range(12_000, 26_000, 8)
# A client that lives longer than a node goes on asking at its port: it must not find another's.
_CLAIMS_MAX = 400
_claims: deque[TextIO] = deque()
"""Files that tell other processes of tests which ports are ours; the oldest is closed first."""


def free_ports() -> int:
    """A port P such that P-2 (VIP), P, P+1 (HA) and P+3 (HTTP) are free on loopback now.

    Other processes that run tests do not choose it: each claims the blocks that it uses.
    """
    rng = random.Random(os.urandom(8))
    for base in rng.sample(PORTS, len(PORTS)):
        if _claim(base) and all(_is_free(base + step) for step in (0, 2, 3, 5)):
            return base + 2
    raise AssertionError("no free block of ports below the ephemeral range")


def _claim(base: int) -> bool:
    """Claim a block of ports until this process ends, or has claimed many others."""
    folder = Path(tempfile.gettempdir()) / f"trioha-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    claim = (folder / str(base)).open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    if len(_claims) > _CLAIMS_MAX:
        _claims.popleft().close()
    return True


def distinct_ports(count: int, apart_from: Collection[int] = ()) -> list[int]:
    """Ports as `free_ports` gives them, none of them twice."""
    found: list[int] = []
    while len(found) < count:
        if (port := free_ports()) not in (*found, *apart_from):
            found.append(port)
    return found


@contextmanager
def deaf_port() -> Iterator[int]:
    """Yield a loopback port at which no process listens or can listen during the block."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
