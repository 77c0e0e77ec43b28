"""The stock 5.3 client's delays in seconds, and its recalls, at both makes: the same outcomes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.clusters.meeting import BOTH
from support.clusters.pair import SMALL_FILES, Make
from support.peers.java import (
    INTEROP,
    java_broker,
    java_command,
    java_environment,
    require_java,
)
from support.processes.admin import put_topic, request
from support.processes.rig import Processes, start_all, trioha_broker, trioha_namesrv

from trioha.store.inspect import verify_store
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import object_of
from trioha.wire.remoting_command import RemotingCommand

RUN_S = 90.0
LATE_MS_MAX = 1_000
"""Limit on a busy machine. RocketMQ's broker itself is up to one second late."""
OURS: Mapping[str, object] = {"autoCreateTopicEnable": "false", **SMALL_FILES}
JAVA: Mapping[str, object] = {**OURS, "timerWheelEnable": True, "recallMessageEnable": True}

OF_JAVA_5 = {"WAIT", "MSG_REGION", "TRACE_ON"}
"""Properties that 5.x keeps in every message, delayed or not, and 4.9 in none."""


def start_client(home: Path, namesrv: str, topic: str) -> subprocess.Popen[str]:
    home.mkdir(parents=True)
    source = str(INTEROP / "java-5.3" / "Timers.java")
    return subprocess.Popen(
        java_command(source, home, [namesrv, topic], release="5.3"),
        env=java_environment(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_timers_of_the_stock_client_come_to_the_same_as_at_rocketmq(processes: Processes) -> None:
    require_java("5.3")
    namesrv = trioha_namesrv(processes).start()
    brokers = {
        "trioha": trioha_broker(processes, namesrv.address, name="t", settings=OURS),
        "java": java_broker(processes, namesrv.address, name="j", release="5.3", settings=JAVA),
    }
    start_all(brokers.values())
    clients = {}
    for make in BOTH:
        put_topic(brokers[make].address, f"timers-{make}", 2)
        home = processes.root / f"client-{make}"
        clients[make] = start_client(home, namesrv.address, f"timers-{make}")
    told: dict[Make, list[list[str]]] = {}
    try:
        for make, client in clients.items():
            out, err = client.communicate(timeout=RUN_S)
            assert client.returncode == 0, err
            told[make] = [line.split() for line in out.splitlines()]
    finally:
        for client in clients.values():
            client.kill()
            client.communicate()
    outcomes = {
        make: [words for words in lines if words[0] not in {"received", "took"}]
        for make, lines in told.items()
    }
    assert outcomes["trioha"] == outcomes["java"]
    received = {
        make: {words[1]: words[2:] for words in lines if words[0] == "received"}
        for make, lines in told.items()
    }
    took_ms = {words[1]: int(words[2]) for words in told["trioha"] if words[0] == "took"}
    assert received["trioha"].keys() == received["java"].keys()
    assert "recalled" not in received["trioha"]
    for name, (late, *rest, properties) in received["trioha"].items():
        java_late, *java_rest, java_properties = received["java"][name]
        assert rest == java_rest, name
        assert set(properties.split(",")) == set(java_properties.split(",")) - OF_JAVA_5, name
        # A delay counts from the moment in which the broker got the message.
        assert 0 <= int(late) <= took_ms[name] + LATE_MS_MAX, (name, late, java_late)
    answer = request(brokers["trioha"].address, RemotingCommand(RequestCode.TRIOHA_TIMERS))
    assert object_of(fastjson.loads(answer.body_bytes()), "timers")["pending"] == 0
    brokers["trioha"].stop()
    store = brokers["trioha"].store
    assert store is not None
    assert verify_store(store).damage == []
