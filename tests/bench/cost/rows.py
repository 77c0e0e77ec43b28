"""The rows of the budget: layouts and numbers of senders, each run for a few messages."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio
from bench.cost.counters import Counts, NodeCounter

from trioha.bench.frames import ResponseReader, SendFrame
from trioha.client.message import MessageQueue
from trioha.services.loop.transport import Transport, parse_address
from trioha.testing import open_cluster
from trioha.testing.machines import Layout
from trioha.testing.memory_cluster import CLIENTS, MemoryCluster
from trioha.testing.virtual_time import run_on_virtual_time

LAYOUTS: Mapping[str, Layout] = {
    "alone": "single",
    "async slave": [("broker-a", 0, "ASYNC_MASTER"), ("broker-a", 1, "SLAVE")],
    "SYNC": "pair",
    "DLEDGER": "raft",
}
SENDERS = (1, 8, 64)
WARM_UP_TURNS = 6
TURNS = {1: 24, 8: 10, 64: 4}
"""Times that each of so many senders sends and waits for its answer."""
REST_S = 0.005
"""Virtual seconds between two turns: the push to slaves gathers for two milliseconds."""
SETTLE_S = 0.03
"""Virtual seconds behind the last turn: queues and index are brought up to the log every 20 ms."""
BODY = bytes(128)


@attrs.frozen
class Row:
    layout: str
    senders: int

    @property
    def name(self) -> str:
        return f"{self.layout}/{self.senders}"


ROWS = tuple(Row(layout, senders) for layout in LAYOUTS for senders in SENDERS)


def cost_of(row: Row) -> dict[str, float]:
    """Return ``node/what`` -> number per acknowledged message."""

    async def run() -> dict[str, float]:
        async with open_cluster(LAYOUTS[row.layout], seed=1) as cluster:
            assert isinstance(cluster, MemoryCluster)
            # Bytes arrive at once: how many of them meet in one read is up to the nodes alone.
            cluster.world.network.latency_ms_max = 0
            return await _measured(cluster, row.senders, counter)

    counter = NodeCounter()
    with counter.watching():
        return run_on_virtual_time(run)


async def _measured(cluster: MemoryCluster, senders: int, counter: NodeCounter) -> dict[str, float]:
    master = await cluster.master_of("broker-a")
    host, port = parse_address(master.address)
    transport = await cluster.world.network.connect(CLIENTS, host, port)
    queues = [MessageQueue("cost", "broker-a", number) for number in range(4)]
    frames = [
        SendFrame(slot, queues[slot % 4], BODY, group="cost", id_prefix="0" * 24)
        for slot in range(senders)
    ]
    await _send_turns(transport, frames, WARM_UP_TURNS)
    messages = TURNS[senders] * senders
    with counter.counting():
        await _send_turns(transport, frames, TURNS[senders])
    transport.close()
    costs = {}
    for broker in cluster.brokers:
        counts = counter.by_host.get(parse_address(broker.address)[0], Counts())
        for what, count in attrs.asdict(counts).items():
            is_master = broker is master
            place = "master" if is_master else f"slave {broker.machine.number}"
            costs[f"{place}/{what}"] = round(count / messages, 2)
    return costs


async def _send_turns(transport: Transport, frames: list[SendFrame], turns: int) -> None:
    """Send from all slots at once, and again when all answers are there.

    A closed loop of slots would let chance decide which of them share a read.
    """
    reader = ResponseReader()
    serial = 0
    for _ in range(turns):
        out: list[bytes] = []
        for frame in frames:
            frame.append_to(out, b"1700000000000", serial)
            serial += 1
        await transport.send_all([b"".join(out)])
        answered = 0
        while answered < len(frames):
            answered += len(reader.slots(await transport.receive_some()))
        # Work that the nodes do after the answers belongs to the messages as well.
        await trio.sleep(REST_S)
    await trio.sleep(SETTLE_S)
    assert not reader.refusals, reader.refusals
