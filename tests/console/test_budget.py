from __future__ import annotations

from trioha_console.budget import SHARE, ProcessorBudget


def test_a_process_that_takes_its_share_may_go_on() -> None:
    budget = ProcessorBudget(0, 0)
    assert not any(budget.is_spent(second, SHARE * second) for second in range(1, 100))


def test_more_than_the_share_is_noticed_and_forgotten_again() -> None:
    budget = ProcessorBudget(0, 0)
    spent = [budget.is_spent(second, (SHARE + 0.12) * second) for second in range(1, 10)]
    assert spent == [False] * 2 + [True] * 7
    used_s = 9 * (SHARE + 0.12)
    idle = [
        budget.is_spent(9 + second, used_s + (SHARE - 0.04) * second) for second in range(1, 20)
    ]
    # A quarter of a second is owed at most: a screen that took long to open is soon forgotten.
    assert idle == [True] * 6 + [False] * 13


def test_what_was_saved_for_hours_is_not_spent_at_once() -> None:
    budget = ProcessorBudget(0, 0)
    assert not budget.is_spent(10_000, 1)
    assert [budget.is_spent(10_000 + second, 1 + second) for second in (1, 2)] == [True, True]
