"""Links between the makes that go wrong: the journal and `ha status` say in words what it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.admin import put_topic, wait_for_route
from support.capture import RecordingProxy, recording
from support.clients import Clients
from support.cluster import SMALL_FILES, Make
from support.commitlog import end_of_log, wait_for_equal_logs
from support.java import java_broker
from support.processes import Node, Processes, trioha_broker, trioha_command, trioha_namesrv

BROKERS = {"trioha": trioha_broker, "java": java_broker}
FOLLOW_S = 40.0
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


@pytest.mark.parametrize(("master_make", "slave_make"), [("trioha", "java"), ("java", "trioha")])
def test_a_slave_with_a_longer_log_is_told_of_in_words(
    master_make: Make, slave_make: Make, processes: Processes, clients: Clients, tmp_path: Path
) -> None:
    namesrv = trioha_namesrv(processes).start().address
    # What was once a master of its own becomes a slave without having been emptied.
    stray_store = tmp_path / "stray"
    stray = BROKERS[slave_make](
        processes, namesrv, name="stray", store=stray_store, settings=SMALL_FILES
    ).start()
    fill(clients, namesrv, stray, "Stray", 40)
    stray.stop()
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
    """Its frames are far larger than ours, too: 2 MiB, where 32 KiB is usual."""
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
