"""Runs Trio on a clock that jumps to the next deadline whenever nothing else can happen.

pytest-trio takes a clock only from a test's own arguments; where a fixture builds the world, mark
the module: ``pytestmark = pytest.mark.trio(run=run_on_virtual_time)``.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import trio
import trio.testing

T = TypeVar("T")


def run_on_virtual_time(
    function: Callable[[], Awaitable[T]],
    *,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> T:
    """Run the function as `trio.run` does, and return what it returns."""
    return trio.run(
        function,
        clock=clock or trio.testing.MockClock(autojump_threshold=0),
        instruments=instruments,
    )


def run_seeded(function: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run the function on virtual time; Trio's scheduler draws from `seed`.

    Runs in one process repeat each other. Those of several processes do so too if `PYTHONHASHSEED`
    is the same: the order of sets of strings depends on it.
    """
    with seeded_scheduler(seed):
        return run_on_virtual_time(function)


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Let Trio's scheduler draw from `seed` while the block runs.

    Not ideal: Trio has no public way. Hypothesis and pytest-trio set the same two attributes.
    """
    scheduler = trio._core._run
    was_deterministic, state = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.setstate(random.Random(seed).getstate())
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = was_deterministic  # type: ignore[misc]
        scheduler._r.setstate(state)


def is_virtual() -> bool:
    """Return whether the running Trio loop has a clock that jumps by itself."""
    clock = trio.lowlevel.current_clock()
    return isinstance(clock, trio.testing.MockClock) and clock.autojump_threshold == 0
