"""A consumer from inside: its queues and stacks, or that it tells none."""

from __future__ import annotations

from trioha_console.texts import _clock, _consumer

from trioha.jobs.members import HeldQueue, RunningInfo


def test_a_consumer_tells_its_queues_and_stacks() -> None:
    queue = HeldQueue("orders", "broker-a", 3, 120, 7, locked=False)
    lines = _consumer(RunningInfo("g", "c", {}, {}, [queue], "main\n  at run"))
    assert (("  at run", ""),) in lines
    assert lines[1][1][0] == "  at 120, 7 messages fetched"
    assert _consumer(RunningInfo("g", "c", {}, {}, [], None))[-1] == (("It tells no stacks.", ""),)


def test_a_time_that_no_calendar_has_is_not_told() -> None:
    assert _clock(1_760_000_000_000) == "08:53:20.000"
    assert _clock(0) == _clock(10**18) == _clock(10**30) == "-"
