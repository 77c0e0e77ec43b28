"""SQL92 filters beside RocketMQ's: its filter module judges expressions, its client subscribes."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from pathlib import Path

import pytest
from support.clusters.meeting import BOTH, Meeting, wait_for_brokers
from support.clusters.meeting import SETTINGS as MEETING_SETTINGS
from support.clusters.pair import Make
from support.fakes.sql_filters import drawn_expression, drawn_properties
from support.peers.clients import Clients, SendFailed, StockConsumer, StockProducer
from support.peers.java import (
    compiled_classes,
    java_broker,
    java_command,
    java_environment,
    require_java,
)
from support.peers.java_tools import QUICK_CONSUMER, JavaReader
from support.processes.admin import put_topic, request
from support.processes.rig import (
    Node,
    Processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from support.suite.drawn_seed import drawn_seed

from trioha.broker.sql.java_values import SqlEvaluationError
from trioha.broker.sql.parser import parse_sql_filter
from trioha.broker.sql.tokens import SqlFilterError, TrailingTextError
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

PAIRS = 6000
JUDGE_S = 120
START_S = 60.0
SUBSCRIBE_S = 30.0
FILTERS = (
    "n BETWEEN 10 AND 19",
    "n > 5 AND (region = 'eu' OR region IN ('us', 'it''s'))",
    "region IS NULL OR NOT (n <= 20)",
    "TAGS = 'Odd' AND n <> 7",
    "n > region",
    "nothing = 'x'",
    "n >= 0 -- all of them",
)


def java_verdicts(
    home: Path, questions: list[tuple[str, dict[str, str]]], release: str
) -> list[str]:
    """Return the verdicts of RocketMQ's filter module, one word each; see FilterJudge.java."""
    require_java(release)
    lines = [json.dumps({"expression": text, "properties": props}) for text, props in questions]
    done = subprocess.run(
        java_command("FilterJudge", home, [], classes=compiled_classes(), release=release),
        env=java_environment(home),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=JUDGE_S,
        check=True,
    )
    return done.stdout.split()


def our_verdict(text: str, properties: dict[str, str]) -> str:
    try:
        found = parse_sql_filter(text).evaluate(properties)
    except TrailingTextError:
        return "trailing"
    except SqlFilterError:
        return "invalid"
    except SqlEvaluationError:
        return "exception"
    return {None: "null", True: "true", False: "false"}[found]


def has_operators_as_names(text: str, properties: dict[str, str]) -> bool:
    """Return whether CONTAINS and its like are names here: another name gives the same verdict.

    In place of an operator another name is an error.
    """
    other = re.sub(r"(?i)\b(contains|startswith|endswith)\b", "nothing", text)
    return other != text and our_verdict(other, properties) == our_verdict(text, properties)


@pytest.mark.parametrize("release", ["4", "5.3"])
def test_every_drawn_expression_means_the_same_to_rocketmq(tmp_path: Path, release: str) -> None:
    rng = random.Random(drawn_seed("sql filters"))
    has_parts = release != "4"
    questions = [
        (drawn_expression(rng, has_parts=has_parts), drawn_properties(rng)) for _ in range(PAIRS)
    ]
    theirs = java_verdicts(tmp_path, questions, release)
    ours = [our_verdict(*question) for question in questions]
    differences = [
        f"{text!r} {properties} java {their} ours {our}"
        for (text, properties), their, our in zip(questions, theirs, ours, strict=True)
        # RocketMQ ignores text that follows a complete expression. In 5.3 no property may be called
        # CONTAINS, here one may, as in 4.9.
        if our != their
        and not (our == "trailing" and (their != "invalid" or has_parts))
        and not (has_parts and their == "invalid" and has_operators_as_names(text, properties))
    ]
    assert differences == []
    # The draw is worth something: each verdict is frequent.
    for verdict in ("invalid", "null", "true", "false", "exception", "trailing"):
        assert ours.count(verdict) > PAIRS // 100, verdict


def test_pulls_with_a_filter_bring_what_rocketmq_brings(
    meeting: Meeting,
    producers: dict[Make, StockProducer],
    readers: dict[Make, JavaReader],
    topic: str,
) -> None:
    found: dict[Make, list[list[str | None]]] = {}
    for make in BOTH:
        mine = f"{topic}-{make}"
        meeting.create_topic(mine, [make], queues=1)
        for number in range(30):
            region = ("eu", "us", "it's", "Ελλάδα", "")[number % 5]
            properties = {"n": str(number)} | ({"region": region} if region else {})
            tags = ("Even", "Odd")[number % 2]
            producers[make].send(mine, str(number), tags=tags, properties=properties)
        reader = readers[make]
        found[make] = [[m.body for m in reader.drain_sql(mine, sql)] for sql in FILTERS]
    assert found["trioha"] == found["java"]
    assert [len(bodies) for bodies in found["trioha"]] == [10, 14, 13, 14, 0, 0, 30]
    # RocketMQ delivers everything to a pull whose filter is wrong.
    assert len(readers["java"].drain_sql(f"{topic}-java", "n >")) == 30
    with pytest.raises(SendFailed, match=r"CODE: 23 .*'n >': character 4: expected a property"):
        readers["trioha"].drain_sql(f"{topic}-trioha", "n >")


