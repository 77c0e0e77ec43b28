"""kill -9 under a stream of offset commits and new topics: what was acknowledged is there.

Faults D1 and D6, offsets that roll back and topics that are missing, with real processes.
"""

from __future__ import annotations

import random
import signal
import time
from functools import partial

import pytest
from support.clusters.pair import Cluster
from support.histories.changes import Changes
from support.processes.admin import create_topic
from support.processes.rig import Node
from support.processes.status import node_status, run_trioha, wait_in_sync, wait_until

pytestmark = pytest.mark.slow

TOPIC = "T"
ROUNDS = 4


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_broker_has_every_commit_and_topic_that_it_acknowledged(
    cluster: Cluster, flush: str
) -> None:
    cluster.start("ASYNC_MASTER", settings={"flushDiskType": flush})
    create_topic(cluster.master.address, cluster.namesrv, TOPIC)
    topics: list[str] = []
    number = 0
    for seed in range(ROUNDS):
        changes = Changes(cluster.master.address, TOPIC, seed, first_offset=number)
        changes.start().wait_for_answers(200)
        time.sleep(random.Random(seed).uniform(0, 0.3))
        cluster.master.kill()
        changes.stop()
        cluster.master.start()
        topics += changes.topics
        changes.topics = topics
        changes.check(cluster.master.address)
        number = max(changes.sent.values())
    assert cluster.master.store is not None
    assert cluster.master.stop() == 0
    wal = cluster.master.store / "config" / "metadata.wal"
    assert list(wal.iterdir()) == [], "an orderly stop leaves everything in the tables' files"


def test_what_a_sync_master_acknowledged_is_on_its_slave_when_it_is_killed(
    cluster: Cluster,
) -> None:
    """Faults D1 and D6: the slave is what is left."""
    cluster.start("SYNC_MASTER", slave=True)
    master, slave = cluster.master, cluster.slave
    create_topic(master.address, cluster.namesrv, TOPIC)
    wait_until_told(slave)
    for seed in range(ROUNDS):
        changes = Changes(master.address, TOPIC, seed, first_offset=100_000 * (seed + 1))
        changes.start().wait_for_answers(300)
        time.sleep(random.Random(seed).uniform(0, 0.3))
        slave.process.signal(signal.SIGSTOP)  # what it has not taken yet it will not take
        master.kill()
        changes.stop()
        assert changes.acknowledged
        slave.process.signal(signal.SIGCONT)
        changes.check(slave.address)
        slave.kill()
        slave.start()
        changes.check(slave.address)
        master.start()
        wait_in_sync(master)
        wait_until_told(slave)


def is_all_there(changes: Changes, node: Node) -> object:
    return changes.missing_on(node.address) or True


def wait_until_told(slave: Node) -> None:
    """Wait until the master's changes reach the slave with the log."""

    def told() -> object:
        return node_status(slave)["slave"]["metadata"] == "stream"

    wait_until("told of changes", told)


def test_a_planned_switch_loses_no_commit_and_no_topic_even_where_nobody_waits_for_slaves(
    cluster: Cluster,
) -> None:
    cluster.start("ASYNC_MASTER", slave=True)
    nodes = [cluster.master, cluster.slave]
    create_topic(nodes[0].address, cluster.namesrv, TOPIC)
    for seed in range(ROUNDS):
        master, slave = nodes
        wait_in_sync(master)
        wait_until_told(slave)
        changes = Changes(master.address, TOPIC, seed, first_offset=100_000 * (seed + 1))
        changes.stops_at_refusal = True
        changes.start().wait_for_answers(300)
        done = run_trioha("failover", "broker-a", "--yes", "-n", cluster.namesrv)
        assert done.code == 0, done.out + done.err
        changes.stop()
        # The old master tells the new one what it took when it was a slave already.
        wait_until("all there", partial(is_all_there, changes, slave))
        nodes.reverse()
