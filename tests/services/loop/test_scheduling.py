"""Seconds in which a node had to wait for its processor."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trioha.services.loop.clock import Clock
from trioha.services.loop.scheduling import (
    LIMIT_MS,
    LOOK_S,
    TELL_MS,
    ProcessorTimes,
    SchedulingWatch,
    read_processor_times,
)
from trioha.testing.recorded_events import RecordedEvents


async def _run(read_ms: list[tuple[int, int, int]], autojump_clock: MockClock) -> RecordedEvents:
    """Watch a machine whose counters grow by these in one second after the other."""
    sums = [ProcessorTimes()]
    for ran_ms, waited_ms, stolen_ms in read_ms:
        last = sums[-1]
        sums.append(
            ProcessorTimes(
                last.ran_ms + ran_ms, last.waited_ms + waited_ms, last.stolen_ms + stolen_ms
            )
        )
    answers = iter(sums)
    events = RecordedEvents()
    watch = SchedulingWatch(Clock.virtual(), events, lambda: next(answers))
    with trio.move_on_after(LOOK_S * len(read_ms) + LOOK_S / 2):
        await watch.run()
    return events


async def test_the_first_slow_second_is_told_at_once_and_the_next_together(
    autojump_clock: MockClock,
) -> None:
    slow, good = (200, LIMIT_MS, 7), (100, LIMIT_MS - 1, 0)
    rest = TELL_MS // 1000 - 3
    events = await _run([good, slow, good, slow, (10, 300, 0), *[good] * rest], autojump_clock)
    told = [
        {name: value for name, value in row.items() if name not in ("event", "level")}
        for row in events.of("scheduling_delay")
    ]
    assert told == [
        {"seconds": 1, "worst_ms": 50, "waited_ms": 50, "stolen_ms": 7, "ran_ms": 200},
        {"seconds": 2, "worst_ms": 300, "waited_ms": 350, "stolen_ms": 7, "ran_ms": 210},
    ]


async def test_a_quiet_machine_is_told_of_nothing(autojump_clock: MockClock) -> None:
    events = await _run([(900, LIMIT_MS - 1, 0)] * 30, autojump_clock)
    assert events.of("scheduling_delay") == []


def test_a_late_wake_up_counts_where_the_system_tells_nothing() -> None:
    events = RecordedEvents()

    async def main() -> None:
        none = ProcessorTimes()
        SchedulingWatch(Clock.virtual(), events).look(LIMIT_MS, none, none)

    trio.run(main)
    (row,) = events.of("scheduling_delay")
    assert row["worst_ms"] == LIMIT_MS


def test_the_counters_of_this_machine_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_processor_times()
    for _ in range(200_000):
        pass
    now = read_processor_times()
    assert now.ran_ms >= before.ran_ms
    assert now.waited_ms >= before.waited_ms
