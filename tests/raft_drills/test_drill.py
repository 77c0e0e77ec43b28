"""An account of faults proves nothing unless the drill did enough."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest
from raft_drills.drill import PLANS, Plan, demand_enough, in_turns
from raft_drills.faults import ENDS_A_LEADERSHIP

PLAN = PLANS[0]
ROUNDS = 12
ENOUGH = {
    "rounds": ROUNDS,
    "faults": dict.fromkeys(PLAN.faults, 1),
    "terms": 4,
    "puts": {"acknowledged": 361},
    "reads": 13,
    "looks": 13,
    "commits_acknowledged": 13,
    "topic_changes_acknowledged": 13,
    "stock_acknowledged": {"own": 13, "js": 13, "cpp": 13},
}


def test_an_account_of_enough_is_taken() -> None:
    demand_enough(PLAN, ROUNDS, ENOUGH)


@pytest.mark.parametrize(
    "less",
    [
        {"rounds": 11},
        {"faults": {"cut": 12}},
        {"terms": 3},
        {"puts": {"acknowledged": 360}},
        {"reads": 12},
        {"looks": 12},
        {"commits_acknowledged": 12},
        {"topic_changes_acknowledged": 12},
        {"stock_acknowledged": {}},
        {"stock_acknowledged": {"own": 13, "js": 13, "cpp": 12}},
    ],
)
def test_an_account_of_too_little_is_an_error(less: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        demand_enough(PLAN, ROUNDS, {**ENOUGH, **less})


def test_an_account_without_a_round_is_an_error() -> None:
    with pytest.raises(AssertionError):
        demand_enough(PLAN, 0, {**ENOUGH, "rounds": 0})


@pytest.mark.parametrize("plan", PLANS, ids=[plan.kind for plan in PLANS])
def test_the_first_fault_ends_a_leadership_and_each_kind_comes_before_any_comes_again(
    plan: Plan,
) -> None:
    count = len(plan.faults)
    for seed in range(100):
        names = list(islice(in_turns(plan.faults, random.Random(seed)), 2 * count))
        assert names[0] in ENDS_A_LEADERSHIP
        assert set(names[:count]) == set(names[count:]) == set(plan.faults)
    assert names != list(islice(in_turns(plan.faults, random.Random(seed - 1)), 2 * count))
