"""Switches under load from C++, JavaScript and trioha's own client, and the account of each run.

Zero acknowledged messages lost, queue offsets dense and given once, no consumer offset ever lower
than before, equal logs; ten of each kind here, a hundred with `just drill`.
"""

from __future__ import annotations

import json

import pytest
from failover_drills.drill import Drill, run_rounds
from support.processes import Processes

pytestmark = pytest.mark.slow


def run(processes: Processes, planned: int, forced: int, slave_count: int = 1) -> None:
    drill = Drill(processes, slave_count=slave_count)
    run_rounds(drill, planned, forced)
    account = drill.account()
    print(json.dumps(account, indent=2))
    assert account["sends"]["SEND_OK"] > 1000, account


def test_d1_d3_ten_switches_of_each_kind_lose_nothing(processes: Processes) -> None:
    run(processes, planned=10, forced=10)


def test_a_set_of_three_lives_through_both_kinds(processes: Processes) -> None:
    run(processes, planned=3, forced=3, slave_count=2)
