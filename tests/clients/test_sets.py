"""`trioha run cluster --sets`: many sets under one name server, used by a stock client."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import attrs
import pytest
from support.clusters.run_cluster import run_cluster
from support.peers.clients import Clients, SendFailed, StockProducer
from support.processes.admin import create_topic, max_offset, wait_for_route
from support.processes.rig import Processes

TOPIC, QUEUES, MESSAGES = "all-sets", 2, 60
ROUTE_S, IN_SYNC_S = 30.0, 30.0
TRIES = 5


@attrs.frozen
class SetNode:
    """One broker, as its ready line tells."""

    name: str
    broker_id: int
    address: str
    pid: int
    core: int


_BROKER = re.compile(
    r"trioha broker (?P<name>\S+) id=(?P<id>\d+) .* listen=(?P<listen>\S+) .*"
    r"pid=(?P<pid>\d+) core=(?P<core>\d+)"
)
pytestmark = pytest.mark.slow


def _send(producer: StockProducer, body: str) -> None:
    """Send one message. A client that looks for the route for longer than a second gives up
    before it sends anything: it is asked again."""
    for _ in range(TRIES):
        with contextlib.suppress(SendFailed):
            assert producer.send(TOPIC, body).status == "SEND_OK"
            return
    raise AssertionError(f"{body} was not sent in {TRIES} tries")


def test_a_stock_client_sends_to_all_sets_of_a_machine(
    processes: Processes, clients: Clients, tmp_path: Path
) -> None:
    cluster, namesrv = run_cluster(processes, "2m-2s-sync", tmp_path / "sets", "--sets", "3")
    found = _BROKER.findall(cluster.log_path.read_text())
    nodes = [
        SetNode(name, int(broker_id), listen, int(pid), int(core))
        for name, broker_id, listen, pid, core in found
    ]
    masters = [node for node in nodes if node.broker_id == 0]
    assert sorted(node.name for node in masters) == ["broker-a", "broker-b", "broker-c"]
    assert len(nodes) == 6
    _check_places(nodes)
    for master in masters:
        create_topic(master.address, namesrv, TOPIC, QUEUES)
    _wait_for_all(namesrv, [master.name for master in masters])
    # The client stores a message again at another set where no slave is in sync yet.
    for master in masters:
        cluster.wait_for_line(rf"event=ha_in_sync node={master.name}:0 .*in_sync=true", IN_SYNC_S)
    producer = clients.producer("cpp", namesrv)
    for number in range(MESSAGES):
        _send(producer, f"message {number}")
    stored = [
        sum(max_offset(master.address, TOPIC, queue) for queue in range(QUEUES))
        for master in masters
    ]
    assert sum(stored) == MESSAGES
    assert min(stored) > 0, stored
    cluster.stop(60.0)
    assert "Traceback" not in cluster.log_path.read_text()


def _wait_for_all(namesrv: str, names: list[str]) -> None:
    """Wait until the topic's route names all of these brokers."""
    deadline = time.monotonic() + ROUTE_S
    while not all(name.encode() in wait_for_route(namesrv, TOPIC) for name in names):
        assert time.monotonic() < deadline, f"{names} are not all in the route"


def _check_places(nodes: list[SetNode]) -> None:
    """Check that each node has its own session, and one core, which is not its master's."""
    cores = sorted(os.sched_getaffinity(0))
    by_place = {(node.name, node.broker_id): node for node in nodes}
    for node in nodes:
        assert os.getsid(node.pid) == node.pid
        assert os.sched_getaffinity(node.pid) == {node.core}
        if len(cores) > 1:
            assert by_place[node.name, 1 - node.broker_id].core != node.core
    # Masters first have a core each.
    of_masters = {node.core for node in nodes if node.broker_id == 0}
    assert len(of_masters) == min(len(cores), len(nodes) // 2)
