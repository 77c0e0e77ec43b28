"""A trioha group in DLEDGER mode under the clients and tools of the Java world.

Java's client, Go's, and mqadmin 4.9.8: they know leaders and followers as master and slaves, and no
client is restarted when the leader dies.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from support.clusters.meeting import wait_for_brokers
from support.clusters.pair import SMALL_FILES, Make
from support.clusters.raft_group import RaftGroup, raft_group
from support.peers.clients import Clients, Kind, SendFailed, StockConsumer, StockProducer
from support.peers.java import java_namesrv
from support.peers.java_tools import QUICK_CONSUMER, MqAdmin, eventually, fields, mq_admin, table
from support.processes.admin import put_topic, wait_for_progress
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv
from support.suite.sizes import drawn_cases

GROUP, PAIR = "broker-raft", "broker-pair"
CLUSTER = "DefaultCluster"
TOPIC = "T"
QUEUES = 4
# Go's client asks for routes every thirty seconds, and cannot be told otherwise.
CARRY_ON_S = 120.0
PROGRESS_S = 60.0
PROBE_PERIOD_S = 0.2
QUICK_PRODUCER: dict[str, Any] = {"poll_ms": 1000, "timeout_ms": 3000}
OPTIONS: dict[Kind, tuple[dict[str, Any], dict[str, Any]]] = {
    "java": (QUICK_PRODUCER, QUICK_CONSUMER),
    "go": ({"timeout_ms": 3000}, {}),
}


@pytest.fixture
def group(processes: Processes) -> RaftGroup:
    made = raft_group(processes, trioha_namesrv(processes).start().address, name=GROUP)
    made.start()
    made.wait_for_followers()
    made.create_topic(TOPIC, QUEUES)
    return made


@attrs.define
class Talk:
    """A producer that goes on sending, and the messages that it was told are stored."""

    producer: StockProducer
    stored: list[str] = attrs.Factory(list)
    brokers: set[str | None] = attrs.Factory(set)
    count: int = 0

    def say(self, count: int) -> None:
        """Send so many messages; each must be stored."""
        for _ in range(count):
            self._send()

    def say_until_stored(self, broker: str = "") -> None:
        """Send until a message is stored (by that broker): the next leader takes it."""
        deadline = time.monotonic() + CARRY_ON_S
        self.brokers.clear()
        while not self.brokers if not broker else broker not in self.brokers:
            try:
                self._send()
            except SendFailed:
                time.sleep(PROBE_PERIOD_S)
            assert time.monotonic() < deadline, f"only {self.brokers} take messages"

    def _send(self) -> None:
        body = f"message {self.count}"
        self.count += 1
        sent = self.producer.send(TOPIC, body)
        assert sent.status == "SEND_OK"
        self.stored.append(body)
        self.brokers.add(sent.broker)


def check_all_heard(consumer: StockConsumer, stored: Iterable[str]) -> None:
    """Check that every stored message arrives; after a kill one may arrive twice."""
    consumer.wait_for_bodies(stored, CARRY_ON_S)


def revive(group: RaftGroup, node: Node) -> None:
    node.start()
    group.wait_for_followers()


@pytest.mark.parametrize("kind", drawn_cases("kills of leaders", ["java", "go"]))
def test_a_client_goes_through_kills_of_leaders_without_a_restart(
    group: RaftGroup, clients: Clients, kind: Kind
) -> None:
    for_producer, for_consumer = OPTIONS[kind]
    producer = clients.producer(kind, group.namesrv, **for_producer, wait=False)
    consumer = clients.consumer(kind, group.namesrv, "readers", TOPIC, **for_consumer, wait=False)
    producer.wait_until_ready()
    consumer.wait_until_ready()
    talk = Talk(producer)
    talk.say(40)
    check_all_heard(consumer, talk.stored)

    for _ in range(2 if kind == "java" else 1):
        leader = group.wait_for_leader()
        leader.kill()
        talk.say_until_stored()
        talk.say(40)
        assert group.wait_for_leader() is not leader
        check_all_heard(consumer, talk.stored)
        revive(group, leader)
    leader = group.wait_for_leader()
    wait_for_progress(leader.address, "readers", TOPIC, QUEUES, PROGRESS_S)

    # Progress is in the log: the next leader knows it to the last message, and repeats none.
    consumer.stop()
    leader.kill()
    talk.say_until_stored()
    heard_before = set(talk.stored[:-1])
    heir = clients.consumer(kind, group.namesrv, "readers", TOPIC, **for_consumer)
    check_all_heard(heir, talk.stored[-1:])
    assert not heard_before & set(heir.bodies)


@pytest.fixture
def admin(clients: Clients) -> MqAdmin:
    return mq_admin(clients)


@pytest.mark.parametrize("make", drawn_cases("sane cluster", ["trioha", "java"]))
def test_mqadmin_sees_a_sane_cluster(
    processes: Processes, clients: Clients, admin: MqAdmin, make: Make
) -> None:
    """The name server is of either make. The cluster is checked before a leader dies and after."""
    namesrv = (java_namesrv if make == "java" else trioha_namesrv)(processes).start().address
    group = raft_group(processes, namesrv, name=GROUP)
    group.start()
    group.wait_for_followers()
    group.create_topic(TOPIC, QUEUES)
    consumer = clients.consumer("java", namesrv, "readers", TOPIC, wait=False, **QUICK_CONSUMER)
    talk = Talk(clients.producer("java", namesrv, **QUICK_PRODUCER))
    consumer.wait_until_ready()
    talk.say(8 * QUEUES)
    check_all_heard(consumer, talk.stored)
    _check_cluster(admin, group, talk)

    lost = group.wait_for_leader()
    lost.kill()
    talk.say_until_stored()
    talk.say(2 * QUEUES)
    check_all_heard(consumer, talk.stored)
    # The dead member is gone from the route; the new leader has its place.
    _check_cluster(admin, group, talk)
    revive(group, lost)
    _check_cluster(admin, group, talk)


def _check_cluster(admin: MqAdmin, group: RaftGroup, talk: Talk) -> None:
    leader = group.wait_for_leader()
    namesrv = group.namesrv
    ids = {leader.address: 0} | {
        node.address: number + 1
        for number, node in enumerate(group.nodes)
        if node.running and node is not leader
    }
    rows = table(admin.run("clusterList", "-n", namesrv))
    assert sorted(row[:5] for row in rows) == sorted(
        [CLUSTER, GROUP, str(broker_id), address, "V4_9_8"] for address, broker_id in ids.items()
    )
    for row in rows:
        assert 0 <= float(row[-2]) < 1, "hours since the oldest message"
    said = fields(admin.run("brokerStatus", "-n", namesrv, "-b", leader.address))
    assert said["brokerVersionDesc"] == "V4_9_8"
    assert int(said["commitLogMaxOffset"]) > len(talk.stored) * 150
    for follower in (node for node in group.nodes if node.running and node is not leader):
        admin_says = fields(admin.run("brokerStatus", "-n", namesrv, "-b", follower.address))
        assert int(admin_says["commitLogMaxOffset"]) > len(talk.stored) * 150

    rows = table(admin.run("topicStatus", "-n", namesrv, "-t", TOPIC))
    assert [row[:3] for row in rows] == [[GROUP, str(queue), "0"] for queue in range(QUEUES)]
    # An unknown outcome may have been stored all the same.
    total = sum(int(row[3]) for row in rows)
    assert len(talk.stored) <= total <= talk.count

    def left() -> list[str]:
        printed = admin.consumer_progress(namesrv, "readers")
        return [row[5] for row in table(printed) if row[:2] == [TOPIC, GROUP]]

    eventually(left, ["0"] * QUEUES, PROGRESS_S)


@pytest.mark.parametrize("make", drawn_cases("group and pair", ["trioha", "java"]))
def test_a_group_and_a_pair_share_a_name_server(
    processes: Processes, clients: Clients, admin: MqAdmin, make: Make
) -> None:
    """Some replica sets master-slave, some DLEDGER: one cluster for clients."""
    namesrv = (java_namesrv if make == "java" else trioha_namesrv)(processes).start().address
    group = raft_group(processes, namesrv, name=GROUP)
    master, slave = (
        trioha_broker(
            *(processes, namesrv),
            name=PAIR,
            broker_id=broker_id,
            role=role,
            settings=SMALL_FILES,
        )
        for broker_id, role in enumerate(("SYNC_MASTER", "SLAVE"))
    )
    for node in (master, slave):
        node.start()
    leader = group.start()
    group.wait_for_followers()
    for node in (master, leader):
        put_topic(node.address, TOPIC, QUEUES)
    wait_for_brokers(namesrv, TOPIC, {GROUP, PAIR})
    consumer = clients.consumer("java", namesrv, "readers", TOPIC, wait=False, **QUICK_CONSUMER)
    talk = Talk(clients.producer("java", namesrv, **QUICK_PRODUCER))
    consumer.wait_until_ready()
    talk.say_until_stored(PAIR)
    talk.say_until_stored(GROUP)
    talk.say(40)
    assert talk.brokers == {GROUP, PAIR}
    check_all_heard(consumer, talk.stored)
    _check_ids(admin, namesrv, {GROUP: 3, PAIR: 2})

    # The pair does not notice that the group's leader dies; the group comes back by itself.
    leader.kill()
    talk.say_until_stored(PAIR)
    talk.say_until_stored(GROUP)
    check_all_heard(consumer, talk.stored)
    revive(group, leader)
    _check_ids(admin, namesrv, {GROUP: 3, PAIR: 2})

    # And the group goes on while the pair has no master.
    master.kill()
    talk.say_until_stored(GROUP)
    check_all_heard(consumer, talk.stored)


def _check_ids(admin: MqAdmin, namesrv: str, members: dict[str, int]) -> None:
    """Check that each replica set has its size and one master."""
    rows = table(admin.run("clusterList", "-n", namesrv))
    for name, size in members.items():
        ids = sorted(int(row[2]) for row in rows if row[1] == name)
        assert len(ids) == size
        assert ids.count(0) == 1, ids
