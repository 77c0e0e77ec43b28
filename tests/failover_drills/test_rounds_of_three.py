"""Drawn rounds on a set of three: members die inside promotions, and nothing acknowledged is lost.

The seed is another one for each commit and is printed; TEST_SEED repeats a run. A release runs 300
rounds, as does `just drill --members 3 --rounds 300`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from failover_drills.rounds import run_many
from support.suite.drawn_seed import drawn_seed
from support.suite.sizes import ROUNDS_OF_THREE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 30 * ROUNDS_OF_THREE)]


def test_members_die_between_the_steps_of_a_promotion_and_nothing_is_lost(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Issue 15: never two masters at a time, and no consumer offset goes back at any member."""
    rounds = ROUNDS_OF_THREE
    account = run_many(tmp_path, drawn_seed("rounds of three"), rounds, cuts=True)
    print(json.dumps(account, indent=2))
    for words in account["stood_still"]:
        record_property("noted", words)
