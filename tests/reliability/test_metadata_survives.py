"""kill -9 under a stream of offset commits and new topics: what was acknowledged is there.

Rows D1 (offsets roll back) and D6 (topics missing) of the known failures, with real processes.
"""

from __future__ import annotations

import random
import time

import pytest
from support.admin import create_topic
from support.changes import Changes
from support.cluster import Cluster

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
