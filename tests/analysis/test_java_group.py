"""Stores of a Java group of three in DLEDGER mode, whose leader was killed on the way.

Each member's store is analysed by itself: all of them hold what the producer was told is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
import pytest
from support.clusters.raft_group import RaftGroup, raft_group
from support.peers.clients import Clients, SendFailed, Sent, require_client
from support.peers.java import java_namesrv
from support.processes.admin import max_offset
from support.processes.analyze import Answers, analyze
from support.processes.rig import running_processes
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("java store")]

QUEUES = 4
SENT = 200
CARRY_ON_S = 90.0
ASK_PERIOD_S = 0.2
TOPIC = "sent"


@attrs.frozen
class JavaStores:
    """One for each member."""

    paths: list[str]
    sent: list[Sent]
    tried: int


@pytest.fixture(scope="module")
def java_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaStores]:
    require_client("java")
    with running_processes(tmp_path_factory.mktemp("java-group")) as processes:
        namesrv = java_namesrv(processes).start()
        group = raft_group(processes, namesrv.address, make="java")
        leader = group.start()
        group.create_topic(TOPIC, QUEUES)
        producer = Clients(processes).producer("java", namesrv.address, poll_ms=1000)
        sent = producer.send_all(TOPIC, (f"body {n}" for n in range(SENT)), tags="t", keys="k")
        leader.kill()
        tried, deadline = 0, time.monotonic() + CARRY_ON_S
        while len(sent) == SENT:
            tried += 1
            try:
                sent.append(producer.send(TOPIC, f"after {tried}", tags="t", keys="k"))
            except SendFailed:
                time.sleep(ASK_PERIOD_S)
            assert time.monotonic() < deadline, "nobody leads"
        sent += producer.send_all(TOPIC, (f"later {n}" for n in range(SENT)), tags="t", keys="k")
        producer.stop()
        leader.start()
        wait_until_level(group)
        for node in group.nodes:
            assert node.stop() in (0, 143)
        yield JavaStores([str(node.store) for node in group.nodes], sent, tried)


def wait_until_level(group: RaftGroup) -> None:
    """Until each member shows its readers as much as the leader does."""
    deadline = time.monotonic() + CARRY_ON_S
    while True:
        ends = [
            [max_offset(node.address, TOPIC, queue) for queue in range(QUEUES)]
            for node in group.nodes
        ]
        if all(end == ends[0] for end in ends):
            return
        assert time.monotonic() < deadline, f"not level: {ends}"
        time.sleep(ASK_PERIOD_S)


@pytest.fixture(
    scope="module",
    params=[
        "n0-local",
        "n1-local",
        "n2-local",
        pytest.param("n0-spark", marks=pytest.mark.release),
    ],
)
def answers(
    java_stores: JavaStores,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Answers:
    member, engine = request.param.split("-")
    options = ["--engine", engine]
    if engine == "spark":
        skip_unless(importable("pyspark"), "needs the extra spark")
        options += ["--master", "local[2]"]
    out = tmp_path_factory.mktemp("answers") / request.param
    return analyze(out, [java_stores.paths[int(member[1:])], *options])


def test_every_member_holds_what_the_producer_was_told(
    answers: Answers, java_stores: JavaStores
) -> None:
    messages = answers.row("throughput", "topics", topic=TOPIC)["messages"]
    # A send whose outcome is unknown may have been stored, and the client tries each three times.
    assert len(java_stores.sent) <= messages <= len(java_stores.sent) + 3 * java_stores.tried
    rows = answers.rows("throughput", "queues", topic=TOPIC)
    assert len(rows) == QUEUES
    assert sum(row["messages"] for row in rows) == messages
    tag = answers.row("throughput", "hot_tags", topic=TOPIC)
    assert (tag["tag"], tag["messages"]) == ("t", messages)


def test_every_store_is_sound(answers: Answers) -> None:
    assert answers.code == 0
    for table in ("damage", "queue_steps", "queue_entries", "index_entries"):
        assert answers.rows("integrity", table) == []


def test_messages_of_both_terms_are_found(
    java_stores: JavaStores, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for number, sent in enumerate((java_stores.sent[7], java_stores.sent[-7])):
        for member, path in enumerate(java_stores.paths):
            assert sent.offset_msg_id is not None
            out = tmp_path_factory.mktemp("trace") / f"{number}-{member}"
            options = [path, "--engine", "local", "--report", "trace", "--id", str(sent.msg_id)]
            (hop,) = analyze(out, options).rows("trace", "hops")
            assert (hop["topic"], hop["queue_offset"]) == (TOPIC, sent.queue_offset)
            assert hop["phy_offset"] == int(sent.offset_msg_id[-16:], 16)
