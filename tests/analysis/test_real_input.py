"""Every figure of every report, against what stock clients were told.

An incident is lived through once (`support.clusters.incident`): C++ and Node.js clients, a master
killed under load, its slave made the master by `trioha failover`, the old master back and
following. What is stored is known from an auditor, a C++ client to which the broker gave every
message, with its place, times and size; what happened when, from the test's own clock. No figure
below comes from our decoder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clusters.incident import QUEUES, TOPICS, Incident, live_through
from support.peers.clients import Clients, Received
from support.processes.analyze import Answers, analyze
from support.processes.rig import running_processes
from support.screens.browser import render
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

SLACK_MS = 400
"""A journal is written in steps of 200 ms, and others notice a dead process in their turn."""


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    with running_processes(tmp_path_factory.mktemp("incident")) as processes:
        yield live_through(processes, Clients(processes))


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.release)])
def answers(
    incident: Incident, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Answers:
    engine = ["--engine", request.param]
    if request.param == "spark":
        skip_unless(importable("pyspark"), "needs the extra spark")
        engine += ["--master", "local[2]"]
    out = tmp_path_factory.mktemp("answers") / request.param
    return analyze(out, [*incident.stores, "--journal", str(incident.namesrv_journal), *engine])


@pytest.fixture
def everything(incident: Incident) -> list[Received]:
    """Every message stored, in the log's order."""
    found = [message for messages in incident.stored.values() for message in messages]
    return sorted(found, key=lambda message: message.commit_log_offset)


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def test_the_incident_kept_its_promises(incident: Incident) -> None:
    """Else the figures below would be of something else."""
    for topic, messages in incident.stored.items():
        by_body = Counter(message.body for message in messages)
        told = [send for send in incident.sends if send.topic == topic]
        assert len(told) > 300
        for send in told:
            copies = by_body[send.body]
            if send.status:
                assert copies >= 1, f"{send.body} was acknowledged and is gone"
            places = {m.queue_offset for m in messages if m.body == send.body}
            assert not send.status or send.queue_offset in places
    assert incident.statuses["SLAVE_NOT_AVAILABLE"] > 50
    assert incident.statuses[""] > 0, "nobody noticed the kill"


@pytest.fixture(params=[0, 1], ids=["first store", "second store"])
def store(request: pytest.FixtureRequest, incident: Incident) -> str:
    """Both hold the same, once the old master has followed the new one."""
    return incident.stores[request.param]


def test_throughput(answers: Answers, store: str, everything: list[Received]) -> None:
    times = [message.store_timestamp for message in everything]
    row = answers.row("throughput", "stores", store=store)
    assert row["messages"] == len(everything)
    assert row["record_bytes"] == sum(message.store_size for message in everything)
    assert row["body_bytes"] == sum(message.size for message in everything)
    assert (row["first_ms"], row["last_ms"]) == (min(times), max(times))
    topics = answers.rows("throughput", "topics", store=store)
    assert {row["topic"] for row in topics} == set(QUEUES)
    for row in topics:
        mine = [message for message in everything if message.topic == row["topic"]]
        sizes = [message.store_size for message in mine]
        assert (row["messages"], row["record_bytes"]) == (len(mine), sum(sizes))
        assert row["queues"] == QUEUES[row["topic"]]
        assert row["size_max_bytes"] == max(sizes)
        assert row["messages_share"] == pytest.approx(len(mine) / len(everything))
        for percent in (50, 95, 99):
            exact = nearest_rank(sizes, percent)
            assert exact * 0.875 <= row[f"size_p{percent}_bytes"] <= exact
    queues = Counter((message.topic, message.queue_id) for message in everything)
    told = answers.rows("throughput", "queues", store=store)
    assert {(row["topic"], row["queue_id"]): row["messages"] for row in told} == queues
    tags = Counter((message.topic, message.tags) for message in everything)
    told = answers.rows("throughput", "hot_tags", store=store)
    assert {(row["topic"], row["tag"]): row["messages"] for row in told} == tags


