"""RocketMQ's example programs, by the stock Java client at both makes: the same outcomes.

The programs themselves print little that a test could compare, so ours do the same and tell more.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.clusters.meeting import BOTH
from support.clusters.pair import SMALL_FILES
from support.peers.clients import Clients
from support.peers.java import (
    compiled_classes,
    java_broker,
    java_command,
    java_environment,
    java_namesrv,
    require_java,
)
from support.peers.java_tools import QUICK_CONSUMER, MqAdmin, mq_admin
from support.processes.admin import put_topic, wait_for_route
from support.processes.rig import Processes, start_all, trioha_broker, trioha_namesrv

RUN_S = 150.0
SETTINGS: Mapping[str, object] = {**SMALL_FILES, "traceTopicEnable": True}
TOPIC = "examples"


def start_client(home: Path, namesrv: str) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True)
    with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
        return subprocess.Popen(
            java_command(
                "Examples",
                home,
                [namesrv, TOPIC],
                properties=QUICK_CONSUMER["system_properties"],
                classes=compiled_classes(),
            ),
            env=java_environment(home),
            cwd=home,
            stdout=out,
            stderr=err,
        )


def traced(admin: MqAdmin, namesrv: str) -> set[tuple[str, ...]]:
    """Return what mqadmin prints of the traced message: kind, group, and outcome."""
    found = admin.run("queryMsgByKey", "-n", namesrv, "-t", f"{TOPIC}-trace", "-k", "key-1")
    told: set[tuple[str, ...]] = set()
    for msg_id in re.findall(r"^[0-9A-F]+", found, re.MULTILINE):
        printed = admin.run("queryMsgTraceById", "-n", namesrv, "-i", msg_id)
        told.update(re.findall(r"^(Pub|Sub) +(\S+) .*?(\S+) *$", printed, re.MULTILINE))
    return told


@pytest.mark.slow
def test_examples_of_the_stock_client_come_to_the_same_as_at_rocketmq(
    processes: Processes, shared_clients: Clients
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
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            for client in clients.values():
                client.wait(timeout=RUN_S)
        codes = {make: client.poll() for make, client in clients.items()}
    finally:
        for client in clients.values():
            client.kill()
            client.wait()
    homes = {make: processes.root / f"client-{make}" for make in BOTH}
    told = {make: sorted((homes[make] / "out").read_text().splitlines()) for make in BOTH}
    errors = "\n".join(
        f"{make}'s exit code {codes[make]}, on stderr:\n{(homes[make] / 'err').read_text()}"
        for make in BOTH
    )
    difference = list(difflib.unified_diff(told["java"], told["trioha"], "java", "trioha"))
    assert (codes, difference) == (dict.fromkeys(BOTH, 0), []), "\n".join([*difference, errors])
    kinds = {line.partition(" | ")[0] for line in told["trioha"]}
    assert {"reply", "callback", "unanswered", "trace", "in the namespace", "broadcast"} <= kinds
    admin = mq_admin(shared_clients)
    outcomes = {make: traced(admin, namesrvs[make].address) for make in BOTH}
    both_ends = {("Pub", f"{TOPIC}-trace-p", "success"), ("Sub", f"{TOPIC}-trace-g", "success")}
    assert outcomes == dict.fromkeys(BOTH, both_ends)
