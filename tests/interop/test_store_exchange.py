"""A store changes hands between brokers: all of it is served by place, key and time.

`test_store.py` looks at the files that our store leaves; here a broker of one make takes over what
a broker of the other has been told by real clients, under the same name and address.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from support.clusters.meeting import QUICK_LEVELS, Meeting, wait_for_brokers
from support.clusters.pair import Make
from support.peers.clients import Clients, Received, StockConsumer, StockProducer
from support.peers.java import java_broker
from support.peers.java_tools import QUICK_CONSUMER, JavaReader
from support.processes.admin import put_topic, wait_for_progress
from support.processes.rig import Node, Processes, trioha_broker
from support.suite.ports import free_ports
from support.suite.sizes import drawn_cases

from trioha.store.inspect import verify_store

QUEUES = 3
# Small enough that a few large messages fill several.
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "maxMessageSize": 512 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "diskMaxUsedSpaceRatio": 95,
    "messageDelayLevel": QUICK_LEVELS,
}
# Many files per queue. Java chooses the one to search for a time by when it was last written, which
# for mapped files is some flush interval off.
MANY_FILES: Mapping[str, object] = {**SETTINGS, "mappedFileSizeConsumeQueue": 20 * 50}
OFF_MS = 2000
PROGRESS_S = 20.0  # a consumer commits every five seconds
# Level 10: comes due under the broker that takes over.
LATE_LEVEL = 10
LATE_S = 8.0
DUE_S = 40.0
BROKERS = {"trioha": trioha_broker, "java": java_broker}


def fill(producer: StockProducer, topic: str) -> int:
    """Messages of every kind, over several segments; how many will be in the topic's queues."""
    numbers = [
        producer.begin(
            topic, f"small {n} " + "x" * (n % 300), "async", tags=f"T{n % 3}", keys=f"k{n}"
        )
        for n in range(400)
    ]
    numbers += [producer.begin(topic, "", random_bytes=300_000, keys=f"big{n}") for n in range(8)]
    batch = [f"batch {n}" for n in range(20)]
    numbers.append(producer.begin(topic, batch, "batch", tags="Batch", keys="batch"))
    # Compressed by the client.
    numbers.append(producer.begin(topic, "long " * 4000, keys="long"))
    properties = {"colour": "tief-grün"}
    numbers.append(producer.begin(topic, "full", tags="F", keys="a b c", properties=properties))
    numbers.append(producer.begin(topic, "soon", delay_level=1, keys="soon"))
    assert {producer.outcome(number).status for number in numbers} == {"SEND_OK"}
    return 400 + 8 + 20 + 3


def essence(message: Received) -> tuple[object, ...]:
    """Return the parts that must not change, whichever broker serves the message."""
    return (
        *(message.queue_id, message.queue_offset, message.commit_log_offset, message.sha256),
        *(message.msg_id, message.offset_msg_id, message.tags, message.keys, message.store_size),
        *(message.born_timestamp, message.store_timestamp, message.reconsume_times),
        tuple(sorted((k, v) for k, v in message.properties.items() if k not in PULL_PROPERTIES)),
    )


# Added by the client to what it pulls.
PULL_PROPERTIES = ("MIN_OFFSET", "MAX_OFFSET")


