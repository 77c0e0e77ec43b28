"""An application on rocketmq-spring-boot-starter at both makes: the same comes of it.

A broker of ours asks its clients for their accounts besides.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

import pytest
from support.clusters.pair import SMALL_FILES, Make
from support.clusters.secured import ACCOUNTS, OPERATOR, put_topic_signed
from support.peers.java import (
    INTEROP,
    java_broker,
    java_command,
    java_environment,
    require_java,
)
from support.processes.admin import wait_for_route
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv

pytestmark = pytest.mark.slow

RUN_S = 150.0
ROUTE_S = 40.0
NAMES = ("normal", "ordered", "delayed", "transactions", "requests", "pulled")
QUICK: Mapping[Make, Mapping[str, object]] = {
    "trioha": {"transactionTimeOut": 1000, "transactionCheckInterval": 1000},
    # It notes a commit up to 3 s late, and checks until then.
    "java": {"transactionTimeOut": 5000, "transactionCheckInterval": 5000},
}
CLIENTS = ("producer", "consumer", "pull-consumer")
TOLD: Mapping[str, Sequence[str]] = {
    "sent": ["SEND_OK"] * 9,
    "sent-async": ["SEND_OK"],
    "sent-batch": ["SEND_OK"],
    "tagged": [
        "async red null 0",
        "batch-0 red null 0",
        "batch-1 red null 0",
        "batch-2 red null 0",
        "fails-once red null 1",
        "oneway red null 0",
        "red-5 red k1 0",
    ],
    "filtered": ["red-5"],
    "broadcast": ["light"],
    "ordered": ["step-0", "step-1", "step-2", "step-3"],
    "delayed": ["delay-ms in time", "delay-seconds in time", "deliver-at in time"],
    "transaction": [
        "commit COMMIT_MESSAGE",
        "rollback ROLLBACK_MESSAGE",
        "unknown UNKNOW",
    ],
    "checked": ["unknown"],
    "committed": ["half-commit", "half-unknown"],
    "asked": ["question"],
    "reply": ["answer to question"],
    "received": ["[pulled]"],
}


def start_broker(processes: Processes, namesrv: str, make: Make) -> Node:
    """A broker with the application's topics."""
    settings: dict[str, object] = {**SMALL_FILES, **QUICK[make], "enablePropertyFilter": True}
    if make == "java":
        broker = java_broker(processes, namesrv, release="5.3", settings=settings).start()
    else:
        accounts = processes.root / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        settings |= {"aclEnable": True, "aclFile": accounts}
        broker = trioha_broker(processes, namesrv, settings=settings).start()
    # A client that asks for the route of its retries before they have one asks again in 30 s.
    for topic in (*(f"spring-{name}" for name in NAMES), "%RETRY%spring-tagged"):
        put_topic_signed(broker.address, topic)
        wait_for_route(namesrv, topic)
    # A broker of RocketMQ 5.3 tells of the topics that did not change 10 s after its start.
    wait_for_route(namesrv, "DefaultCluster_REPLY_TOPIC", within_s=ROUTE_S)
    return broker


def run_application(processes: Processes, namesrv: str) -> subprocess.CompletedProcess[str]:
    home = processes.root / "application"
    home.mkdir()
    arguments = [
        f"--rocketmq.name-server={namesrv}",
        "--rocketmq.producer.group=spring-producers",
        "--rocketmq.pull-consumer.group=spring-pulled",
        "--rocketmq.pull-consumer.topic=spring-pulled",
        "--spring.main.banner-mode=off",
        *(f"--rocketmq.{one}.access-key={OPERATOR.access_key}" for one in CLIENTS),
        *(f"--rocketmq.{one}.secret-key={OPERATOR.secret_key}" for one in CLIENTS),
        "--spring.jmx.enabled=false",
    ]
    source = str(INTEROP / "java-spring" / "Application.java")
    return subprocess.run(
        java_command(source, home, arguments, release="spring"),
        env=java_environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )


@pytest.mark.parametrize("make", ["trioha", pytest.param("java", marks=pytest.mark.release)])
def test_an_application_on_spring(processes: Processes, make: Make) -> None:
    """Each way to send, each kind of listener, a transaction of each fate, a reply, a pull."""
    require_java("spring")
    namesrv = trioha_namesrv(processes).start()
    start_broker(processes, namesrv.address, make)
    done = run_application(processes, namesrv.address)
    told = [line[5:] for line in done.stdout.splitlines() if line.startswith("told ")]
    assert done.returncode == 0, f"{told}\n{done.stderr[-4000:]}"
    by_kind: dict[str, list[str]] = {}
    for line in told:
        kind, _, words = line.partition(" ")
        by_kind.setdefault(kind, []).append(words)
    in_order = ("sent", "sent-async", "sent-batch", "transaction", "ordered", "reply", "received")
    assert {
        kind: words if kind in in_order else sorted(words) for kind, words in by_kind.items()
    } == TOLD
