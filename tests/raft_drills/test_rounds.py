"""A hundred faults, drawn by a seed that is printed, against groups of three and of five.

No acknowledged message is lost, no queue offset is given twice, nobody reads what is taken back, no
progress goes back; see `history`. A thousand rounds and more: `just raft-drill --rounds 1000`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from raft_drills.drill import PLANS, Plan, live

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plan", PLANS, ids=[plan.kind for plan in PLANS])
def test_a_group_lives_through_its_share_of_a_hundred_faults(plan: Plan, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    account = live(plan, tmp_path, seed, plan.share, print)
    print(json.dumps(account, indent=2))
    assert account["rounds"] == plan.share
    assert account["puts"]["acknowledged"] > 500, account
    assert account["terms"] > plan.share // 4, account
