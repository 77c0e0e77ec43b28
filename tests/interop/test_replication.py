"""A master and a slave of different makes: equal logs, whatever happens to either of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.clusters.pair import Cluster, Make
from support.histories.commitlog import end_of_log, first_difference, wait_for_equal_logs
from support.peers.capture import RecordingProxy, recording
from support.peers.clients import Clients, SendFailed, StockProducer
from support.processes.admin import create_topic
from support.processes.rig import Processes
from support.suite.sizes import drawn_cases

# Small enough that a few large messages roll it.
SEGMENT_BYTES = 8 * 1024 * 1024
SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "diskMaxUsedSpaceRatio": 95,
}
# A Java slave connects on its second try (5 s) and reports 5 s after that.
FOLLOW_S = 40.0
PAIRS: list[tuple[Make, Make]] = [("trioha", "java"), ("java", "trioha")]


def pair(kind: str) -> pytest.MarkDecorator:
    """Draw one of the pairs for each commit."""
    return pytest.mark.parametrize(("master_make", "slave_make"), drawn_cases(kind, PAIRS))


def settings_of(make: Make) -> dict[str, object]:
    # A busy two-core machine must not look like a Java broker out of capacity.
    return {**SETTINGS, "waitTimeMillsInSendQueue": 20_000} if make == "java" else dict(SETTINGS)


def send_some(producer: StockProducer, name: str, count: int = 40) -> None:
    """Send small messages with all properties, and two far larger than a transfer frame."""
    for number in range(count):
        producer.send("T", f"{name} {number}", tags="TagA", keys=f"{name}-{number}")
    for size in (300_000, 3_500_000):
        producer.send("T", "", random_bytes=size)


@pair("follows")
def test_a_slave_of_the_other_make_follows_to_the_byte(
    master_make: Make, slave_make: Make, processes: Processes, clients: Clients
) -> None:
    cluster = Cluster(processes, master_make, slave_make=slave_make, settings={})
    cluster.start_namesrv()
    cluster.start_master("ASYNC_MASTER", settings=settings_of(master_make))
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("js", cluster.namesrv, compress_over=1 << 30)
    send_some(producer, "before")
    cluster.start_slave(settings=settings_of(slave_make))
    # Java serves an empty slave from its last segment on: the link comes before the next one.
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)
    # Rolls at least one segment while the slave follows.
    for part in range(4):
        send_some(producer, f"part {part}", 10)
    log = wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)
    assert log.offset > 2 * SEGMENT_BYTES

    # The slave restarts and takes up where it stopped.
    cluster.slave.stop()
    send_some(producer, "while the slave was down")
    cluster.slave.start()
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)

    # The slave is killed.
    cluster.slave.kill()
    send_some(producer, "while the slave was dead")
    cluster.slave.start()
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)

    # The master restarts, in order and then not.
    for end in (cluster.master.stop, cluster.master.kill):
        end()
        cluster.master.start()
        wait_until_accepted(producer)
        send_some(producer, "after the master's return")
        wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)


def wait_until_accepted(producer: StockProducer, status: str = "SEND_OK") -> None:
    deadline = time.monotonic() + FOLLOW_S
    while True:
        try:
            if producer.send("T", "probe").status == status:
                return
        except SendFailed:
            pass
        assert time.monotonic() < deadline, f"never {status}"
        time.sleep(0.2)


@pair("waits")
def test_a_sync_master_waits_for_a_slave_of_the_other_make(
    master_make: Make, slave_make: Make, processes: Processes, clients: Clients
) -> None:
    cluster = Cluster(processes, master_make, slave_make=slave_make, settings={})
    cluster.start_namesrv()
    cluster.start_master("SYNC_MASTER", settings=settings_of(master_make))
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("js", cluster.namesrv, compress_over=1 << 30)
    assert producer.send("T", "alone").status == "SLAVE_NOT_AVAILABLE"
    cluster.start_slave(settings=settings_of(slave_make))
    wait_until_accepted(producer)
    bodies = [f"safe {number}" for number in range(100)]
    assert {result.status for result in producer.send_all("T", bodies)} == {"SEND_OK"}
    assert producer.send("T", "", random_bytes=3_500_000).status == "SEND_OK"
    # The acknowledged messages are at the slave already.
    end = end_of_log(cluster.master.commitlog).offset
    assert first_difference(cluster.master.commitlog, cluster.slave.commitlog, end) is None
    cluster.slave.kill()
    wait_until_accepted(producer, "SLAVE_NOT_AVAILABLE")
    cluster.slave.start()
    wait_until_accepted(producer)
    wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)


@pair("cut")
def test_a_cut_link_is_taken_up_again(
    master_make: Make, slave_make: Make, processes: Processes, clients: Clients
) -> None:
    cluster = Cluster(processes, master_make, slave_make=slave_make, settings={})
    cluster.start_namesrv()
    cluster.start_master("ASYNC_MASTER", settings=settings_of(master_make))
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("js", cluster.namesrv, compress_over=1 << 30)
    assert cluster.master.ha_address is not None
    host, port = cluster.master.ha_address.split(":")
    with recording(RecordingProxy((host, int(port)), framed=False)) as link:
        settings = {**settings_of(slave_make), "haMasterAddress": link.address}
        cluster.start_slave(settings=settings)
        send_some(producer, "first")
        wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)
        for cut in range(2):
            numbers = [producer.begin("T", f"cut {cut} {number}") for number in range(300)]
            numbers.append(producer.begin("T", "", random_bytes=3_500_000))
            link.cut()
            for number in numbers:
                producer.outcome(number)
            wait_for_equal_logs(cluster.master.commitlog, cluster.slave.commitlog, FOLLOW_S)


@pair("tables")
def test_a_slave_of_the_other_make_has_the_masters_tables(
    master_make: Make, slave_make: Make, processes: Processes, clients: Clients
) -> None:
    cluster = Cluster(processes, master_make, slave_make=slave_make, settings={})
    cluster.start_namesrv()
    cluster.start_master("ASYNC_MASTER", settings=settings_of(master_make))
    create_topic(cluster.master.address, cluster.namesrv, "T")
    producer = clients.producer("js", cluster.namesrv)
    producer.send_all("T", [f"body {number}" for number in range(20)])
    producer.send("T", "delayed", delay_level=1)
    consumer = clients.consumer("js", cluster.namesrv, "group", "T")
    consumer.wait_for_count(21)
    consumer.stop()
    cluster.start_slave(settings=settings_of(slave_make))
    assert cluster.slave.store is not None
    config = cluster.slave.store / "config"
    wait_for_text(config / "topics.json", '"T"')
    wait_for_text(config / "subscriptionGroup.json", '"group"')
    wait_for_text(config / "consumerOffset.json", '"T@group"')
    wait_for_text(config / "delayOffset.json", "offsetTable")


def wait_for_text(path: Path, text: str, within_s: float = FOLLOW_S) -> None:
    deadline = time.monotonic() + within_s
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{path} has no {text}"
        time.sleep(0.2)