def test_throughput_over_time(answers: Answers, store: str, everything: list[Received]) -> None:
    rows = answers.rows("throughput", "time", store=store)
    seconds = Counter(message.store_timestamp // 1000 * 1000 for message in everything)
    assert {row["begin_ms"]: row["messages"] for row in rows if row["messages"]} == seconds
    bytes_ = Counter[int]()
    for message in everything:
        bytes_[message.store_timestamp // 1000 * 1000] += message.store_size
    assert {row["begin_ms"]: row["record_bytes"] for row in rows if row["messages"]} == bytes_


def test_latency(answers: Answers, store: str, everything: list[Received]) -> None:
    waits = [message.store_timestamp - message.born_timestamp for message in everything]
    for row in (
        answers.row("latency", "stores", store=store),
        answers.row("latency", "hosts", store=store, born_host="127.0.0.1"),
    ):
        assert row["messages"] == len(waits)
        for exact, told in ((min(waits), row["min_ms"]), (max(waits), row["max_ms"])):
            # The report says: exact below 128 ms, above that at most 1/64 nearer to zero.
            nearer = abs(exact) / 64 if abs(exact) >= 128 else 0
            assert 0 <= (exact - told if exact >= 0 else told - exact) <= nearer
        assert row["negative"] == sum(wait < 0 for wait in waits)
        for percent in (50, 95, 99):
            exact = nearest_rank(waits, percent)
            assert exact * 0.875 - 1 <= row[f"p{percent}_ms"] <= exact


def test_replication_sessions(answers: Answers, incident: Incident) -> None:
    sessions = answers.rows("replication", "sessions")
    first, second = sessions
    assert first["link"] == "broker-a:0 → broker-a:1"
    assert first["offset"] == 0
    # `wait_in_sync` had seen the link before the first send.
    assert first["begin_ms"] <= incident.sends[0].asked_ms
    assert incident.killed_ms[0] <= first["end_ms"] <= incident.killed_ms[1] + SLACK_MS
    assert first["reason"] == "this node was killed"
    assert second["link"] == "broker-a:1 → broker-a:0"
    after = [
        message.commit_log_offset
        for message in _stored(incident)
        if message.store_timestamp >= incident.served_again_ms[0]
    ]
    ends = [m.commit_log_offset + m.store_size for m in _stored(incident)]
    assert second["offset"] <= min(after), "it held no byte of the new master's"
    assert incident.served_again_ms[1] <= second["begin_ms"] <= incident.slave_back_ms
    assert incident.stopped_ms[0] <= second["end_ms"] <= incident.stopped_ms[1]
    assert second["offset"] + second["transferred_bytes"] == max(ends)


def test_replication_gaps_and_waits(answers: Answers, incident: Incident) -> None:
    links = answers.rows("replication", "links")
    assert {link["link"] for link in links} == {
        "broker-a:0 → broker-a:1",
        "broker-a:1 → broker-a:0",
    }
    log_bytes = sum(message.store_size for message in _stored(incident))
    lasted = incident.stopped_ms[1] - incident.serving_ms
    for link in links:
        assert 0 <= link["gap_max_bytes"] <= log_bytes
        assert 0 <= link["behind_max_ms"] <= lasted
    # The slave acknowledged each message of the new master, or the producer was told that only one
    # machine has it: the Node.js client, and the C++ client, which then stores it once more.
    since_ms = incident.served_again_ms[0]
    after = [m for m in _stored(incident) if m.store_timestamp >= since_ms]
    # By place, not by time: an answer of the old master may be noted late, after the switch began.
    places = {(message.keys, message.queue_offset) for message in after}
    acknowledged = [
        each for each in incident.told("SEND_OK") if (each.keys, each.queue_offset) in places
    ]
    waits = answers.rows("replication", "sync_waits")
    (new,) = [row for row in waits if row["unavailable"]]
    assert new["unavailable"] + new["timeouts"] == len(after) - len(acknowledged)
    assert new["unavailable"] >= incident.statuses["SLAVE_NOT_AVAILABLE"]
    assert new["puts"] <= len(acknowledged)
    assert sum(row["puts"] for row in waits) > 100
    slowest = max(each.answered_ms - each.asked_ms for each in acknowledged)
    assert new["longest_ms"] <= slowest + 1
    (refusal,) = [
        row for row in answers.rows("failovers", "refusals") if "SLAVE_NOT_AVAILABLE" in row["what"]
    ]
    assert refusal["count"] == new["unavailable"]


def test_replication_in_sync(answers: Answers, incident: Incident) -> None:
    row = answers.row("replication", "in_sync", broker="broker-a")
    least = incident.killed_ms[0] - incident.serving_ms
    least += incident.stopped_ms[0] - incident.served_again_ms[1]
    most = incident.killed_ms[1] + SLACK_MS - incident.starting_ms
    most += incident.stopped_ms[1] - incident.served_again_ms[0]
    assert least <= row["served_ms"] <= most
    # Each master was alone until its slave was there, and may be for a moment at its end.
    alone = incident.slave_there_ms - incident.starting_ms + SLACK_MS
    alone += incident.slave_back_ms - incident.served_again_ms[0] + _span(incident.stopped_ms)
    assert 0 < row["served_ms"] - row["in_sync_ms"] <= alone
    assert row["share"] == pytest.approx(row["in_sync_ms"] / row["served_ms"])


def test_failovers(answers: Answers, incident: Incident) -> None:
    times = [message.store_timestamp for message in _stored(incident)]
    before = max(at for at in times if at < incident.served_again_ms[0])
    after = min(at for at in times if at > incident.served_again_ms[0])
    outage, last = answers.rows("failovers", "outages")
    assert incident.killed_ms[0] <= outage["begin_ms"] <= incident.killed_ms[1] + SLACK_MS
    assert incident.served_again_ms[0] <= outage["end_ms"] <= incident.served_again_ms[1]
    assert (outage["last_write_ms"], outage["first_write_ms"]) == (before, after)
    assert outage["write_gap_ms"] == after - before
    assert not outage["is_planned"]
    assert outage["before_store"] != outage["after_store"]
    assert incident.stopped_ms[0] <= last["begin_ms"] <= incident.stopped_ms[1]
    assert (last["end_ms"], last["is_planned"]) == (None, True)
    # No client was told of a message stored in between.
    inside = [at for at in times if outage["begin_ms"] < at < outage["end_ms"]]
    assert inside == []
    broker = answers.row("failovers", "brokers", broker="broker-a")
    assert broker["lost_ms"] == outage["lasted_ms"] + last["lasted_ms"]
    assert broker["mttr_ms"] == outage["lasted_ms"]
    assert (broker["outages"], broker["unplanned"]) == (2, 1)
    shortest = incident.stopped_ms[0] - incident.serving_ms
    longest = incident.stopped_ms[1] - incident.starting_ms
    assert shortest <= broker["observed_ms"] <= longest
    lost = broker["lost_ms"] / broker["observed_ms"]
    assert broker["availability"] == pytest.approx(1 - lost)


def test_lives(answers: Answers, incident: Incident) -> None:
    brokers = [row for row in answers.rows("failovers", "lives") if row["node"] != "namesrv"]
    told = Counter((row["node"], row["role"], row["ending"]) for row in brokers)
    assert told == Counter(
        [
            ("broker-a:0", "SYNC_MASTER", "killed"),
            ("broker-a:1", "SLAVE → SYNC_MASTER", "stopped"),
            ("broker-a:0", "SLAVE", "stopped"),
        ]
    )


def test_the_switch_is_what_its_operator_was_told(answers: Answers, incident: Incident) -> None:
    (switch,) = answers.rows("failovers", "switches")
    assert switch["result"] == incident.switch["result"] == "done"
    assert switch["message"] == incident.switch["message"]
    begun, ended = incident.served_again_ms
    assert begun <= switch["at_ms"] <= ended
    plan = incident.switch["plan"]
    target = plan["target"]
    for store in incident.stores:
        first, second = answers.rows("failovers", "epochs", store=store)
        assert (first["epoch"], first["start_offset"], first["home_id"]) == (1, 0, 0)
        assert (second["epoch"], second["home_id"]) == (plan["epoch"], target["home_id"])
        # Nothing was written meanwhile: the new term begins where the plan saw the log end.
        assert second["start_offset"] == first["end_offset"] == target["max_phy_offset"]
        assert begun <= second["begin_ms"] <= ended
        assert second["sync"] is True
    # The records of the old master beyond that are in no other log. They are kept.
    for cut in answers.reports["divergence"]["tables"]:
        if cut["name"] == "cuts":
            (row,) = cut["rows"]
            assert row["store"] == incident.stores[0]
            assert row["begin"] == target["max_phy_offset"]
            assert row["records"] > 0


def test_divergence_and_integrity(
    answers: Answers, incident: Incident, store: str, everything: list[Received]
) -> None:
    pair = answers.row("divergence", "pairs")
    end = max(message.commit_log_offset + message.store_size for message in everything)
    assert pair["verdict"] == "equal"
    assert (pair["common_begin"], pair["common_end"]) == (0, end)
    assert answers.code == 0
    row = answers.row("integrity", "checked", store=store)
    assert row["records"] == len(everything)
    assert answers.rows("integrity", "damage") == []
    assert answers.rows("integrity", "queue_steps") == []
    assert answers.rows("integrity", "queue_entries") == []
    keys = sum(
        len((message.keys or "").split()) + ("UNIQ_KEY" in message.properties)
        for message in everything
    )
    index = answers.row("integrity", "index", store=store)
    assert (index["entries"], index["missing"], index["dangling"]) == (keys, 0, 0)


def test_queues(answers: Answers, incident: Incident, everything: list[Received]) -> None:
    store = incident.stores[1]
    for topic in QUEUES:
        counts = Counter(m.queue_id for m in everything if m.topic == topic)
        row = answers.row("queues", "skew", store=store, topic=topic)
        assert (row["queues"], row["used"]) == (QUEUES[topic], len(counts))
        assert row["messages"] == sum(counts.values())
        assert row["largest"] == max(counts.values())
        assert row["max_over_mean"] == pytest.approx(
            max(counts.values()) * QUEUES[topic] / sum(counts.values())
        )
    for (group, topic), committed in incident.committed.items():
        ends = Counter(m.queue_id for m in everything if m.topic == topic)
        queues = answers.rows(
            "queues", "lag_queues", store=store, consumer_group=group, topic=topic
        )
        told = {queue["queue_id"]: queue["consumer_offset"] for queue in queues}
        # The table has the twenty queues that are furthest behind, of all groups and stores.
        assert told.items() <= committed.items()
        for queue in queues:
            assert queue["end_offset"] == ends[queue["queue_id"]]
            assert queue["lag"] == queue["end_offset"] - queue["consumer_offset"]
        row = answers.row("queues", "lag", store=store, consumer_group=group, topic=topic)
        assert row["queues"] == len(committed)
        assert row["lag"] == sum(ends[queue] - offset for queue, offset in committed.items())
    samples = answers.rows("queues", "lag_time", consumer_group="readers", topic="orders")
    assert samples
    assert all(0 <= row["lag_max"] <= len(incident.stored["orders"]) for row in samples)


def test_retention(answers: Answers, store: str, everything: list[Received]) -> None:
    times = [message.store_timestamp for message in everything]
    row = answers.row("retention", "stores", store=store)
    assert (row["first_ms"], row["last_ms"], row["segments"]) == (min(times), max(times), 1)
    days = answers.rows("retention", "days", store=store)
    by_day = Counter(at // 86_400_000 * 86_400_000 for at in times)
    assert {day["day_ms"]: day["messages"] for day in days} == by_day


@pytest.mark.parametrize("kind", list(TOPICS))
@pytest.mark.parametrize("by", ["--key", "--id"])
def test_trace(incident: Incident, tmp_path: Path, kind: str, by: str) -> None:
    topic = next(topic for of, topic in TOPICS.items() if of == kind)
    send = next(each for each in incident.told("SEND_OK") if each.topic == topic)
    (message,) = [each for each in incident.stored[topic] if each.body == send.body]
    wanted = send.keys if by == "--key" else send.msg_id
    options = [*incident.stores, "--engine", "local", "--report", "trace", by, wanted]
    hops = analyze(tmp_path / "out", options).rows("trace", "hops", topic=topic)
    assert {hop["store"] for hop in hops} == set(incident.stores)
    for hop in hops:
        assert hop["queue_id"] == message.queue_id
        assert hop["queue_offset"] == send.queue_offset == message.queue_offset
        assert hop["phy_offset"] == message.commit_log_offset
        assert hop["store_ms"] == message.store_timestamp
        assert hop["born_ms"] == message.born_timestamp
        assert hop["tags"] == send.tags


def test_the_page_of_it_is_drawn(answers: Answers, tmp_path: Path) -> None:
    drawn = render(answers.page, tmp_path / "browser", height=4000)
    assert drawn.console == []
    assert len(drawn.picture) > 100_000


def _stored(incident: Incident) -> list[Received]:
    return [message for messages in incident.stored.values() for message in messages]


def _span(moments: tuple[int, int]) -> int:
    return moments[1] - moments[0]
