"""Links between the makes that go wrong: the journal and `ha status` say in words what it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.clusters.pair import SMALL_FILES, Make
from support.histories.commitlog import end_of_log, wait_for_equal_logs
from support.peers.capture import RecordingProxy, recording
from support.peers.clients import Clients
from support.peers.java import java_broker
from support.processes.admin import put_topic, wait_for_route
from support.processes.rig import (
    Node,
    Processes,
    forget_owner,
    trioha_broker,
    trioha_command,
    trioha_namesrv,
)
from support.processes.status import wait_for_event
from support.suite.sizes import drawn_cases

from trioha.cli.output import size_in_words

BROKERS = {"trioha": trioha_broker, "java": java_broker}
FOLLOW_S = 40.0
START_S = 60.0
STATUS_S = 30.0


def ha_status(namesrv: str) -> str:
    done = subprocess.run(
        trioha_command("ha", "status", "-n", namesrv),
        capture_output=True,
        text=True,
        timeout=STATUS_S,
        check=False,
    )
    return done.stdout + done.stderr


def fill(clients: Clients, namesrv: str, broker: Node, topic: str, count: int) -> None:
    put_topic(broker.address, topic)
    wait_for_route(namesrv, topic)
    producer = clients.producer("js", namesrv)
    for result in producer.send_all(topic, [f"{topic} {number}" for number in range(count)]):
        assert result.status == "SEND_OK"
    producer.stop()


@pytest.mark.parametrize(
    ("master_make", "slave_make"),
    drawn_cases("longer log", [("trioha", "java"), ("java", "trioha")]),
)
def test_a_slave_with_a_longer_log_is_told_of_in_words(
    master_make: Make, slave_make: Make, processes: Processes, clients: Clients, tmp_path: Path
) -> None:
    namesrv = trioha_namesrv(processes).start().address
    # A broker that was once a master of its own becomes a slave without having been emptied.
    stray_store = tmp_path / "stray"
    stray = BROKERS[slave_make](
        processes, namesrv, name="stray", store=stray_store, settings=SMALL_FILES
    ).start()
    fill(clients, namesrv, stray, "Stray", 40)
    stray.stop()
    forget_owner(stray_store)
    end = end_of_log(stray_store / "commitlog").offset
    master = BROKERS[master_make](processes, namesrv, settings=SMALL_FILES).start()
    fill(clients, namesrv, master, "T", 5)
    slave = BROKERS[slave_make](
        processes, namesrv, broker_id=1, role="SLAVE", store=stray_store, settings=SMALL_FILES
    ).start()
    ours = master if master_make == "trioha" else slave
    line = ours.process.wait_for_line("event=ha_refused", FOLLOW_S).string
    status = ha_status(namesrv)
    if master_make == "trioha":
        words = f"slave reports offset {end}, beyond our end"
        assert "empty the slave's store" in line
    else:
        # It never says so on the wire: it hangs up at the second report.
        words = f"the master hung up on our report of offset {end}: perhaps its log ends before"
    assert words in line
    assert words in status
    # Nothing was written over, and the master goes on by itself.
    assert end_of_log(stray_store / "commitlog").offset == end
    fill(clients, namesrv, master, "T", 1)


def test_a_java_master_gone_in_the_middle_of_a_frame_is_followed_again(
    processes: Processes, clients: Clients
) -> None:
    """Java's frames are far larger than ours, too: 2 MiB, where 32 KiB is usual."""
    namesrv = trioha_namesrv(processes).start().address
    settings = {**SMALL_FILES, "haTransferBatchSize": 2 << 20}
    master = java_broker(processes, namesrv, settings=settings).start()
    fill(clients, namesrv, master, "T", 1)
    producer = clients.producer("js", namesrv, compress_over=1 << 30)
    for _ in range(3):
        assert producer.send("T", "", random_bytes=3_000_000).status == "SEND_OK"
    assert master.ha_address is not None
    host, port = master.ha_address.split(":")
    with recording(RecordingProxy((host, int(port)), framed=False, cut_after=3_000_000)) as link:
        slave = trioha_broker(
            processes,
            namesrv,
            broker_id=1,
            role="SLAVE",
            settings={**SMALL_FILES, "haMasterAddress": link.address},
        ).start()
        line = slave.process.wait_for_line("event=ha_disconnected", FOLLOW_S).string
        assert "bytes before the end of a frame" in line
        wait_for_equal_logs(master.commitlog, slave.commitlog, FOLLOW_S)
        assert "TRANSFER" in ha_status(namesrv)
    assert link.cut_after is None


