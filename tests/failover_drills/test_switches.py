"""Switches under load from C++, JavaScript and trioha's own client, and the account of each run.

Zero acknowledged messages lost, queue offsets dense and given once, no consumer offset ever lower
than before, equal logs; three of each kind in the gate, ten in the release tier, a hundred with
`just drill --rounds 100`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from failover_drills.drill import Drill, run_rounds
from support.processes.rig import Processes
from support.suite.sizes import SWITCHES, SWITCHES_OF_THREE

pytestmark = pytest.mark.slow
Note = Callable[[str, object], None]


def run(processes: Processes, note: Note, rounds: int, slave_count: int = 1) -> None:
    drill = Drill(processes, slave_count=slave_count)
    run_rounds(drill, rounds, rounds)
    account = drill.account()
    print(json.dumps(account, indent=2))
    for words in account["stood_still"]:
        note("noted", words)


def test_switches_of_each_kind_lose_nothing(processes: Processes, record_property: Note) -> None:
    """Faults D1 and D3."""
    run(processes, record_property, SWITCHES)


def test_a_set_of_three_lives_through_both_kinds(
    processes: Processes, record_property: Note
) -> None:
    run(processes, record_property, SWITCHES_OF_THREE, slave_count=2)
