"""Runs a test on a clock that jumps to the next deadline whenever nothing else can happen.

pytest-trio takes a clock only from a test's own arguments; where a fixture builds the world, mark
the module: ``pytestmark = pytest.mark.trio(run=run_on_virtual_time)``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio
import trio.testing


def run_on_virtual_time(
    function: Callable[[], Awaitable[object]],
    *,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> object:
    return trio.run(
        function,
        clock=clock or trio.testing.MockClock(autojump_threshold=0),
        instruments=instruments,
    )
