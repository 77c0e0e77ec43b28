"""Faults, drawn by a seed that the commit decides, against groups of three and of five: 24 in the
gate, a hundred in the release tier.

No acknowledged message is lost, no queue offset is given twice, no client reads what is taken back,
no progress goes back; see `history`. A thousand rounds and more: `just raft-drill --rounds 1000`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from raft_drills.drill import PLANS, Plan, live
from support.suite.drawn_seed import drawn_seed
from support.suite.sizes import RAFT_ROUNDS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plan", PLANS, ids=[plan.kind for plan in PLANS])
def test_a_group_lives_through_its_share_of_a_hundred_faults(
    plan: Plan, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds = round(plan.share * RAFT_ROUNDS / 100)
    account = live(plan, tmp_path, drawn_seed(f"raft-{plan.kind}"), rounds, print)
    print(json.dumps(account, indent=2))
    for words in account["stood_still"]:
        record_property("noted", words)
