"""Messages of the stock clients arrive as they were sent, at every reader."""

from __future__ import annotations

import base64
import hashlib
import random

import pytest
from support.clusters.pair import Cluster
from support.peers.clients import KINDS, Clients, Kind, Received, SendFailed

MIB = 1024 * 1024
MESSAGE_BYTES_MAX = 4 * MIB
SIZES = (1, 2, 127, 4095, 4096, 4097, 32 * 1024, 128 * 1024 + 1, MIB, MESSAGE_BYTES_MAX)
# Java writes no such name; JavaScript's absent tag is the word.
NO_TAGS = {None, "", "null"}


def text_of_size(size: int) -> str:
    """Text of exactly `size` ASCII characters that compresses badly."""
    data = random.Random(size).randbytes(size * 3 // 4 + 3)
    return base64.b64encode(data)[:size].decode()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def by_body(messages: list[Received]) -> dict[str | None, Received]:
    return {message.body: message for message in messages}


@pytest.mark.parametrize("consumer_kind", KINDS)
@pytest.mark.parametrize("producer_kind", KINDS)
def test_what_one_client_sends_the_other_consumes(
    producer_kind: Kind,
    consumer_kind: Kind,
    shared_cluster: Cluster,
    clients: Clients,
    topic: str,
) -> None:
    namesrv = shared_cluster.namesrv
    producer = clients.producer(producer_kind, namesrv)

    sent = producer.send(
        topic, "with everything", tags="TagA", keys="k1 k2", properties={"colour": "tief-grün"}
    )
    assert sent.status == "SEND_OK"
    assert producer.send(topic, "bare").status == "SEND_OK"
    assert producer.send(topic, "sharded", "ordered", shard=2).status == "SEND_OK"
    singles = [f"number {number}" for number in range(40)]
    assert {result.status for result in producer.send_all(topic, singles)} == {"SEND_OK"}

    consumer = clients.consumer(consumer_kind, namesrv, f"{topic}-group", topic)
    messages = consumer.wait_for_bodies(["with everything", "bare", "sharded", *singles])

    assert len(messages) == len(singles) + 3
    assert {message.topic for message in messages} == {topic}
    full, bare = by_body(messages)["with everything"], by_body(messages)["bare"]
    assert (full.tags, full.keys) == ("TagA", "k1 k2")
    assert full.properties["colour"] == "tief-grün"
    assert bare.tags in NO_TAGS
    assert bare.reconsume_times == 0
    # Every queue counts from zero without a gap.
    for queue_id in range(4):
        offsets = [m.queue_offset for m in messages if m.queue_id == queue_id]
        assert sorted(offsets) == list(range(len(offsets)))


def test_oneway_messages_arrive(shared_cluster: Cluster, clients: Clients, topic: str) -> None:
    # ali-ons has no one-way send.
    producer = clients.producer("cpp", shared_cluster.namesrv)
    bodies = [f"oneway {number}" for number in range(20)]
    for body in bodies:
        producer.send(topic, body, "oneway")
    # The answer of a sync send says that the oneway ones before it on the connection are in.
    producer.send(topic, "last")
    consumer = clients.consumer("js", shared_cluster.namesrv, f"{topic}-group", topic)
    messages = consumer.wait_for_bodies([*bodies, "last"])
    assert len(messages) == len(bodies) + 1


def test_a_batch_arrives_message_by_message(
    shared_cluster: Cluster, clients: Clients, topic: str, make: str
) -> None:
    # ali-ons has no batch send. The C++ client's marks a batch with "1", where the Java broker
    # knows only "true": it stores the whole batch as one body, which its own users complained of.
    producer = clients.producer("cpp", shared_cluster.namesrv)
    bodies = [f"element {number}" for number in range(10)]
    result = producer.send(topic, bodies, "batch", tags="TagB")
    assert result.status == "SEND_OK"
    consumer = clients.consumer("js", shared_cluster.namesrv, f"{topic}-group", topic)
    if make == "java":
        (blob,) = consumer.wait_for_count(1)
        assert blob.size > sum(map(len, bodies))
        return
    messages = consumer.wait_for_bodies(bodies)
    assert len(messages) == len(bodies)
    assert {message.tags for message in messages} == {"TagB"}
    # One batch, one queue, one after the other.
    assert len({message.queue_id for message in messages}) == 1
    assert [m.body for m in sorted(messages, key=lambda m: m.queue_offset)] == bodies


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_of_one_byte_to_four_mebibytes_arrive_whole(
    kind: Kind, shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv = shared_cluster.namesrv
    texts = [text_of_size(size) for size in SIZES]
    producer = clients.producer(kind, namesrv)
    readers = [clients.consumer(reader, namesrv, f"{topic}-{reader}", topic) for reader in KINDS]
    assert {result.status for result in producer.send_all(topic, texts)} == {"SEND_OK"}
    expected = {(len(text), digest(text)) for text in texts}
    for reader in readers:
        messages = reader.wait_for_count(len(texts))
        assert {(message.size, message.sha256) for message in messages} == expected


def test_a_stored_body_of_exactly_the_limit_passes_and_one_byte_more_is_refused(
    shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    # The limit is on the body as sent: only ali-ons can be told not to compress.
    producer = clients.producer("js", shared_cluster.namesrv, compress_over=64 * MIB)
    whole, over = text_of_size(MESSAGE_BYTES_MAX), text_of_size(MESSAGE_BYTES_MAX + 1)
    assert producer.send(topic, whole).status == "SEND_OK"
    with pytest.raises(SendFailed, match="MQClientException"):
        producer.send(topic, over)
    # The refusal disturbs nothing: the same connection goes on.
    assert producer.send(topic, "after").status == "SEND_OK"
    reader = clients.consumer("cpp", shared_cluster.namesrv, f"{topic}-group", topic)
    messages = reader.wait_for_count(2)
    assert {message.sha256 for message in messages} == {digest(whole), digest("after")}


def test_what_the_cpp_client_cannot_compress_below_the_limit_is_refused(
    shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    producer = clients.producer("cpp", shared_cluster.namesrv)
    assert producer.send(topic, "", random_bytes=MESSAGE_BYTES_MAX - 8192).status == "SEND_OK"
    with pytest.raises(SendFailed):
        producer.send(topic, "", random_bytes=MESSAGE_BYTES_MAX + 1)
    assert producer.send(topic, "after").status == "SEND_OK"


@pytest.mark.parametrize("kind", KINDS)
def test_ordered_messages_share_a_queue_and_keep_their_order(
    kind: Kind, shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv = shared_cluster.namesrv
    producer = clients.producer(kind, namesrv)
    readers = [
        clients.consumer("cpp", namesrv, f"{topic}-cpp", topic, orderly=True),
        clients.consumer("js", namesrv, f"{topic}-js", topic),
    ]
    # ali-ons takes a key that hashes to queue 0 for no key at all; these do not.
    lanes = {shard: [f"{shard}/{step}" for step in range(25)] for shard in (2, 3, 5)}
    # One message of each lane in turn, so that order within a lane is not mere order of sending.
    for step in range(25):
        for shard, bodies in lanes.items():
            result = producer.send(topic, bodies[step], "ordered", shard=shard)
            assert result.status == "SEND_OK"
    for reader in readers:
        messages = reader.wait_for_count(75)
        for bodies in lanes.values():
            lane = [message for message in messages if message.body in bodies]
            assert [message.body for message in lane] == bodies
            assert len({message.queue_id for message in lane}) == 1


def test_a_delayed_message_comes_after_its_delay(
    shared_cluster: Cluster, clients: Clients, topic: str
) -> None:
    namesrv = shared_cluster.namesrv
    producers = {kind: clients.producer(kind, namesrv) for kind in KINDS}
    reader = clients.consumer("cpp", namesrv, f"{topic}-group", topic)
    for kind, producer in producers.items():
        producer.send(topic, f"{kind} at once")
        producer.send(topic, f"{kind} later", delay_level=1)
    bodies = [f"{kind} {when}" for kind in KINDS for when in ("at once", "later")]
    messages = by_body(reader.wait_for_bodies(bodies))
    for kind in KINDS:
        late, prompt = messages[f"{kind} later"], messages[f"{kind} at once"]
        assert late.topic == topic
        assert 900 <= late.store_timestamp - late.born_timestamp < 5000
        assert prompt.store_timestamp - prompt.born_timestamp < 900
