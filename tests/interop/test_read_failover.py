"""Masters die, trioha's slaves go on serving the Java client, and no progress is lost."""

from __future__ import annotations

import signal
import time

import attrs
import pytest
from support.clusters.meeting import BOTH, wait_for_brokers
from support.clusters.pair import SMALL_FILES
from support.histories.commitlog import wait_for_equal_logs
from support.peers.clients import Clients, SendFailed, StockConsumer, StockProducer
from support.peers.java import java_broker
from support.peers.java_tools import QUICK_CONSUMER
from support.processes.admin import put_topic, wait_for_progress
from support.processes.rig import Node, Processes, start_all, trioha_broker, trioha_namesrv

TOPIC = "T"
QUEUES = 4
FOLLOW_S = 40.0
CARRY_ON_S = 60.0
PROBE_PERIOD_S = 0.2


@attrs.frozen
class ReplicaSet:
    name: str
    master: Node
    slave: Node


@pytest.fixture
def namesrv(processes: Processes) -> str:
    return trioha_namesrv(processes).start().address


@pytest.fixture
def sets(processes: Processes, namesrv: str) -> list[ReplicaSet]:
    """Two replica sets of one cluster: a master of either make, and a slave of ours for each."""
    made = []
    for make in BOTH:
        name = f"set-{make}"
        new_master = trioha_broker if make == "trioha" else java_broker
        master = new_master(processes, namesrv, name=name, settings=SMALL_FILES)
        slave = trioha_broker(
            processes, namesrv, name=name, broker_id=1, role="SLAVE", settings=SMALL_FILES
        )
        made.append(ReplicaSet(name, master, slave))
    start_all([one.master for one in made])
    start_all([one.slave for one in made])
    for one in made:
        put_topic(one.master.address, TOPIC, QUEUES)
    wait_for_brokers(namesrv, TOPIC, {one.name for one in made})
    return made


def wait_until_both_take(producer: StockProducer, sets: list[ReplicaSet]) -> list[str]:
    """Send until both masters have taken a message; return the bodies stored on the way."""
    stored: list[str] = []
    took: set[str | None] = set()
    deadline = time.monotonic() + CARRY_ON_S
    while took != {one.name for one in sets}:
        body = f"probe {len(stored)} {time.monotonic()}"
        try:
            took.add(producer.send(TOPIC, body).broker)
            stored.append(body)
        except SendFailed:
            time.sleep(PROBE_PERIOD_S)
        assert time.monotonic() < deadline, f"only {took} take messages"
    return stored


def check_none_twice(reader: StockConsumer, bodies: list[str]) -> None:
    delivered = [body for body in reader.bodies if body in set(bodies)]
    assert sorted(map(str, delivered)) == sorted(bodies)


def test_the_java_client_reads_on_from_slaves_and_progress_is_right_afterwards(
    sets: list[ReplicaSet], namesrv: str, clients: Clients
) -> None:
    producer = clients.producer("java", namesrv, poll_ms=1000, timeout_ms=3000, wait=False)
    reader = clients.consumer("java", namesrv, "reader", TOPIC, wait=False, **QUICK_CONSUMER)
    producer.wait_until_ready()
    reader.wait_until_ready()
    before = [f"before {number}" for number in range(40)]
    producer.send_all(TOPIC, before)
    reader.wait_for_bodies(before)

    # A reader that pauses leaves a backlog that only the slaves can serve once the masters die.
    reader.process.signal(signal.SIGSTOP)
    behind = [f"behind {number}" for number in range(200)]
    producer.send_all(TOPIC, behind)
    for one in sets:
        wait_for_equal_logs(one.master.commitlog, one.slave.commitlog, FOLLOW_S)
        one.master.kill()
    reader.process.signal(signal.SIGCONT)
    # This one lives and dies while there are only slaves to tell how far it came.
    brief = clients.consumer("java", namesrv, "brief", TOPIC, **QUICK_CONSUMER)
    brief.wait_for_bodies([*before, *behind], CARRY_ON_S)
    reader.wait_for_bodies(behind, CARRY_ON_S)
    for one in sets:
        wait_for_progress(one.slave.address, "brief", TOPIC, QUEUES, CARRY_ON_S)
    brief.stop()

    start_all([one.master for one in sets])
    for one in sets:
        wait_for_progress(one.master.address, "brief", TOPIC, QUEUES, CARRY_ON_S)
    after = wait_until_both_take(producer, sets)
    after += [f"after {number}" for number in range(40)]
    producer.send_all(TOPIC, after[-40:])
    reader.wait_for_bodies(after, CARRY_ON_S)
    check_none_twice(reader, [*before, *behind, *after])
    for one in sets:
        wait_for_progress(one.master.address, "reader", TOPIC, QUEUES, CARRY_ON_S)
    reader.stop()

    # Heirs of both groups find exactly what is left to do.
    heirs = [
        clients.consumer("java", namesrv, group, TOPIC, wait=False, **QUICK_CONSUMER)
        for group in ("brief", "reader")
    ]
    for heir in heirs:
        heir.wait_until_ready()
    last = [f"last {number}" for number in range(8)]
    producer.send_all(TOPIC, last)
    for heir, rest in zip(heirs, ([*after, *last], last), strict=True):
        messages = heir.wait_for_bodies(rest, CARRY_ON_S)
        assert sorted(message.body or "" for message in messages) == sorted(rest)
