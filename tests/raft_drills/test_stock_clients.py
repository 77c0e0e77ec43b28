"""Clients that know nothing of Raft go through elections without a restart."""

from __future__ import annotations

import pytest
from raft_drills.drill import Drill
from raft_drills.hurt_group import HurtGroup
from support.peers.clients import Clients
from support.processes.admin import Fields, consumer_offset, create_topic, request
from support.processes.rig import Processes
from support.processes.status import wait_until

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow
CPP_ROUTE_S = 90.0
"""The C++ client asks for routes every 30 s, and gives a dead broker some time before that."""


def test_c_plus_plus_and_javascript_send_and_consume_on_after_elections(
    processes: Processes,
) -> None:
    group = HurtGroup(processes, timers={}).start()
    drill = Drill(group, seed=1)
    own, js, cpp = drill.load.routed
    for sender in (own, js, cpp):
        sender.wait_for_more()
    # The leader is killed and stays away until every client has found the new one.
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


def test_a_consumer_that_starts_while_no_leader_is_known_goes_on_where_it_was(
    processes: Processes,
) -> None:
    """The C++ client takes any failure for a group without an offset: had it come to asking for
    one, it would go on from the end, and miss what was sent while it was away."""
    group = HurtGroup(processes, timers={}).start()
    clients = Clients(processes)
    create_topic(group.leader.address, group.namesrv, "T", 1)
    producer = clients.producer("js", group.namesrv)
    consumer = clients.consumer("cpp", group.namesrv, "keen", "T")
    old = [f"old-{number}" for number in range(40)]
    producer.send_all("T", old)
    consumer.wait_for_bodies(old)
    leader = group.leader
    wait_until("committed", lambda: consumer_offset(leader.address, "keen", "T", 0) == len(old))
    consumer.stop()
    missed = [f"missed-{number}" for number in range(10)]
    producer.send_all("T", missed)
    others = group.others(leader)
    for member in others:
        member.kill()
    wait_until("no leader", lambda: leader.raft()["role"] != "LEADER")
    again = clients.consumer("cpp", group.namesrv, "keen", "T")
    fields: Fields = {"consumerGroup": "keen"}
    connected = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
    wait_until(
        "it is there", lambda: request(leader.address, connected).code == ResponseCode.SUCCESS
    )
    group.start_all(others)
    group.wait_whole()
    again.wait_for_bodies(missed, CPP_ROUTE_S)
    assert not set(old) & set(again.bodies), again.bodies