def wait_for_bodies(reader: JavaReader, topic: str, bodies: set[str]) -> list[Received]:
    deadline = time.monotonic() + DUE_S
    while True:
        messages = reader.drain(topic)
        if bodies <= {message.body for message in messages}:
            return messages
        assert time.monotonic() < deadline, f"{bodies} never came"
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("writer_make", "taker_make", "end"),
    drawn_cases(
        "store exchange",
        [
            ("trioha", "java", "stopped"),
            ("java", "trioha", "killed"),
            ("java", "trioha", "stopped"),
            ("trioha", "java", "killed"),
        ],
        2,
    ),
)
def test_a_broker_takes_over_a_store_of_the_other_make(
    writer_make: Make,
    taker_make: Make,
    end: str,
    meeting: Meeting,
    producers: dict[Make, StockProducer],
    readers: dict[Make, JavaReader],
    processes: Processes,
    clients: Clients,
) -> None:
    topic = f"of-{writer_make}-{end}"
    namesrv = meeting.namesrvs["trioha"].address
    producer, reader = producers["trioha"], readers["trioha"]
    name, port, store = f"broker-{topic}", free_ports(), processes.root / "store"

    settings, off_ms = (SETTINGS, 0) if end == "stopped" else (MANY_FILES, OFF_MS)

    def broker(make: Make) -> Node:
        return BROKERS[make](
            processes, namesrv, name=name, port=port, store=store, settings=settings
        )

    writer = broker(writer_make).start()
    put_topic(writer.address, topic, QUEUES)
    wait_for_brokers(namesrv, topic, {name})
    count = fill(producer, topic)
    before = wait_for_bodies(reader, topic, {"soon"})
    assert len(before) == count
    group = f"{topic}-group"

    def stop_at_the_end(consumer: StockConsumer, broker: Node) -> None:
        # A Java consumer's last commit, made as it stops, may miss what it has only just handed
        # over: the broker must have the progress before.
        wait_for_progress(broker.address, group, topic, QUEUES, PROGRESS_S)
        consumer.stop()

    consumer = clients.consumer("java", namesrv, group, topic, **QUICK_CONSUMER)
    consumer.wait_for_count(count)
    stop_at_the_end(consumer, writer)
    # Only now, or it might come due while that consumer is still there.
    producer.send(topic, "late", delay_level=LATE_LEVEL, keys="late")
    late_at_s = time.monotonic() + LATE_S
    times = {
        (message.queue_id, ms): reader.search(topic, name, message.queue_id, ms)
        for message in before[::20]
        for ms in (message.store_timestamp - 1, message.store_timestamp + 1)
    }
    if end == "stopped":
        writer.stop()
    else:
        writer.kill()

    taker = broker(taker_make).start()
    wait_for_brokers(namesrv, topic, {name})
    after = reader.drain(topic)
    known = {essence(message) for message in before}
    # Delayed messages are delivered at least once: how far that was is written every ten seconds.
    again = {"late"} if end == "stopped" else {"late", "soon"}
    assert {message.body for message in after if essence(message) not in known} <= again
    assert [essence(m) for m in after if essence(m) in known] == [essence(m) for m in before]
    check_lookups(reader, topic, name, before, off_ms)
    if not off_ms:
        for (queue_id, ms), offset in times.items():
            stamps = {m.queue_offset: m.store_timestamp for m in before if m.queue_id == queue_id}
            found = reader.search(topic, name, queue_id, ms)
            # Several of one millisecond are equally near.
            assert abs(stamps[found] - ms) == abs(stamps[offset] - ms), (ms, found, offset)
    # The pending delayed message comes when it is due.
    messages = wait_for_bodies(reader, topic, {"late"})
    assert time.monotonic() >= late_at_s - 1.0
    assert [message.body for message in messages].count("late") == 1
    # Queues go on without a gap, and so does the group where its progress had been written.
    bodies = {f"new {number}" for number in range(12)}
    assert {s.status for s in producer.send_all(topic, sorted(bodies))} == {"SEND_OK"}
    messages = wait_for_bodies(reader, topic, bodies)
    for queue_id in range(QUEUES):
        offsets = [m.queue_offset for m in messages if m.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))
    if end == "stopped":
        heir = clients.consumer("java", namesrv, group, topic, **QUICK_CONSUMER)
        received = heir.wait_for_bodies(bodies | {"late"})
        assert sorted(m.body or "" for m in received) == sorted(bodies | {"late"})
        stop_at_the_end(heir, taker)
    taker.stop()
    report = verify_store(store)
    assert report.damage == []


def check_lookups(
    reader: JavaReader, topic: str, broker: str, messages: list[Received], off_ms: int
) -> None:
    """Every message by its id, by its keys and by its time."""
    store_timestamps = {(one.queue_id, one.queue_offset): one.store_timestamp for one in messages}
    for message in messages:
        assert message.offset_msg_id is not None
        assert essence(reader.view(message.offset_msg_id)) == essence(message)
        for key in (message.keys or "").split():
            found = {one.commit_log_offset for one in reader.query(topic, key)}
            assert message.commit_log_offset in found, key
        offset = reader.search(topic, broker, message.queue_id, message.store_timestamp)
        hit = store_timestamps[message.queue_id, offset]
        assert abs(hit - message.store_timestamp) <= off_ms
