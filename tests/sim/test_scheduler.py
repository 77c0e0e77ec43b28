from __future__ import annotations

import pytest

from trioha.sim.scheduler import TRACE_LINES_MAX, Scheduler


def test_actions_happen_in_the_order_of_their_time_then_of_their_asking() -> None:
    scheduler = Scheduler()
    done: list[str] = []
    scheduler.after(5, lambda: done.append("late"))
    scheduler.after(1, lambda: done.append("first"))
    scheduler.after(1, lambda: done.append("second"))
    scheduler.run_until(10)
    assert done == ["first", "second", "late"]
    assert scheduler.now_ms == 10


def test_what_is_asked_for_now_comes_after_what_is_due_now() -> None:
    scheduler = Scheduler()
    done: list[str] = []

    def act() -> None:
        scheduler.after(0, lambda: done.append("asked"))
        done.append("act")

    scheduler.after(3, act)
    scheduler.after(3, lambda: done.append("due"))
    scheduler.run_until(3)
    assert done == ["act", "due", "asked"]


def test_a_cancelled_action_never_happens() -> None:
    scheduler = Scheduler()
    scheduler.after(1, lambda: pytest.fail("it happened")).cancel()
    scheduler.run_until(5)
    assert scheduler.action_count == 0


def test_what_lies_beyond_the_end_happens_on_the_next_run() -> None:
    scheduler = Scheduler()
    done: list[int] = []
    scheduler.after(7, lambda: done.append(scheduler.now_ms))
    scheduler.run_until(6)
    assert not done
    scheduler.run_until(7)
    assert done == [7]


def test_invariants_are_looked_at_after_every_action() -> None:
    scheduler = Scheduler()
    looked: list[int] = []
    scheduler.after(1, lambda: None)
    scheduler.after(4, lambda: None)
    scheduler.run_until(9, after_each=lambda: looked.append(scheduler.now_ms))
    assert looked == [1, 4]


def test_the_trace_keeps_the_last_lines() -> None:
    scheduler = Scheduler()
    for number in range(TRACE_LINES_MAX + 1):
        scheduler.tell("a", f"line {number}")
    assert len(scheduler.trace) == TRACE_LINES_MAX
    assert scheduler.trace[0].endswith("line 1")
