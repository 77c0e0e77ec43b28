"""Messages that have left the page cache, and the stock client that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clusters.pair import SMALL_FILES
from support.peers.clients import Clients, Sent
from support.peers.java_tools import QUICK_CONSUMER
from support.processes.admin import put_topic
from support.processes.http import metric
from support.processes.page_cache import drop_page_cache, held_in_memory
from support.processes.rig import Node, Processes, start_all, trioha_broker, trioha_namesrv
from support.processes.status import run_trioha, wait_for_event, wait_in_sync, wait_level

from trioha.wire.message_id import decode_message_id

TOPIC, GROUP = "T", "far-behind"
BODIES = ["x" * 20_000] * 300
OLDER, YOUNGER = 1000, 6000
"""Messages of 64 KiB before and after. A start reads the beginning of the log, and the last 256 MiB
count as being in memory."""
RECORD_BYTES_MAX = 20_500
SEGMENT_BYTES = 64 * 1024 * 1024
READ_S = 60.0


@pytest.mark.parametrize("slave_remembers", [False, True])
def test_a_java_consumer_of_old_messages_reads_them_from_the_slave(
    slave_remembers: bool, processes: Processes, clients: Clients
) -> None:
    """The slave has them in memory or not."""
    namesrv = trioha_namesrv(processes).start().address
    master, slave = (
        trioha_broker(
            processes,
            namesrv,
            broker_id=number,
            role=role,
            settings={
                **SMALL_FILES,
                "mappedFileSizeCommitLog": SEGMENT_BYTES,
                "slaveReadEnable": True,
            },
        )
        for number, role in enumerate(("ASYNC_MASTER", "SLAVE"))
    )
    start_all([master, slave])
    wait_in_sync(master)
    put_topic(master.address, TOPIC, 1)
    fill(namesrv, OLDER)
    producer = clients.producer("java", namesrv, compress_over=1 << 20)
    sent = producer.send_all(TOPIC, BODIES)
    fill(namesrv, YOUNGER)
    producer.send(TOPIC, "a start reads a queue's last message, and the disk megabytes around it")
    wait_level(master, slave)
    for node in (master, slave):
        node.stop()
    for node in (master, slave):
        assert node.store is not None
        drop_page_cache(node.store)
    start_all([master, slave])
    wait_in_sync(master)

    offsets = range(len(BODIES) + 1)
    with held_in_memory(*(places_of(sent, slave) if slave_remembers else ())):
        reader = clients.consumer("java", namesrv, GROUP, TOPIC, **QUICK_CONSUMER)
        reader.wait_until(
            lambda: {message.queue_offset for message in reader.messages} >= set(offsets),
            "all messages",
            READ_S,
        )
    # A pull of the master's has found out that the messages are on disk.
    wait_for_event(master, "cold_reads_began", group=GROUP)
    assert metric(master, "trioha_cold_reads_total") == 1
    assert (metric(slave, "trioha_cold_reads_total") == 0) == slave_remembers


def places_of(sent: list[Sent], node: Node) -> Iterator[tuple[Path, int, int]]:
    """Yield the parts of files that hold the messages and their queue entries."""
    assert node.store is not None
    yield node.store / "consumequeue" / TOPIC / "0" / f"{0:020d}", 0, len(sent) * 20
    begin, last = (decode_message_id(one.offset_msg_id or "")[2] for one in (sent[0], sent[-1]))
    end = last + RECORD_BYTES_MAX
    while begin < end:
        base = begin - begin % SEGMENT_BYTES
        stop = min(end, base + SEGMENT_BYTES)
        yield node.commitlog / f"{base:020d}", begin - base, stop - base
        begin = stop


def fill(namesrv: str, count: int) -> None:
    load = ("-t", "others", "--size", "65536", "--count", str(count), "--concurrency", "8")
    assert run_trioha("bench", "produce", "-n", namesrv, *load, "--warm-up", "0").code == 0
