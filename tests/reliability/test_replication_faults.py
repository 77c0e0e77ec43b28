"""Known faults of master-slave replication (family C) where they show: on real processes.

What needs no process is tested on memory streams in tests/ha and tests/services;
faults C3, C4, C5 and C7 are there alone.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from support.clusters.pair import Cluster
from support.histories.commitlog import stored_messages
from support.histories.load import Load, Mix
from support.histories.load_history import LoadHistory
from support.processes.admin import create_topic, request
from support.processes.faults import TINY_FILES, fill_disk, small_disk
from support.processes.rig import Node, Processes, forget_owner, trioha_broker
from support.processes.status import (
    check_sound,
    journal,
    node_status,
    run_trioha,
    wait_for_event,
    wait_in_sync,
    wait_level,
    wait_until,
)

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.store.inspect import diff_logs
from trioha.wire.codes import ResponseCode

pytestmark = pytest.mark.slow

MIB = 1 << 20
PATIENT: dict[str, object] = {"slaveTimeout": 600_000, "haHousekeepingInterval": 600_000}
"""Settings under which only what its master notices releases a put within a test's patience."""
RELEASED = {ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE}
"""Codes of released puts. Never FLUSH_SLAVE_TIMEOUT: no put's own deadline came."""


def ha_status(cluster: Cluster) -> list[dict[str, Any]]:
    done = run_trioha("ha", "status", "-n", cluster.namesrv, "-o", "json")
    brokers: list[dict[str, Any]] = json.loads(done.out)["brokers"]
    return brokers


def send_one(node: Node, body: bytes = b"one") -> int:
    """Send one message and return the answer's code."""
    command = send_command("g", Message("T", body), "1", MessageQueue("T", "", 0), 1)
    return request(node.address, command).code


def equal(master: Node, slave: Node) -> None:
    for node in (master, slave):
        check_sound(node)
    report = diff_logs(master.commitlog, slave.commitlog)
    assert report.equal, report


def test_a_slave_with_one_message_more_is_master_by_its_newer_term_and_not_in_a_loop(
    cluster: Cluster, processes: Processes
) -> None:
    """Fault C1.

    The node with the newest term is followed, whatever the configurations say: no message is
    given up, and no node is refused for ever.
    """
    cluster.start(slave=True)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    load = Load(cluster.master.address, "T", seed=1).start()
    load.wait_for_acked(100)
    load.stop()
    assert set(load.codes) == {ResponseCode.SUCCESS}, load
    wait_level(cluster.master, cluster.slave)
    cluster.master.stop()
    cluster.slave.stop()
    # The slave's store has a life of its own for the length of one message.
    forget_owner(cluster.slave.store)
    usurper = trioha_broker(
        processes,
        "127.0.0.1:1",
        name="usurper",
        store=cluster.slave.store,
        settings=cluster.settings,
    ).start()
    assert send_one(usurper) == ResponseCode.SUCCESS
    end = node_status(usurper)["max_phy_offset"]
    assert usurper.stop() == 0
    forget_owner(cluster.slave.store)

    cluster.master.start()
    cluster.slave.start()
    wait_for_event(cluster.master, "fenced")
    wait_in_sync(cluster.slave)
    status = node_status(cluster.master)
    assert (status["standing"], status["max_phy_offset"]) == ("SLAVE", end)
    assert [term["home_id"] for term in status["epochs"]] == [0, 0]
    assert send_one(cluster.slave) == ResponseCode.SUCCESS
    wait_level(cluster.slave, cluster.master)
    assert diff_logs(cluster.master.commitlog, cluster.slave.commitlog).equal
    held = {
        message.name: message.place for message in stored_messages(cluster.slave.commitlog, "T")
    }
    lost = [sent for sent in load.sent if sent.stored and sent.name not in held]
    assert not lost, lost[:3]
    assert len(journal(cluster.master, "ha_refused")) <= 3


def test_a_fresh_slave_of_a_master_of_many_segments_gets_everything(cluster: Cluster) -> None:
    """Fault C2."""
    cluster.start()
    create_topic(cluster.master.address, cluster.namesrv, "T")
    load = Load(cluster.master.address, "T", seed=2, mix=Mix(large_chance=0.2)).start()
    wait_until("five segments", lambda: len(list(cluster.master.commitlog.iterdir())) >= 5)
    load.stop()
    assert set(load.codes) == {ResponseCode.SUCCESS}, load
    history = LoadHistory("T")
    history.add(load.sent)
    cluster.start_slave()
    wait_level(cluster.master, cluster.slave)
    equal(cluster.master, cluster.slave)
    history.check(cluster.slave.commitlog)
    assert node_status(cluster.slave)["min_phy_offset"] == 0


