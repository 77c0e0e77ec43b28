"""Threads and randomness that a node takes from its machine, and a simulated machine's.

On a virtual clock no task may wait for a thread: the clock would jump meanwhile. `simulate_host`
lets blocking calls run on the loop and draws random bytes from a seed, until the Trio run ends.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random, SystemRandom
from typing import TypeVar

import outcome
import trio

from trioha.store.interface import MissingBytes
from trioha.store.page_cache import missing_bytes

T = TypeVar("T")

_SYSTEM = SystemRandom()
_simulated: trio.lowlevel.RunVar[Random | None] = trio.lowlevel.RunVar("trioha.host", None)


def simulate_host(rng: Random) -> None:
    """Run blocking calls on the loop and draw from `rng`, until this Trio run ends."""
    _simulated.set(rng)


def is_simulated() -> bool:
    """Return whether this Trio run simulates its machines: no process on them stands still."""
    return _simulated.get() is not None


def random_source() -> Random:
    """Return the system's randomness, or that of the simulated machine."""
    try:
        return _simulated.get() or _SYSTEM
    except RuntimeError:  # outside of Trio
        return _SYSTEM


def random_bytes(size: int) -> bytes:
    """Return so many bytes of `random_source`."""
    return random_source().randbytes(size)


def page_cache() -> MissingBytes | None:
    """Return the function that asks for this machine's page cache; None in a simulation."""
    return None if is_simulated() else missing_bytes


async def run_blocking(
    function: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None
) -> T:
    """Run a function that blocks, in a thread.

    Cancellation: waits until the function has returned.
    """
    if not is_simulated():
        return await trio.to_thread.run_sync(function, limiter=limiter)
    await trio.lowlevel.checkpoint()
    return function()


def start_blocking(
    function: Callable[[], T], deliver: Callable[[outcome.Outcome[T]], object], name: str
) -> None:
    """Start a function that blocks; `deliver` gets its outcome, in the thread that ran it."""
    if not is_simulated():
        trio.lowlevel.start_thread_soon(function, deliver, name)
    else:
        deliver(outcome.capture(function))
