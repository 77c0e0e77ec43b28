"""What RocketMQ's example programs do, by the stock Java client at both makes: the same outcomes.

The programs themselves (`rocketmq-example`) are not on Maven Central.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.clusters.meeting import BOTH
from support.clusters.pair import SMALL_FILES, Make
from support.peers.java import (
    compiled_classes,
    java_broker,
    java_command,
    java_environment,
    java_namesrv,
    require_java,
)
from support.processes.admin import put_topic, wait_for_route
from support.processes.rig import Processes, start_all, trioha_broker, trioha_namesrv

RUN_S = 150.0
SETTINGS: Mapping[str, object] = {**SMALL_FILES, "traceTopicEnable": True}
TOPIC = "examples"


def start_client(home: Path, namesrv: str) -> subprocess.Popen[str]:
    home.mkdir(parents=True)
    return subprocess.Popen(
        java_command("Examples", home, [namesrv, TOPIC], classes=compiled_classes()),
        env=java_environment(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_examples_of_the_stock_client_come_to_the_same_as_at_rocketmq(
    processes: Processes,
) -> None:
    require_java()
    namesrvs = {"trioha": trioha_namesrv(processes), "java": java_namesrv(processes)}
    start_all(namesrvs.values())
    brokers = {
        "trioha": trioha_broker(processes, namesrvs["trioha"].address, name="t", settings=SETTINGS),
        "java": java_broker(processes, namesrvs["java"].address, name="j", settings=SETTINGS),
    }
    start_all(brokers.values())
    clients = {}
    for make in BOTH:
        topics = [f"{TOPIC}-{what}" for what in ("rpc", "trace", "all", "lite")]
        for topic in (*topics, f"space%{TOPIC}-ns"):
            put_topic(brokers[make].address, topic, 2)
            wait_for_route(namesrvs[make].address, topic)
        clients[make] = start_client(processes.root / f"client-{make}", namesrvs[make].address)
    told: dict[Make, list[str]] = {}
    try:
        for make, client in clients.items():
            out, err = client.communicate(timeout=RUN_S)
            assert client.returncode == 0, (make, out, err)
            told[make] = sorted(out.splitlines())
    finally:
        for client in clients.values():
            client.kill()
            client.communicate()
    assert told["trioha"] == told["java"]
    kinds = {line.partition(" | ")[0] for line in told["trioha"]}
    assert {"reply", "callback", "unanswered", "trace", "in the namespace", "broadcast"} <= kinds
