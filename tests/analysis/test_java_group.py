"""Stores of a Java group of three in DLEDGER mode, whose leader was killed on the way.

Each member's store is analysed by itself, and all three as replicas: all of them hold what the
producer was told is stored.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence

import attrs
import pytest
from support.clusters.raft_group import RaftGroup, raft_group
from support.peers.clients import Clients, SendFailed, Sent, require_client
from support.peers.java import java_namesrv
from support.processes.admin import max_offset
from support.processes.analyze import Answers, analyze
from support.processes.rig import running_processes
from support.processes.status import run_trioha
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("java store")]

QUEUES = 4
SENT = 200
CARRY_ON_S = 90.0
ASK_PERIOD_S = 0.2
TOPIC = "sent"


@attrs.frozen
class JavaStores:
    """Stores of the members, and the producer's sends."""

    paths: list[str]
    sent: list[Sent]
    tried: int
    killed: str
    """A copy of the leader's store as kill -9 left it."""
    followers: list[str]
    """Stores of the other two members."""


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
        killed = tmp_path_factory.mktemp("killed-leader") / "store"
        assert leader.store is not None
        shutil.copytree(leader.store, killed)
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
        followers = [str(node.store) for node in group.followers_of(leader)]
        paths = [str(node.store) for node in group.nodes]
        yield JavaStores(paths, sent, tried, str(killed), followers)


def wait_until_level(group: RaftGroup) -> None:
    """Wait until each member shows its readers as much as the leader does."""
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


def test_the_members_are_replicas_that_agree(
    java_stores: JavaStores, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("together") / "out"
    together = analyze(out, [*java_stores.paths, "--engine", "local"])
    assert together.code == 0
    pairs = together.rows("divergence", "pairs")
    assert len(pairs) == 3
    for pair in pairs:
        assert pair["verdict"] == "equal", pair
    assert together.findings("divergence", "error") == []
    assert together.findings("integrity", "error") == []


def explained(stores: Sequence[str], sent: Sent) -> tuple[dict[str, str], list[str]]:
    """Verdicts by code, and what is not known."""
    words = ["analyze", "explain", *stores, "--message", str(sent.msg_id), "-o", "json"]
    done = run_trioha(*words)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    verdicts = {verdict["code"]: verdict["text"] for verdict in document["verdicts"]}
    verdicts.pop("stored late", None)  # the send that the kill delayed
    return verdicts, document["unknown"]


def test_messages_of_both_terms_are_explained(java_stores: JavaStores) -> None:
    """Sent before the kill, by the send that the kill delayed, and after it."""
    sent = java_stores.sent
    for each in (sent[7], sent[SENT], sent[-7]):
        verdicts, unknown = explained(java_stores.paths, each)
        assert list(verdicts) == ["stored", "in every replica", "no offset"]
        assert f"in topic {TOPIC}, queue " in verdicts["stored"]
        assert f"queue offset {each.queue_offset}," in verdicts["stored"]
        assert "All 3 replicas that were given hold it." in verdicts["in every replica"]
        assert any("No journal was given" in text for text in unknown)


def test_what_the_killed_leader_lacks_is_explained(
    java_stores: JavaStores, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The reports read its store as the kill left it, and the followers' stores at the end."""
    sent, stores = java_stores.sent, [java_stores.killed, *java_stores.followers]
    before, _ = explained(stores, sent[7])
    assert list(before) == ["stored", "in every replica", "no offset"]
    after, _ = explained(stores, sent[-7])
    assert list(after) == ["stored", "not in a replica", "no offset"]
    assert f"{java_stores.killed} does not hold the record at " in after["not in a replica"]
    assert "its log ends " in after["not in a replica"]
    out = tmp_path_factory.mktemp("killed") / "out"
    together = analyze(out, [*stores, "--engine", "local"])
    assert together.code == 0
    verdicts = {
        (pair["a"], pair["b"]): pair["verdict"] for pair in together.rows("divergence", "pairs")
    }
    first, second = java_stores.followers
    assert verdicts[first, second] == "equal"
    assert sorted(verdicts.values()) == ["a is behind", "a is behind", "equal"]
