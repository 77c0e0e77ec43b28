"""Push consumers of the stock clients through their whole life: tags, sharing, dying, retrying."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

import pytest
from support.clusters.pair import Cluster
from support.peers.capture import RecordingProxy, recording
from support.peers.clients import KINDS, Clients, Kind, StockConsumer, StockProducer
from support.processes.status import wait_until

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import decode_frame

# ali-ons rebalances every 5 s here, the C++ client when told (code 40) or every 20 s.
REBALANCE_S = 45.0
QUEUES = 4
# Both clients ask the broker to park a pull for 15 s. Here the broker is told a time that no test
# lasts, as long in digits, in the header as each client writes it.
PATIENT = {
    b'"suspendTimeoutMillis":"15000"': b'"suspendTimeoutMillis":"99999"',
    b'"suspendTimeoutMillis":15000': b'"suspendTimeoutMillis":99999',
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_gets_only_the_tags_it_asked_for(
    kind: Kind, shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv = shared_cluster.namesrv
    producer = clients.producer("cpp", namesrv)
    reader = clients.consumer(kind, namesrv, f"{topic}-group", topic, "TagA || TagC")
    everything = clients.consumer(kind, namesrv, f"{topic}-all", topic)
    for number in range(10):
        for tags in ("TagA", "TagB", "TagC", None):
            producer.send(topic, f"{tags} {number}", tags=tags)
    wanted = [f"{tags} {number}" for tags in ("TagA", "TagC") for number in range(10)]
    everything.wait_for_count(40)
    messages = reader.wait_for_bodies(wanted)
    assert sorted(message.body or "" for message in messages) == sorted(wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_consumer_is_woken_by_a_message(
    kind: Kind, shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    """Each message is the answer to a pull that was parked, with no end in sight, before it."""
    producer = clients.producer("cpp", shared_cluster.namesrv)
    with contextlib.ExitStack() as proxies:
        broker = proxies.enter_context(recorded(shared_cluster.master.address, PATIENT))
        moved = {shared_cluster.master.address.encode(): broker.address.encode()}
        namesrv = proxies.enter_context(recorded(shared_cluster.namesrv, moved))
        reader = clients.consumer(kind, namesrv.address, f"{topic}-group", topic)
        for number in range(3):
            wait_until("all queues parked", lambda: len(parked_at(broker, topic)) == QUEUES)
            parked = parked_at(broker, topic)
            body = f"woken {number}"
            producer.send(topic, body, mode="ordered", shard=1)
            reader.wait_for_bodies([body])
            answers = {
                (chunk.connection, answer.opaque): answer.code
                for chunk in list(broker.chunks)
                if chunk.way == "down" and (answer := decode_frame(chunk.data)).is_response
            }
            queue_id = reader.messages[-1].queue_id
            assert answers[parked[queue_id]] == ResponseCode.SUCCESS, answers
        reader.stop()
    assert {message.queue_id for message in reader.messages} == {queue_id}


def recorded(
    address: str, rewrite: Mapping[bytes, bytes]
) -> AbstractContextManager[RecordingProxy]:
    host, _, port = address.partition(":")
    return recording(RecordingProxy((host, int(port)), rewrite=rewrite))


def parked_at(broker: RecordingProxy, topic: str) -> dict[int, tuple[int, int]]:
    """Return the queues of the topic whose last pull has no answer yet, and that pull."""
    waiting: dict[int, tuple[int, int]] = {}
    for chunk in list(broker.chunks):
        command = decode_frame(chunk.data)
        key = chunk.connection, command.opaque
        if chunk.way == "down":
            waiting = {queue: pull for queue, pull in waiting.items() if pull != key}
        elif command.code == RequestCode.PULL_MESSAGE and command.ext_str("topic") == topic:
            assert any(written in chunk.data for written in PATIENT), chunk.data
            waiting[command.ext_int("queueId")] = key
    return waiting


def queues_of(consumer: StockConsumer, since: int = 0) -> set[int]:
    return {message.queue_id for message in consumer.messages[since:]}


def fill_until_shared(producer: StockProducer, topic: str, pair: list[StockConsumer]) -> list[str]:
    """Send rounds of messages until both consumers have the same shares of two rounds on end.

    One round is not enough: a consumer that has not yet given a queue up may get its copy of a
    message after the other one, when the round is complete. It then comes within the next round.
    """
    bodies: list[str] = []
    before: list[set[int]] = []
    deadline = time.monotonic() + REBALANCE_S
    while True:
        since = [len(consumer.messages) for consumer in pair]
        fresh = [f"shared {len(bodies) + number}" for number in range(8)]
        producer.send_all(topic, fresh)
        bodies += fresh
        wait_for_all(pair, bodies)
        shares = [queues_of(one, start) for one, start in zip(pair, since, strict=True)]
        if all(shares) and not shares[0] & shares[1] and shares == before:
            return bodies
        assert time.monotonic() < deadline, f"the group never shared: {before}, then {shares}"
        before = shares
        time.sleep(0.5)


def wait_for_all(consumers: list[StockConsumer], bodies: list[str], within_s: float = 30.0) -> None:
    """Wait until the consumers together have every body."""
    wanted = set(bodies)
    deadline = time.monotonic() + within_s
    for consumer in consumers:

        def complete() -> bool:
            return wanted <= {body for one in consumers for body in one.bodies}

        # Deliveries to this consumer end the wait; the next ones are looked at in turn.
        while not complete() and time.monotonic() < deadline:
            with consumer.changed:
                consumer.changed.wait(0.2)
    missing = wanted - {body for one in consumers for body in one.bodies}
    assert not missing, f"{len(missing)} of {len(wanted)} missing, such as {sorted(missing)[:5]}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_consumers_share_the_queues_and_one_takes_over_when_the_other_is_killed(
    kind: Kind, shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv, group = shared_cluster.namesrv, f"{topic}-group"
    producer = clients.producer("cpp", namesrv)
    pair = [clients.consumer(kind, namesrv, group, topic) for _ in range(2)]
    bodies = fill_until_shared(producer, topic, pair)
    # Nothing is lost over the hand-over, and once settled nothing comes twice.
    settled = [f"settled {number}" for number in range(40)]
    producer.send_all(topic, settled)
    wait_for_all(pair, bodies + settled)
    delivered = [
        (one.process.name, message.queue_id, message.queue_offset, message.body)
        for one in pair
        for message in list(one.messages)
        if message.body in set(settled)
    ]
    assert sorted(str(body) for *_, body in delivered) == sorted(settled), delivered

    dead, survivor = pair
    dead.kill()
    orphaned = [f"orphaned {number}" for number in range(40)]
    producer.send_all(topic, orphaned)
    survivor.wait_for_bodies(orphaned, REBALANCE_S)
    assert queues_of(survivor) == {0, 1, 2, 3}


@pytest.mark.slow
def test_a_failed_message_comes_back_after_its_delay(
    shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv = shared_cluster.namesrv
    producer = clients.producer("cpp", namesrv)
    # Both clients first hear of their retry topic's route after a poll, so both wait at once.
    readers = {
        kind: clients.consumer(kind, namesrv, f"{topic}-{kind}", topic, fail_below=2)
        for kind in KINDS
    }
    producer.send(topic, "again please", tags="TagA", keys="k")
    for kind, reader in readers.items():
        deliveries = reader.wait_for_count(3, 90)
        assert [d.reconsume_times for d in deliveries] == [0, 1, 2], kind
        assert {d.body for d in deliveries} == {"again please"}, kind
        assert {(d.tags, d.keys) for d in deliveries} == {("TagA", "k")}, kind
        # Level 3, then level 4; see QUICK_LEVELS.
        first, second, third = (d.store_timestamp for d in deliveries)
        assert second - first >= 1900, kind
        assert third - second >= 2900, kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_goes_on_where_its_group_stopped(
    kind: Kind, shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv, group = shared_cluster.namesrv, f"{topic}-group"
    producer = clients.producer("cpp", namesrv)
    first = [f"first {number}" for number in range(20)]
    second = [f"second {number}" for number in range(20)]
    producer.send_all(topic, first)
    reader = clients.consumer(kind, namesrv, group, topic)
    reader.wait_for_bodies(first)
    reader.stop()
    producer.send_all(topic, second)
    heir = clients.consumer(kind, namesrv, group, topic)
    messages = heir.wait_for_bodies(second)
    assert sorted(message.body or "" for message in messages) == sorted(second)
