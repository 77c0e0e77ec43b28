"""The stock clients on a master with a slave: safe sends, equal logs, reading through an outage."""

from __future__ import annotations

import signal
import time

import pytest
from support.clusters.pair import Cluster, Make
from support.histories.commitlog import wait_for_equal_logs
from support.peers.clients import KINDS, Clients, SendFailed, StockProducer
from support.processes.admin import create_topic, wait_for_progress
from support.suite.skips import skip_unless

# The C++ client polls routes every 30 s and finds the slave only then. Its threads try the dead
# master again without a pause and can hold the lock that a poll needs, so that a poll or two fail.
CARRY_ON_S = 135.0
STATUS_S = 30.0
PROBE_PERIOD_S = 0.2


def wait_for_status(producer: StockProducer, topic: str, status: str) -> list[str]:
    """Send until the answer has `status`; return the bodies that were stored on the way.

    A JavaScript producer is asked: the C++ client hides the status behind an exception, and takes
    the queue out of service for a while ("No route info of this topic").
    """
    stored: list[str] = []
    deadline = time.monotonic() + STATUS_S
    while True:
        body = f"probe {status} {len(stored)} {time.monotonic()}"
        try:
            result = producer.send(topic, body)
        except SendFailed:
            # Java's first send after a slave's death outlasts the client's patience.
            result = None
            time.sleep(PROBE_PERIOD_S)
        if result is not None:
            stored.append(body)
            if result.status == status:
                return stored
        assert time.monotonic() < deadline, f"never {status}, last {result}"


@pytest.mark.slow
def test_sync_master_and_slave_hold_the_same_bytes(own_cluster: Cluster, clients: Clients) -> None:
    cluster = own_cluster.start("SYNC_MASTER", slave=True, settings={"slaveTimeout": 10_000})
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producers = {kind: clients.producer(kind, cluster.namesrv) for kind in KINDS}
    stored = wait_for_status(producers["js"], "T", "SEND_OK")
    bodies = [f"body {number} " + "x" * (number * 37) for number in range(100)]
    for producer in producers.values():
        results = producer.send_all("T", bodies)
        # Bodies far beyond one transfer frame wait for all of their frames.
        results += [producer.send("T", "", random_bytes=size) for size in (100_000, 4_000_000)]
        assert {result.status for result in results} == {"SEND_OK"}
    # A sync master's answer means that the slave has it: no wait is needed beyond the last ack.
    log = wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, 5.0)
    assert log.records >= len(stored) + 2 * len(bodies) + 4


@pytest.mark.slow
def test_a_sync_master_says_when_its_slave_is_gone_and_when_it_is_back(
    own_cluster: Cluster, clients: Clients
) -> None:
    cluster = own_cluster.start("SYNC_MASTER", slave=True)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("js", cluster.namesrv)
    wait_for_status(producer, "T", "SEND_OK")
    cluster.slave.kill()
    wait_for_status(producer, "T", "SLAVE_NOT_AVAILABLE")
    cluster.slave.start()
    wait_for_status(producer, "T", "SEND_OK")
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, 10.0)


@pytest.mark.slow
def test_consumers_carry_on_from_the_slave_and_their_progress_is_right_when_the_master_returns(
    own_cluster: Cluster, clients: Clients
) -> None:
    cluster = own_cluster.start("ASYNC_MASTER", slave=True)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("js", cluster.namesrv)
    before = [f"before {number}" for number in range(40)]
    behind = [f"behind {number}" for number in range(200)]
    after = [f"after {number}" for number in range(40)]
    producer.send_all("T", before)
    readers = {
        kind: clients.consumer(kind, cluster.namesrv, f"group-{kind}", "T") for kind in KINDS
    }
    for reader in readers.values():
        reader.wait_for_bodies(before)

    # Stopped readers leave a backlog behind that only the slave can serve once the master is dead.
    for reader in readers.values():
        reader.process.signal(signal.SIGSTOP)
    producer.send_all("T", behind)
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, 15.0)
    cluster.master.kill()
    for reader in readers.values():
        reader.process.signal(signal.SIGCONT)
    deadline = time.monotonic() + CARRY_ON_S
    for reader in readers.values():
        reader.wait_for_bodies(behind, deadline - time.monotonic())

    cluster.master.start()
    wait_for_status(producer, "T", "SEND_OK")
    producer.send_all("T", after)
    deadline = time.monotonic() + CARRY_ON_S
    for kind, reader in readers.items():
        reader.wait_for_bodies(after, deadline - time.monotonic())
        bodies = [body for body in reader.bodies if body in {*before, *behind, *after}]
        repeated = len(bodies) - len(set(bodies))
        assert repeated == 0, f"{kind}: {repeated} deliveries came twice"

    # The groups' progress comes to the master as its clients find it again, so that an heir of the
    # group finds nothing left to do.
    for kind, reader in readers.items():
        wait_for_progress(cluster.master.address, f"group-{kind}", "T", 4, CARRY_ON_S)
        reader.stop()
    last = [f"last {number}" for number in range(8)]
    heirs = [clients.consumer(kind, cluster.namesrv, f"group-{kind}", "T") for kind in KINDS]
    producer.send_all("T", last)
    for heir in heirs:
        messages = heir.wait_for_bodies(last)
        assert sorted(message.body or "" for message in messages) == sorted(last)


@pytest.mark.slow
def test_progress_made_at_the_slave_comes_to_the_returned_master(
    own_cluster: Cluster, clients: Clients, make: Make
) -> None:
    skip_unless(
        make != "java",
        "a Java slave keeps such progress to itself, and forgets it (fault D1)",
    )
    cluster = own_cluster.start("ASYNC_MASTER", slave=True)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("cpp", cluster.namesrv)
    bodies = [f"body {number}" for number in range(100)]
    producer.send_all("T", bodies)
    reader = clients.consumer("js", cluster.namesrv, "group", "T")
    reader.wait_for_bodies(bodies[:1])
    reader.stop()
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, 15.0)
    cluster.master.kill()
    # This reader lives and dies while there is only the slave to tell how far it came.
    reader = clients.consumer("js", cluster.namesrv, "group", "T")
    wait_for_progress(cluster.slave.address, "group", "T", 4, CARRY_ON_S)
    reader.stop()
    cluster.master.start()
    wait_for_progress(cluster.master.address, "group", "T", 4, CARRY_ON_S)
