"""The Java client at every mix of the two makes: each way of sending, each kind of consumer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from support.clusters.meeting import BOTH, NAMES, Meeting
from support.clusters.pair import Make
from support.peers.clients import Clients, Received, SendFailed, StockConsumer, StockProducer
from support.peers.java_tools import QUICK_CONSUMER, JavaReader
from support.suite.sizes import drawn_cases

# Retries come after the broker's level 3, see support/clusters/meeting.py.
RETRY_DELAY_S = 2.0
RETRIED_S = 60.0
SHARDS = 3
PER_SHARD = 5

mixes = pytest.mark.parametrize(
    ("namesrv_make", "makes"),
    drawn_cases(
        "mixes",
        [
            pytest.param("trioha", ("trioha",), id="trioha-at-trioha"),
            pytest.param("java", BOTH, id="both-at-java"),
            pytest.param("trioha", ("java",), id="java-at-trioha"),
            pytest.param("trioha", BOTH, id="both-at-trioha"),
            pytest.param("java", ("trioha",), id="trioha-at-java"),
        ],
        2,
    ),
)


@attrs.frozen
class Consumers:
    """One consumer of each kind, each in a group of its own."""

    concurrent: StockConsumer
    lite: StockConsumer
    orderly: StockConsumer
    failing: StockConsumer


def start_consumers(clients: Clients, namesrv: str, topic: str) -> Consumers:
    """Start all at once: together they wait no longer than one of them."""
    common: dict[str, Any] = {"wait": False, **QUICK_CONSUMER}
    consumers = Consumers(
        clients.consumer("java", namesrv, f"{topic}-c", topic, **common),
        clients.consumer("java", namesrv, f"{topic}-l", topic, lite=True, **common),
        # Each message is suspended once and comes again before the next.
        clients.consumer(
            "java", namesrv, f"{topic}-o", topic, "Ordered", orderly=True, fail_below=1, **common
        ),
        # Fails for good: one retry, then the dead letter queue.
        clients.consumer(
            "java",
            namesrv,
            f"{topic}-f",
            topic,
            "Failing",
            fail_below=9,
            max_reconsume_times=1,
            **common,
        ),
    )
    for consumer in attrs.astuple(consumers, recurse=False):
        consumer.wait_until_ready()
    return consumers


def send_in_every_way(producer: StockProducer, topic: str) -> tuple[list[str], set[str | None]]:
    """Send; return the bodies that were sent, and the brokers that took them."""
    bodies = [f"{mode} {number}" for mode in ("sync", "async", "oneway") for number in range(20)]
    numbers = [producer.begin(topic, body, body.split()[0]) for body in bodies]
    for shard in range(SHARDS):
        for position in range(PER_SHARD):
            bodies.append(f"ordered {shard} {position}")
            numbers.append(
                producer.begin(topic, bodies[-1], "ordered", shard=shard, tags="Ordered")
            )
    batch = [f"batch {number}" for number in range(10)]
    numbers.append(producer.begin(topic, batch, "batch", tags="Batch", keys="batch-key"))
    full: dict[str, Any] = {
        "tags": "Failing",
        "keys": "k1 k2",
        "properties": {"colour": "tief-grün"},
    }
    numbers.append(producer.begin(topic, "with everything", **full))
    results = [producer.outcome(number) for number in numbers]
    assert {result.status for result in results} == {"SEND_OK", "ONEWAY"}
    brokers = {result.broker for result in results if result.status == "SEND_OK"}
    return [*bodies, *batch, "with everything"], brokers


@mixes
def test_every_way_of_sending_reaches_every_kind_of_consumer(
    namesrv_make: Make,
    makes: Sequence[Make],
    meeting: Meeting,
    producers: dict[Make, StockProducer],
    readers: dict[Make, JavaReader],
    clients: Clients,
    topic: str,
) -> None:
    meeting.create_topic(topic, makes)
    namesrv = meeting.namesrvs[namesrv_make].address
    consumers = start_consumers(clients, namesrv, topic)
    bodies, brokers = send_in_every_way(producers[namesrv_make], topic)
    assert brokers == {NAMES[make] for make in makes}

    for consumer in (consumers.concurrent, consumers.lite):
        messages = consumer.wait_for_bodies(bodies)
        assert sorted(message.body or "" for message in messages) == sorted(bodies)
        assert {message.topic for message in messages} == {topic}
    full = next(message for message in messages if message.body == "with everything")
    assert (full.tags, full.keys) == ("Failing", "k1 k2")
    assert full.properties["colour"] == "tief-grün"

    pulled = readers[namesrv_make].drain(topic)
    assert sorted(message.body or "" for message in pulled) == sorted(bodies)
    check_queues(pulled)
    check_batch(pulled)
    check_order(consumers.orderly)
    check_failures(consumers.failing, topic)
    (dead,) = wait_for_dead_letters(readers[namesrv_make], f"{topic}-f")
    assert (dead.body, dead.tags, dead.keys) == ("with everything", "Failing", "k1 k2")
    assert dead.properties["RETRY_TOPIC"] == topic


def check_queues(messages: list[Received]) -> None:
    """Check that every queue counts from zero without a gap."""
    offsets = defaultdict(list)
    for message in messages:
        offsets[message.broker, message.queue_id].append(message.queue_offset)
    for found in offsets.values():
        assert found == list(range(len(found)))


def check_batch(messages: list[Received]) -> None:
    """Check the batch: one queue, in order, each message with the batch's tags and keys."""
    batch = [message for message in messages if message.tags == "Batch"]
    assert [message.body for message in batch] == [f"batch {number}" for number in range(10)]
    assert len({(message.broker, message.queue_id) for message in batch}) == 1
    assert {message.keys for message in batch} == {"batch-key"}
    assert len({message.msg_id for message in batch}) == 10