def fill_large(clients: Clients, namesrv: str, broker: Node, topic: str, count: int) -> None:
    """Send messages of 3 MB, which no client compresses."""
    put_topic(broker.address, topic)
    wait_for_route(namesrv, topic)
    producer = clients.producer("js", namesrv, compress_over=1 << 30)
    for _ in range(count):
        assert producer.send(topic, "", random_bytes=3_000_000).status == "SEND_OK"
    producer.stop()


@pytest.mark.parametrize("slave_release", drawn_cases("next release", ["5", None]))
def test_a_broker_of_the_next_major_release_replicates_with_ours(
    slave_release: str | None, processes: Processes, clients: Clients
) -> None:
    namesrv = trioha_namesrv(processes).start().address
    ours_leads = slave_release is not None

    def theirs(**options: Any) -> Node:
        return java_broker(processes, namesrv, settings=SMALL_FILES, release="5", **options)

    def ours(**options: Any) -> Node:
        return trioha_broker(processes, namesrv, settings=SMALL_FILES, **options)

    master = (ours if ours_leads else theirs)().start(START_S)
    fill(clients, namesrv, master, "T", 20)
    slave = (theirs if ours_leads else ours)(broker_id=1, role="SLAVE").start(START_S)
    wait_for_equal_logs(master.commitlog, slave.commitlog, FOLLOW_S)
    # It goes on when the slave comes back.
    slave.kill()
    fill(clients, namesrv, master, "T", 20)
    slave.start(START_S)
    wait_for_equal_logs(master.commitlog, slave.commitlog, FOLLOW_S)
    status = ha_status(namesrv)
    assert "RocketMQ V5_1_4" in status
    assert "All is well." in status


def parted_stores(
    processes: Processes, clients: Clients, namesrv: str, slave_make: Make, store: Path
) -> int:
    """A slave's store with fewer bytes than the master will have, and other ones; its end."""
    stray = BROKERS[slave_make](
        processes, namesrv, name="stray", store=store, settings=SMALL_FILES
    ).start()
    fill(clients, namesrv, stray, "AnotherTopicOfAnotherLength", 3)
    stray.stop()
    forget_owner(store)
    return end_of_log(store / "commitlog").offset


def test_our_slave_with_other_bytes_is_refused_and_follows_once_emptied(
    processes: Processes, clients: Clients, tmp_path: Path
) -> None:
    namesrv = trioha_namesrv(processes).start().address
    store = tmp_path / "parted"
    end = parted_stores(processes, clients, namesrv, "trioha", store)
    before = (store / "commitlog" / f"{0:020}").read_bytes()[:end]
    master = java_broker(processes, namesrv, settings=SMALL_FILES).start()
    fill(clients, namesrv, master, "T", 40)
    slave = trioha_broker(
        processes, namesrv, broker_id=1, role="SLAVE", store=store, settings=SMALL_FILES
    ).start()
    words = f"no record begins at offset {end} of the master's log"
    assert words in wait_for_event(slave, "ha_refused", FOLLOW_S)["reason"]
    status = ha_status(namesrv)
    assert words in status
    assert size_in_words(end_of_log(master.commitlog).offset - end) in status
    # Not a byte was appended, and the node serves on.
    assert end_of_log(store / "commitlog").offset == end
    assert (store / "commitlog" / f"{0:020}").read_bytes()[:end] == before
    slave.stop()
    shutil.rmtree(store)
    slave.start()
    wait_for_equal_logs(master.commitlog, slave.commitlog, FOLLOW_S)


