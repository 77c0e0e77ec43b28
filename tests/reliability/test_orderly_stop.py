"""SIGTERM under load: what the sender was told is true, the slave is up to date, the exit is 0."""

from __future__ import annotations

import signal
import time

import pytest
from support.clusters.pair import Cluster
from support.histories.commitlog import end_of_log, stored_messages
from support.histories.load import Load
from support.histories.load_history import LoadHistory
from support.processes.admin import create_topic
from support.processes.status import (
    check_sound,
    journal,
    run_trioha,
    wait_for_event,
    wait_in_sync,
    wait_level,
)

from trioha.wire.codes import ResponseCode

pytestmark = pytest.mark.slow

PATIENT: dict[str, object] = {
    "shutdownGrace": 600_000,
    "slaveTimeout": 600_000,
    "haHousekeepingInterval": 600_000,
}
"""Settings under which no deadline comes within a test's patience."""


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_answers_what_it_stored_and_leaves_the_slave_level(
    cluster: Cluster, role: str, number: int
) -> None:
    cluster.start(role, slave=True)
    master, slave = cluster.master, cluster.slave
    create_topic(master.address, cluster.namesrv, "T")
    wait_in_sync(master)
    load = Load(master.address, "T", seed=number, senders=4, window=8).start()
    load.wait_for_acked(500)
    master.process.signal(number)
    # A name server knows before the connection closes, so that clients look elsewhere.
    cluster.namesrv_node.process.wait_for_line(  # type: ignore[union-attr]
        r"event=broker_unregistered .*id=0 .*"
    )
    assert master.process.wait() == 0
    load.stop()
    history = LoadHistory("T")
    history.add(load.sent)
    history.check(master.commitlog)
    # A producer without an answer may safely send again: its message is not there.
    unanswered = {sent.name for sent in load.sent if sent.code is None}
    stored = {message.name for message in stored_messages(master.commitlog, "T")}
    assert not unanswered & stored
    assert master.store is not None
    assert not (master.store / "abort").exists()
    names = [event.name for event in journal(master)]
    assert names[-1] == "node_stopped"
    assert "namesrv_unregistered" in names
    unregistered = names.index("namesrv_unregistered")
    assert names.index("node_stopping") < unregistered
    assert end_of_log(slave.commitlog) == end_of_log(master.commitlog)
    if role == "SYNC_MASTER":
        history.check_replica(slave.commitlog)

    master.start()
    recovery = wait_for_event(master, "recovery_finished", clean=True, records=0)
    assert recovery["cut_bytes"] == 0
    wait_level(master, slave)
    assert slave.stop() == 0
    assert master.stop() == 0
    for node in (master, slave):
        check_sound(node)
    diffed = run_trioha("log", "diff", str(master.store), str(slave.store))
    assert diffed.code == 0, diffed


def test_a_stopped_slave_holds_the_stop_up_no_longer_than_the_grace(cluster: Cluster) -> None:
    """The grace to the millisecond is in tests/services/test_broker.py, on a clock of its own."""
    cluster.start(slave=True, settings=PATIENT | {"shutdownGrace": 1500})
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    cluster.slave.process.signal(signal.SIGSTOP)
    load = Load(cluster.master.address, "T", seed=1).start()
    load.wait_for_acked(300)
    load.stop()
    # Nothing but the grace lets it go before the minutes that all else would wait for the slave.
    assert cluster.master.stop() == 0
    assert {sent.code for sent in load.sent} == {ResponseCode.SUCCESS}
    # Nothing is lost by it: the slave gets the rest at the next start.
    cluster.slave.process.signal(signal.SIGCONT)
    cluster.master.start()
    wait_level(cluster.master, cluster.slave)
    history = LoadHistory("T")
    history.add(load.sent)
    history.check(cluster.slave.commitlog)


def test_who_waits_for_a_stopped_slave_is_answered_by_the_stop(cluster: Cluster) -> None:
    settings = {"shutdownGrace": 1000, "slaveTimeout": 60_000}
    cluster.start("SYNC_MASTER", slave=True, settings=settings)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    cluster.slave.process.signal(signal.SIGSTOP)
    load = Load(cluster.master.address, "T", seed=1, senders=2, window=2).start()
    stored = cluster.master.commitlog
    deadline = time.monotonic() + 20
    while len(list(stored_messages(stored, "T"))) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert cluster.master.stop() == 0
    load.stop()
    codes = set(load.codes)
    assert ResponseCode.SUCCESS not in codes, load
    # Whichever comes first: the stop, or the slave's being taken for lost.
    told = (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
    waited = {sent.name for sent in load.sent if sent.code in told}
    held = {message.name for message in stored_messages(stored, "T")}
    assert waited == held, load
    cluster.slave.process.signal(signal.SIGCONT)


def test_a_second_signal_stops_at_once_and_costs_only_a_recovery(cluster: Cluster) -> None:
    cluster.start(slave=True, settings=PATIENT)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    cluster.slave.process.signal(signal.SIGSTOP)
    load = Load(cluster.master.address, "T", seed=2).start()
    load.wait_for_acked(300)
    load.stop()
    process = cluster.master.process
    process.signal(signal.SIGTERM)
    wait_for_event(cluster.master, "node_stopping")
    assert cluster.master.running, "it waits for its slave"
    process.signal(signal.SIGTERM)
    # Without the second signal it would wait for ten minutes of grace, and end with 0.
    assert process.wait() == 1
    process.wait_for_line("SIGTERM again: stopping at once")
    cluster.slave.process.signal(signal.SIGCONT)
    cluster.master.start()
    wait_level(cluster.master, cluster.slave)
    history = LoadHistory("T")
    history.add(load.sent)
    history.check(cluster.master.commitlog)
    for node in (cluster.master, cluster.slave):
        check_sound(node)
