"""Clients that know nothing of Raft go through elections as they are: nobody restarts them."""

from __future__ import annotations

import pytest
from raft_drills.drill import Drill
from raft_drills.raft_group import RaftGroup
from support.processes import Processes

pytestmark = pytest.mark.slow
CPP_ROUTE_S = 90.0
"""The C++ client asks for routes every 30 s, and gives a dead broker some time before that."""


def test_c_plus_plus_and_javascript_send_and_consume_on_after_elections(
    processes: Processes,
) -> None:
    group = RaftGroup(processes, timers={}).start()
    drill = Drill(group, seed=1)
    own, js, cpp = drill.load.routed
    for sender in (own, js, cpp):
        sender.wait_for_more()
    # Killed, and it stays away until everybody has found the new one.
    first = group.leader
    first.kill()
    group.wait_serving()
    for sender in (own, js):
        sender.wait_for_more()
    cpp.wait_for_more(within_s=CPP_ROUTE_S)
    first.node.start()
    group.wait_whole()
    # Handed over: the old leader is there and says no.
    second = group.leader
    group.transfer(group.others(second)[0])
    for sender in (own, js):
        sender.wait_for_more()
    cpp.wait_for_more(within_s=CPP_ROUTE_S)
    account = drill.account()
    print(account, {sender.label: sender.gaps_over(1.0) for sender in drill.load.routed})
    assert min(account["stock_acknowledged"].values()) > 60, account