def test_a_java_slave_with_other_bytes_is_doubted_in_words(
    processes: Processes, clients: Clients, tmp_path: Path
) -> None:
    """The slave reports only the end of its log: that is all that can be seen of it."""
    namesrv = trioha_namesrv(processes).start().address
    store = tmp_path / "parted"
    end = parted_stores(processes, clients, namesrv, "java", store)
    master = trioha_broker(processes, namesrv, settings=SMALL_FILES).start()
    fill(clients, namesrv, master, "T", 40)
    java_broker(
        processes, namesrv, broker_id=1, role="SLAVE", store=store, settings=SMALL_FILES
    ).start()
    words = f"the slave's log ends at {end}, within one of our records"
    assert words in wait_for_event(master, "ha_doubtful", FOLLOW_S)["reason"]
    assert words in ha_status(namesrv)


def test_a_java_master_with_huge_batches_is_refused_until_they_are_smaller(
    processes: Processes, clients: Clients
) -> None:
    namesrv = trioha_namesrv(processes).start().address
    huge = {**SMALL_FILES, "haTransferBatchSize": 64 << 20}
    master = java_broker(processes, namesrv, settings=huge).start()
    fill_large(clients, namesrv, master, "T", 7)
    slave = trioha_broker(
        processes, namesrv, broker_id=1, role="SLAVE", settings=SMALL_FILES
    ).start()
    words = "haTransferBatchSize of the master is too large"
    assert words in wait_for_event(slave, "ha_refused", FOLLOW_S)["reason"]
    assert words in ha_status(namesrv)
    master.stop()
    port = int(master.address.rpartition(":")[2])
    cured = java_broker(processes, namesrv, port=port, settings=SMALL_FILES).start()
    wait_for_equal_logs(cured.commitlog, slave.commitlog, FOLLOW_S)
    assert "TRANSFER" in ha_status(namesrv)


def test_our_batches_fit_a_java_slave_s_buffer_whatever_is_configured(
    processes: Processes, clients: Clients
) -> None:
    """Java's slave reads into 4 MiB and waits for ever for the rest of a larger frame."""
    namesrv = trioha_namesrv(processes).start().address
    settings = {**SMALL_FILES, "haTransferBatchSize": 64 << 20}
    master = trioha_broker(processes, namesrv, settings=settings).start()
    fill_large(clients, namesrv, master, "T", 7)
    slave = java_broker(processes, namesrv, broker_id=1, role="SLAVE", settings=SMALL_FILES).start()
    wait_for_equal_logs(master.commitlog, slave.commitlog, FOLLOW_S)
    assert "All is well." in ha_status(namesrv)


def test_a_java_master_that_has_deleted_what_we_lack_is_told_of_in_words(
    processes: Processes, clients: Clients, tmp_path: Path
) -> None:
    """The master sends heartbeats for ever and not a byte: only the two ends of the log show it."""
    namesrv = trioha_namesrv(processes).start().address
    settings = {**SMALL_FILES, "mappedFileSizeCommitLog": 8 << 20}
    master = java_broker(processes, namesrv, settings=settings).start()
    fill_large(clients, namesrv, master, "T", 7)
    master.stop()
    first, *_, last = sorted(master.commitlog.iterdir())
    assert first != last
    first.unlink()
    master.start()
    store = tmp_path / "late"
    stray = trioha_broker(processes, namesrv, name="stray", store=store, settings=settings).start()
    fill(clients, namesrv, stray, "Stray", 3)
    stray.stop()
    forget_owner(store)
    end = end_of_log(store / "commitlog").offset
    slave = trioha_broker(
        processes, namesrv, broker_id=1, role="SLAVE", store=store, settings=settings
    ).start()
    wait_for_event(slave, "ha_connected", FOLLOW_S)
    status = ha_status(namesrv)
    assert f"its log ends at {end}, its master's begins at {8 << 20}" in status
    assert end_of_log(store / "commitlog").offset == end