def check_order(orderly: StockConsumer) -> None:
    """Check that each shard is in order, though each of its messages failed once."""
    deliveries = orderly.wait_for_count(2 * SHARDS * PER_SHARD)
    for shard in range(SHARDS):
        mine = [m for m in deliveries if (m.body or "").startswith(f"ordered {shard} ")]
        assert [(m.body, m.reconsume_times) for m in mine] == [
            (f"ordered {shard} {position}", times)
            for position in range(PER_SHARD)
            for times in (0, 1)
        ]


def check_failures(failing: StockConsumer, topic: str) -> None:
    """Check that the message comes back once, after its delay, as the same message of its topic."""
    first, again = failing.wait_for_count(2, RETRIED_S)
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert first.topic == again.topic == topic
    assert again.body == "with everything"
    assert (again.tags, again.keys) == ("Failing", "k1 k2")
    assert again.msg_id == first.msg_id
    assert again.store_timestamp - first.store_timestamp >= (RETRY_DELAY_S - 0.1) * 1000


def wait_for_dead_letters(reader: JavaReader, group: str) -> list[Received]:
    """Wait for messages in the group's dead letter queue; return them."""
    deadline = time.monotonic() + RETRIED_S
    while True:
        try:
            letters = reader.drain(f"%DLQ%{group}")
        except SendFailed as error:
            # Not yet made: the client knows no queue of it.
            letters, reason = [], str(error)
        else:
            reason = "it is empty"
        if letters:
            return letters
        assert time.monotonic() < deadline, f"no dead letters of {group}: {reason}"
        time.sleep(0.2)


@pytest.mark.parametrize("namesrv_make", BOTH)
def test_a_topic_is_made_on_both_masters_by_sending_to_it(
    namesrv_make: Make,
    meeting: Meeting,
    producers: dict[Make, StockProducer],
    readers: dict[Make, JavaReader],
    topic: str,
) -> None:
    bodies = [f"number {number}" for number in range(16)]
    results = producers[namesrv_make].send_all(topic, bodies)
    assert {result.status for result in results} == {"SEND_OK"}
    assert {result.broker for result in results} == set(NAMES.values())
    messages = readers[namesrv_make].drain(topic)
    assert sorted(message.body or "" for message in messages) == sorted(bodies)


@pytest.mark.parametrize("make", BOTH)
def test_consumers_of_both_name_servers_share_one_group(
    make: Make,
    meeting: Meeting,
    producers: dict[Make, StockProducer],
    clients: Clients,
    topic: str,
) -> None:
    """Membership is the broker's knowledge: which name server led a client there is no matter."""
    meeting.create_topic(topic, [make])
    pair = [
        clients.consumer(
            "java", meeting.namesrvs[one].address, "pair", topic, wait=False, **QUICK_CONSUMER
        )
        for one in BOTH
    ]
    for consumer in pair:
        consumer.wait_until_ready()
    deadline = time.monotonic() + RETRIED_S
    sent = 0
    while True:
        since = [len(consumer.messages) for consumer in pair]
        producers["trioha"].send_all(topic, [f"body {sent + number}" for number in range(8)])
        sent += 8
        while sum(len(consumer.messages) for consumer in pair) < sent:
            assert time.monotonic() < deadline, "messages are missing"
            time.sleep(0.05)
        shares = [
            {message.queue_id for message in consumer.messages[start:]}
            for consumer, start in zip(pair, since, strict=True)
        ]
        if all(shares) and not shares[0] & shares[1]:
            return
        assert time.monotonic() < deadline, f"the group never shared: {shares}"
        time.sleep(0.2)
