"""Sends to a SYNC_MASTER whose slave is killed, comes back, or stops.

RocketMQ holds one send for 3 s after the kill and goes 5 s without an OK after the return.
"""

from __future__ import annotations

import signal

import pytest
from support.clusters.pair import Cluster
from support.histories.load import Load
from support.histories.load_history import LoadHistory
from support.processes.admin import create_topic
from support.processes.status import wait_in_sync, wait_level, wait_until

from trioha.wire.codes import ResponseCode

pytestmark = pytest.mark.slow

PATIENT: dict[str, object] = {"slaveTimeout": 600_000, "haHousekeepingInterval": 600_000}
"""Settings under which only what the master notices releases a send, and no deadline."""
OK, NO_SLAVE = ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE


def start_load(cluster: Cluster) -> Load:
    cluster.start("SYNC_MASTER", slave=True, settings=PATIENT)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    load = Load(cluster.master.address, "T", seed=3, senders=2, window=2, pace_s=0.002).start()
    load.wait_for_acked(100)
    return load


def wait_for_code(load: Load, code: ResponseCode) -> None:
    def told() -> object:
        last = {sent.code for sent in load.latest(100)}
        return last == {code} or str(last)

    wait_until(f"told {code.name}", told)


def check(cluster: Cluster, load: Load) -> None:
    """Check that no send waited for its timeout, and that what was answered OK is on both nodes."""
    load.stop()
    assert set(load.codes) == {OK, NO_SLAVE}, load
    wait_level(cluster.master, cluster.slave)
    history = LoadHistory("T")
    history.add(load.sent)
    history.check(cluster.master.commitlog)
    history.check_replica(cluster.slave.commitlog)


def test_no_send_is_held_up_when_the_slave_is_killed_or_comes_back(cluster: Cluster) -> None:
    load = start_load(cluster)
    cluster.slave.kill()
    wait_for_code(load, NO_SLAVE)
    cluster.slave.start()
    wait_for_code(load, OK)
    check(cluster, load)


def test_no_send_is_held_up_by_a_slave_that_stops_without_a_word(cluster: Cluster) -> None:
    """The link is alive, only nothing is acknowledged any more."""
    load = start_load(cluster)
    cluster.slave.process.signal(signal.SIGSTOP)
    wait_for_code(load, NO_SLAVE)
    cluster.slave.process.signal(signal.SIGCONT)
    wait_for_code(load, OK)
    check(cluster, load)
