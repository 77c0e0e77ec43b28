"""A broker that is behind: both makes tell Java's producer the same, and it goes elsewhere."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping

import pytest
from support.clusters.meeting import wait_for_brokers
from support.clusters.pair import SMALL_FILES, Make
from support.peers.clients import Clients, SendFailed
from support.peers.java import (
    INTEROP,
    java_broker,
    java_command,
    java_environment,
    require_java,
)
from support.processes.admin import put_topic
from support.processes.rig import Processes, start_all, trioha_broker, trioha_namesrv

BEHIND: Mapping[str, object] = {
    **SMALL_FILES,
    # Nothing may wait: no machine is so quick, and no test has to overload it.
    "waitTimeMillsInSendQueue": 0,
    "sendMessageThreadPoolNums": 1,
}
BROKERS = {"trioha": trioha_broker, "java": java_broker}
MAKES: tuple[Make, ...] = ("trioha", "java")
# Java's broker looks for late requests every 10 ms. So many sends mostly keep its thread busy for
# longer; where they do not, the same number follows.
SENDS = 3_000
RUN_S = 90.0
REMARK = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "


@pytest.mark.parametrize("make", MAKES)
def test_a_send_that_waited_too_long_fails_with_system_busy(
    make: Make, processes: Processes, clients: Clients, topic: str
) -> None:
    namesrv = trioha_namesrv(processes, name="namesrv")
    start_all([namesrv])
    broker = BROKERS[make](processes, namesrv.address, name="behind", settings=BEHIND)
    start_all([broker])
    put_topic(broker.address, topic, 4)
    wait_for_brokers(namesrv.address, topic, {"behind"})
    producer = clients.producer("java", namesrv.address)
    told: list[str] = []
    deadline = time.monotonic() + RUN_S
    while not told:
        assert time.monotonic() < deadline, "no send was given up"
        numbers = [producer.begin(topic, f"m{number}", "async") for number in range(SENDS)]
        for number in numbers:
            try:
                producer.outcome(number)
            except SendFailed as failed:
                told.append(str(failed))
    for words in told:
        assert "MQBrokerException: CODE: 2 " in words
        assert REMARK in words


def test_a_5_3_client_sends_to_another_broker(processes: Processes, topic: str) -> None:
    require_java("5.3")
    namesrv = trioha_namesrv(processes, name="namesrv").start()
    brokers = [
        trioha_broker(processes, namesrv.address, name="behind", settings=BEHIND),
        trioha_broker(processes, namesrv.address, name="in-time", settings=SMALL_FILES),
    ]
    start_all(brokers)
    for broker in brokers:
        put_topic(broker.address, topic, 4)
    wait_for_brokers(namesrv.address, topic, {"behind", "in-time"})
    home = processes.root / "client"
    home.mkdir()
    source = str(INTEROP / "java-5.3" / "Sends.java")
    done = subprocess.run(
        java_command(source, home, [namesrv.address, topic, "20"], release="5.3"),
        env=java_environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["SEND_OK in-time"] * 20
