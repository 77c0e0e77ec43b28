from __future__ import annotations

import trio
import trio.testing

from trioha.services.loop.clock import Clock
from trioha.services.loop.stand_still import LIMIT_MS, StandStill


async def test_a_pause_is_noticed_once_and_before_what_came_meanwhile(
    mock_clock: trio.testing.MockClock,
) -> None:
    clock = Clock.virtual()
    pauses: list[int] = []
    watch = StandStill(clock, pauses.append)
    watch.check(clock.now_ms())
    mock_clock.jump(LIMIT_MS / 1000)
    watch.check(clock.now_ms())
    assert pauses == []
    mock_clock.jump(7)
    watch.check(clock.now_ms())
    watch.check(clock.now_ms())
    assert pauses == [7000]


async def test_a_process_that_runs_and_has_nothing_to_do_does_not_stand_still(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pauses: list[int] = []
    watch = StandStill(Clock.virtual(), pauses.append)
    with trio.move_on_after(600):
        await watch.run()
    assert pauses == []