def test_an_emptied_slave_of_an_idle_master_is_filled_again(cluster: Cluster) -> None:
    """Fault C2."""
    cluster.start(slave=True)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    load = Load(cluster.master.address, "T", seed=3).start()
    load.wait_for_acked(2000)
    load.stop()
    assert set(load.codes) == {ResponseCode.SUCCESS}, load
    wait_level(cluster.master, cluster.slave)
    cluster.slave.kill()
    assert cluster.slave.store is not None
    cluster.slave.store.rename(cluster.slave.store.with_name("gone"))
    cluster.slave.start()
    wait_level(cluster.master, cluster.slave)
    equal(cluster.master, cluster.slave)


def test_messages_of_one_mebibyte_time_nobody_out(processes: Processes) -> None:
    """Fault C6."""
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    large = Mix(large_chance=1.0, large_bytes_min=MIB, large_bytes_max=MIB, batch_chance=0.0)
    loads = [
        Load(cluster.master.address, "T", seed=1, label="large", senders=2, window=2, mix=large),
        Load(cluster.master.address, "T", seed=2, label="small", mix=Mix(large_chance=0.0)),
    ]
    for load in loads:
        load.start()
    loads[0].wait_for_acked(60)
    loads[1].wait_for_acked(5000)
    for load in loads:
        load.stop()
        # A put that had waited for slaveTimeout would have been answered FLUSH_SLAVE_TIMEOUT.
        assert set(load.codes) == {ResponseCode.SUCCESS}, load
    wait_level(cluster.master, cluster.slave)
    equal(cluster.master, cluster.slave)


def test_a_slave_whose_disk_is_full_holds_up_no_sender_and_recovers(
    processes: Processes, tmp_path: Path
) -> None:
    """Fault C8."""
    with small_disk(tmp_path / "small", 24 * MIB) as disk:
        cluster = Cluster(processes, settings=TINY_FILES | PATIENT).start("SYNC_MASTER")
        create_topic(cluster.master.address, cluster.namesrv, "T")
        cluster.slave_node = trioha_broker(
            processes,
            cluster.namesrv,
            broker_id=1,
            role="SLAVE",
            store=disk / "store",
            settings=TINY_FILES,
        ).start()
        wait_in_sync(cluster.master)
        load = Load(cluster.master.address, "T", seed=8, senders=2, window=2, pace_s=0.002).start()
        load.wait_for_acked(200)
        filler = fill_disk(disk)

        def all_unavailable() -> object:
            last = {sent.code for sent in load.latest(100)}
            return last == {ResponseCode.SLAVE_NOT_AVAILABLE} or str(last)

        wait_until("refused for want of a slave", all_unavailable)
        assert {sent.code for sent in load.sent_from_now(100)} <= RELEASED
        alarm = wait_for_event(cluster.slave, "ha_disconnected")
        assert "our own log takes no more" in alarm["reason"], alarm
        shown = {broker["id"]: broker for broker in ha_status(cluster)}[1]["slave"]
        assert "our own log takes no more" in shown["last_error"], shown
        filler.unlink()
        wait_until("in sync again", lambda: load.latest(1)[0].code == ResponseCode.SUCCESS)
        load.wait_for_more(100)
        load.stop()
        assert set(load.codes) == RELEASED, load
        wait_level(cluster.master, cluster.slave)
        equal(cluster.master, cluster.slave)
        history = LoadHistory("T")
        history.add(load.sent)
        history.check(cluster.master.commitlog)
        history.check_replica(cluster.slave.commitlog)
        cluster.slave.stop()


def test_a_slave_that_stops_answering_is_left_behind_and_taken_back(cluster: Cluster) -> None:
    """Fault C8."""
    cluster.start("SYNC_MASTER", slave=True, settings=PATIENT)
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    load = Load(cluster.master.address, "T", seed=9, senders=2, window=2, pace_s=0.002).start()
    load.wait_for_acked(100)
    cluster.slave.process.signal(signal.SIGSTOP)

    def all_unavailable() -> object:
        last = {sent.code for sent in load.latest(100)}
        return last == {ResponseCode.SLAVE_NOT_AVAILABLE} or str(last)

    wait_until("refused for want of a slave", all_unavailable)
    assert {s.code for s in load.sent_from_now(100)} == {ResponseCode.SLAVE_NOT_AVAILABLE}
    assert node_status(cluster.master)["puts_waiting"] == 0

    def told() -> object:
        events = journal(cluster.master, "ha_in_sync")
        return any(not event.fields["in_sync"] for event in events) or "not in the journal"

    wait_until("told that it is out of sync", told)
    cluster.slave.process.signal(signal.SIGCONT)
    wait_until("in sync again", lambda: load.latest(1)[0].code == ResponseCode.SUCCESS)
    load.stop()
    assert set(load.codes) == RELEASED, load
    wait_level(cluster.master, cluster.slave)
    equal(cluster.master, cluster.slave)
    history = LoadHistory("T")
    history.add(load.sent)
    history.check(cluster.master.commitlog)
    history.check_replica(cluster.slave.commitlog)