def filter_of(master: Node, topic: str) -> str:
    """The filter that a master knows of the group that is named as its topic."""
    command = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": topic})
    known = json.loads(request(master.address, command).body_bytes())
    return str(known["subscriptionTable"][topic]["subString"])


def change_filter(consumer: StockConsumer, master: Node, topic: str, sql: str) -> None:
    """Subscribe until the master knows of it: a client that is at a heartbeat sends no other."""
    deadline = time.monotonic() + SUBSCRIBE_S
    consumer.subscribe_sql(topic, sql)
    while filter_of(master, topic) != sql:
        assert time.monotonic() < deadline, f"{topic} still has {filter_of(master, topic)}"
        consumer.subscribe_sql(topic, sql)


@pytest.mark.parametrize("make", BOTH)
def test_a_push_consumer_changes_its_filter_and_retries_pass_it(
    make: Make, meeting: Meeting, producers: dict[Make, StockProducer], clients: Clients, topic: str
) -> None:
    """Each message fails once; the first comes again when its filter no longer takes it."""
    meeting.create_topic(topic, [make], queues=1)
    namesrv = meeting.namesrvs[make].address
    consumer = clients.consumer(
        *("java", namesrv, topic, topic),
        sql="n BETWEEN 10 AND 19",
        fail_below=1,
        **QUICK_CONSUMER,
    )

    def send(numbers: list[int]) -> None:
        for number in numbers:
            producers[make].send(topic, str(number), properties={"n": str(number)})

    # The pull behind 12 may come with either filter: neither takes 20.
    send([5, 12, 20])
    consumer.wait_for_bodies(["12"])
    change_filter(consumer, meeting.masters[make], topic, "n > 20")
    # RocketMQ's parked pull still has the old filter: the first of these ends it.
    send([31])
    consumer.wait_for_bodies(["31"])
    send([13, 32])
    consumer.wait_for_bodies(["32"])
    messages = consumer.wait_for_count(6)
    found = sorted((message.body, message.reconsume_times) for message in messages)
    assert found == [(body, times) for body in ("12", "31", "32") for times in (0, 1)]
    consumer.stop()


@pytest.mark.parametrize("make", BOTH)
def test_retries_do_not_pass_a_filter_that_changed_if_the_broker_says_so(
    make: Make, processes: Processes, clients: Clients, topic: str
) -> None:
    """filterSupportRetry is on: 12 fails once, and the filter takes it no longer."""
    namesrv = trioha_namesrv(processes, name="namesrv").start()
    settings = {**MEETING_SETTINGS, "filterSupportRetry": True}
    start = trioha_broker if make == "trioha" else java_broker
    broker = start(processes, namesrv.address, name="filters", settings=settings)
    start_all([broker])
    put_topic(broker.address, topic, 1)
    wait_for_brokers(namesrv.address, topic, {"filters"})
    producer = clients.producer("java", namesrv.address)
    consumer = clients.consumer(
        *("java", namesrv.address, topic, topic), sql="n < 20", fail_below=1, **QUICK_CONSUMER
    )
    producer.send(topic, "12", properties={"n": "12"})
    consumer.wait_for_bodies(["12"])
    change_filter(consumer, broker, topic, "n >= 20")
    # RocketMQ's parked pull still has the old filter: the first of these ends it.
    for number in ("31", "32"):
        producer.send(topic, number, properties={"n": number})
        consumer.wait_for_bodies([number])
    # Retries come in their order: that of 12 was before these.
    messages = consumer.wait_for_count(5)
    found = sorted((message.body, message.reconsume_times) for message in messages)
    assert found == [("12", 0), *((body, times) for body in ("31", "32") for times in (0, 1))]


@pytest.mark.parametrize("make", BOTH)
def test_a_consumer_with_a_wrong_filter_does_not_start(
    make: Make, meeting: Meeting, clients: Clients, topic: str
) -> None:
    meeting.create_topic(topic, [make], queues=1)
    namesrv = meeting.namesrvs[make].address
    consumer = clients.consumer("java", namesrv, topic, topic, sql="n > 5 AND", wait=False)
    error = consumer.wait_for_event("broken", START_S)["error"]
    assert "CODE: 23" in error
    if make == "trioha":
        assert "'n > 5 AND': character 10: expected a property, a value" in error
