"""Switches under load from C++, JavaScript and trioha's own client, and the account of each run.

Zero acknowledged messages lost, queue offsets dense and given once, no consumer offset ever lower
than before, equal logs; three of each kind in the gate, ten in the release tier, a hundred with
`just drill --rounds 100`.
"""

from __future__ import annotations

import json

import pytest
from failover_drills.drill import Drill, run_rounds
from support.processes.rig import Processes
from support.suite.sizes import SWITCHES, SWITCHES_OF_THREE

pytestmark = pytest.mark.slow


def run(processes: Processes, planned: int, forced: int, slave_count: int = 1) -> None:
    drill = Drill(processes, slave_count=slave_count)
    run_rounds(drill, planned, forced)
    print(json.dumps(drill.account(), indent=2))


def test_switches_of_each_kind_lose_nothing(processes: Processes) -> None:
    """Faults D1 and D3."""
    run(processes, planned=SWITCHES, forced=SWITCHES)


def test_a_set_of_three_lives_through_both_kinds(processes: Processes) -> None:
    run(processes, planned=SWITCHES_OF_THREE, forced=SWITCHES_OF_THREE, slave_count=2)
