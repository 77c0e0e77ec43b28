"""Messages that have left the page cache, and the stock client that reads them."""

from __future__ import annotations

import pytest
from support.clusters.pair import SMALL_FILES
from support.peers.clients import Clients
from support.peers.java_tools import QUICK_CONSUMER
from support.processes.admin import put_topic
from support.processes.http import metric
from support.processes.page_cache import drop_page_cache
from support.processes.rig import Processes, start_all, trioha_broker, trioha_namesrv
from support.processes.status import run_trioha, wait_for_event, wait_in_sync, wait_level

TOPIC, GROUP = "T", "far-behind"
BODIES = ["x" * 20_000] * 500
OLDER, YOUNGER = 1000, 6000
"""Messages of 64 KiB before and after. A start reads the beginning of the log, and the last 256 MiB
count as being in memory."""
READ_S = 60.0


@pytest.mark.parametrize("slave_remembers", [False, True])
def test_a_java_consumer_of_old_messages_reads_them_from_the_slave(
    slave_remembers: bool, processes: Processes, clients: Clients
) -> None:
    """Whether or not the slave has them in memory."""
    namesrv = trioha_namesrv(processes).start().address
    master, slave = (
        trioha_broker(
            processes,
            namesrv,
            broker_id=number,
            role=role,
            settings={**SMALL_FILES, "slaveReadEnable": True},
        )
        for number, role in enumerate(("ASYNC_MASTER", "SLAVE"))
    )
    start_all([master, slave])
    wait_in_sync(master)
    put_topic(master.address, TOPIC, 1)
    fill(namesrv, OLDER)
    clients.producer("java", namesrv, compress_over=1 << 20).send_all(TOPIC, BODIES)
    fill(namesrv, YOUNGER)
    wait_level(master, slave)
    for node in (master, slave):
        node.stop()
    for node in [master] if slave_remembers else [master, slave]:
        assert node.store is not None
        drop_page_cache(node.store)
    start_all([master, slave])
    wait_in_sync(master)

    reader = clients.consumer("java", namesrv, GROUP, TOPIC, **QUICK_CONSUMER)
    offsets = range(len(BODIES))
    reader.wait_until(
        lambda: {message.queue_offset for message in reader.messages} >= set(offsets),
        "all messages",
        READ_S,
    )
    # A pull of the master's has found out that the messages are on disk.
    wait_for_event(master, "cold_reads_began", group=GROUP)
    assert metric(master, "trioha_cold_reads_total") == 1
    assert (metric(slave, "trioha_cold_reads_total") == 0) == slave_remembers


def fill(namesrv: str, count: int) -> None:
    load = ("-t", "others", "--size", "65536", "--count", str(count), "--concurrency", "8")
    assert run_trioha("bench", "produce", "-n", namesrv, *load).code == 0
