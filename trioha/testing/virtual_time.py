"""Runs Trio on a clock that jumps to the next deadline whenever nothing else can happen.

pytest-trio takes a clock only from a test's own arguments; where a fixture builds the world, mark
the module: ``pytestmark = pytest.mark.trio(run=run_on_virtual_time)``.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
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


class _SeededScheduler:
    """Random source of Trio's scheduler: the seed of its thread, else the source before.

    Trio has one source for all loops of a process. A loop in another thread, as that of
    `start_cluster`, must not draw from the seed of this one.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._mutex = threading.Lock()
        self._blocks = 0
        self._before: tuple[Random, bool] | None = None

    def random(self) -> float:
        return self._source().random()

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        self._source().shuffle(batch)

    def _source(self) -> Random:
        seeded: Random | None = getattr(self._of_thread, "seeded", None)
        if seeded is not None:
            return seeded
        before = self._before
        # A thread may have looked up `_r` just before the last block elsewhere ended.
        return Random() if before is None else before[0]

    @contextmanager
    def draw_from(self, seed: int) -> Iterator[None]:
        outer = getattr(self._of_thread, "seeded", None)
        self._of_thread.seeded = Random(seed)
        self._enter()
        try:
            yield
        finally:
            self._leave()
            self._of_thread.seeded = outer

    # Not ideal: Trio has no public way. Hypothesis and pytest-trio set the same two attributes.

    def _enter(self) -> None:
        scheduler = trio._core._run
        with self._mutex:
            self._blocks += 1
            if self._blocks == 1:
                self._before = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING
                scheduler._r = self  # type: ignore[assignment]
                scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]

    def _leave(self) -> None:
        scheduler = trio._core._run
        with self._mutex:
            self._blocks -= 1
            if self._blocks == 0 and self._before is not None:
                scheduler._r, allowed = self._before
                scheduler._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
                self._before = None


_scheduler = _SeededScheduler()


def seeded_scheduler(seed: int) -> AbstractContextManager[None]:
    """Let Trio's scheduler draw from `seed` while the block runs, in this thread only."""
    return _scheduler.draw_from(seed)


def is_virtual() -> bool:
    """Return whether the running Trio loop has a clock that jumps by itself."""
    clock = trio.lowlevel.current_clock()
    return isinstance(clock, trio.testing.MockClock) and clock.autojump_threshold == 0
