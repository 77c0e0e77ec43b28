"""Stores written by a Java 4.9.8 broker, against what Java producers were told.

One in its master-slave mode, one in DLEDGER mode as a group of one, which writes the same store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs
import pytest
from bench.peer.load_clients import open_load_client
from support.clusters.pair import Cluster
from support.peers.clients import Clients, Sent, require_client
from support.peers.java import dledger_settings
from support.processes.admin import create_topic
from support.processes.analyze import Answers, analyze
from support.processes.rig import running_processes
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("java store")]

LOADED = 5000
BODY_BYTES = 300
SENT = 200


@attrs.frozen
class JavaStore:
    """Two topics: one written by the load generator, one message by message."""

    path: str
    is_dledger: bool
    loaded: int
    """Messages that the load generator was told are stored."""
    sent: list[Sent]


@pytest.fixture(scope="module", params=["plain", "dledger"])
def java_store(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[JavaStore]:
    require_client("java")
    is_dledger = request.param == "dledger"
    with running_processes(tmp_path_factory.mktemp("java")) as processes:
        cluster = Cluster(processes, "java").start(
            settings=dledger_settings() if is_dledger else None
        )
        for topic in ("load", "sent"):
            create_topic(cluster.master.address, cluster.namesrv, topic)
        load = open_load_client("java", "JSON", processes, cluster.namesrv, dict)
        load.begin("send", {"topic": "load", "threads": 8, "messages": LOADED, "bytes": BODY_BYTES})
        outcome = load.outcome(120)
        assert outcome.errors == {}
        producer = Clients(processes).producer("java", cluster.namesrv)
        sent = producer.send_all("sent", (f"body-{n}" for n in range(SENT)), tags="t", keys="k")
        producer.stop()
        assert cluster.master.stop() in (0, 143)
        yield JavaStore(str(cluster.master.store), is_dledger, outcome.stored, sent)


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.release)])
def answers(
    java_store: JavaStore, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Answers:
    engine = ["--engine", request.param]
    if request.param == "spark":
        skip_unless(importable("pyspark"), "needs the extra spark")
        engine += ["--master", "local[2]"]
    out = tmp_path_factory.mktemp("answers") / request.param
    return analyze(out, [java_store.path, *engine])


def test_counts_are_what_producers_were_told(answers: Answers, java_store: JavaStore) -> None:
    assert java_store.loaded == LOADED
    load = answers.row("throughput", "topics", topic="load")
    assert (load["messages"], load["queues"]) == (LOADED, 4)
    # All of one length: the same body, and a unique key that does not vary in length.
    assert load["size_max_bytes"] * LOADED == load["record_bytes"]
    assert load["size_max_bytes"] > BODY_BYTES
    assert answers.row("throughput", "topics", topic="sent")["messages"] == SENT
    tag = answers.row("throughput", "hot_tags", topic="sent")
    assert (tag["tag"], tag["messages"]) == ("t", SENT)
    key = answers.row("throughput", "hot_keys", topic="sent")
    assert (key["key"], key["messages"]) == ("k", SENT)


def test_places_are_what_producers_were_told(answers: Answers, java_store: JavaStore) -> None:
    rows = answers.rows("throughput", "queues", topic="sent")
    assert sum(row["messages"] for row in rows) == SENT
    # Every queue's messages are numbered from 0: how often an index was told is in how many
    # queues it is.
    told = Counter(sent.queue_offset for sent in java_store.sent)
    counted = Counter(index for row in rows for index in range(row["messages"]))
    assert told == counted


def test_a_store_that_java_closed_is_sound(answers: Answers) -> None:
    assert answers.code == 0
    for table in ("damage", "queue_steps", "queue_entries", "index_entries"):
        assert answers.rows("integrity", table) == []
    index = answers.row("integrity", "index")
    # A unique key each, and for some a key of their own.
    assert index["entries"] >= LOADED + 2 * SENT
    assert (index["missing"], index["dangling"]) == (0, 0)


def test_what_needs_a_journal_is_left_out_and_said(answers: Answers) -> None:
    assert "failovers" not in answers.reports
    assert "replication" not in answers.reports
    assert "Without failovers" in answers.page.read_text()


def test_one_message_is_found_by_what_its_producer_was_told(
    java_store: JavaStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sent = java_store.sent[7]
    for name, wanted in (("unique", sent.msg_id), ("offset", sent.offset_msg_id)):
        assert wanted is not None
        out = tmp_path_factory.mktemp("trace") / name
        options = [java_store.path, "--engine", "local", "--report", "trace", "--id", wanted]
        (hop,) = analyze(out, options).rows("trace", "hops")
        assert (hop["topic"], hop["queue_offset"]) == ("sent", sent.queue_offset)
        assert sent.offset_msg_id is not None
        assert hop["phy_offset"] == int(sent.offset_msg_id[-16:], 16)
