"""A failover under stock clients, and all that the clients were told about it.

A SYNC_MASTER with a slave takes messages from the C++ and the Node.js client. It is killed with
SIGKILL under load; an operator makes its slave the master with `trioha failover`; the load goes on,
at first without a slave; the old master comes back and follows. In the end an auditor reads both
topics from their first message: what is stored is what it was told, place, time and size of each
message. Nothing here reads a store.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from support.clusters.pair import Cluster
from support.peers.clients import Clients, Kind, Received, SendFailed, StockConsumer, StockProducer
from support.processes.admin import consumer_offset, create_topic, max_offset
from support.processes.rig import Processes
from support.processes.status import journal, run_trioha, wait_in_sync, wait_level, wait_until
from support.processes.worker import Worker

TOPICS: dict[Kind, str] = {"cpp": "orders", "js": "events"}
QUEUES = {"orders": 4, "events": 2}
PHASE_SENDS = 400
PAUSE_S = 0.004
GOES_ON_S = 90.0
"""The C++ client asks for routes every thirty seconds, and may just have done so."""


@attrs.frozen
class Told:
    """One send and its answer. `status` is empty when the send failed."""

    topic: str
    body: str
    keys: str
    tags: str
    status: str
    msg_id: str
    queue_offset: int
    asked_ms: int
    answered_ms: int


@attrs.define(eq=False)
class Incident:
    """Stores, times by this machine's clock, and answers of one incident."""

    first_store: Path
    second_store: Path
    namesrv_journal: Path
    sends: list[Told] = attrs.field(factory=list)
    stored: dict[str, list[Received]] = attrs.field(factory=dict)
    """Topic -> every message in it, as the auditor was given them."""
    committed: dict[tuple[str, str], dict[int, int]] = attrs.field(factory=dict)
    """(group, topic) -> queue -> the offset that the broker answers to a consumer of the group."""
    starting_ms: int = 0
    serving_ms: int = 0
    slave_there_ms: int = 0
    """Time by which the first master had its slave in sync."""
    killed_ms: tuple[int, int] = (0, 0)
    """Before and after the kill: it died in between."""
    switch: dict[str, Any] = attrs.field(factory=dict)
    """Output of `trioha failover -o json`."""
    served_again_ms: tuple[int, int] = (0, 0)
    """Before and after the operator's command."""
    slave_back_ms: int = 0
    stopped_ms: tuple[int, int] = (0, 0)

    def told(self, status: str) -> list[Told]:
        return [send for send in self.sends if send.status == status]

    @property
    def statuses(self) -> Counter[str]:
        return Counter(send.status for send in self.sends)

    @property
    def stores(self) -> tuple[str, str]:
        return str(self.first_store), str(self.second_store)


class _Load(Worker):
    """One producer, one message at a time, from a thread of its own."""

    def __init__(self, kind: Kind, producer: StockProducer, sends: list[Told]) -> None:
        super().__init__(f"load[{kind}]")
        self.kind = kind
        self.acknowledged = 0
        self._topic = TOPICS[kind]
        self._producer = producer
        self._sends = sends

    def _work(self) -> None:
        number = 0
        while not self._stopping.wait(PAUSE_S):
            self._send(number)
            number += 1

    def _send(self, number: int) -> None:
        body = f"{self._topic}-{number:05d}" + "." * (number % 200)
        keys, tags = f"{self._topic}-key-{number}", f"tag{number % 3}"
        asked_ms = now_ms()
        status, msg_id, queue_offset = "", "", -1
        try:
            sent = self._producer.send(self._topic, body, keys=keys, tags=tags)
            status, msg_id = sent.status, sent.msg_id or ""
            queue_offset = -1 if sent.queue_offset is None else sent.queue_offset
            self.acknowledged += 1
        except SendFailed:
            self._stopping.wait(0.2)
        told = Told(self._topic, body, keys, tags, status, msg_id, queue_offset, asked_ms, now_ms())
        self._sends.append(told)


def live_through(processes: Processes, clients: Clients) -> Incident:
    """All of it, in about a minute.

    Errors: ProcessFailed when something does not come about in time.
    """
    cluster = Cluster(processes)
    starting_ms = now_ms()
    cluster.start("SYNC_MASTER", slave=True)
    master, slave = cluster.master, cluster.slave
    assert master.store is not None
    assert slave.store is not None
    incident = Incident(
        master.store,
        slave.store,
        processes.root / cluster.namesrv_node.name / "journal",  # type: ignore[union-attr]
    )
    incident.starting_ms, incident.serving_ms = starting_ms, now_ms()
    wait_in_sync(master)
    incident.slave_there_ms = now_ms()
    for topic, queues in QUEUES.items():
        create_topic(master.address, cluster.namesrv, topic, queues)
    readers = clients.consumer("cpp", cluster.namesrv, "readers", "orders", wait=False)
    loads = [
        _Load(
            kind, clients.producer(kind, cluster.namesrv, timeout_ms=2000), incident.sends
        ).start()
        for kind in TOPICS
    ]
    readers.wait_until_ready()
    _goes_on(loads, PHASE_SENDS)
    before_ms = now_ms()
    master.kill()
    incident.killed_ms = (before_ms, now_ms())
    wait_until("a client to notice", lambda: bool(incident.told("")), GOES_ON_S)
    _fail_over(cluster, incident)
    # The C++ client takes SLAVE_NOT_AVAILABLE for a failure: it stores the message again, three
    # times, and gives up. Only the other one goes on without a slave.
    _goes_on([load for load in loads if load.kind == "js"], 200)
    master.start()
    wait_in_sync(slave)
    incident.slave_back_ms = now_ms()
    _goes_on(loads, 200)
    for load in loads:
        load.stop()
    _audit(clients, cluster, slave.address, incident, readers)
    end = wait_level(slave, master)

    def told() -> object:
        last = journal(slave, "ha_progress")[-1].fields
        return last["ack_offset"] == end or str(last)

    # A link's progress is written down once a second: what came after is in no journal.
    wait_until("the end of the log in the new master's journal", told)
    before_ms = now_ms()
    for node in (master, slave, cluster.namesrv_node):
        assert node is not None
        assert node.stop() == 0
    incident.stopped_ms = (before_ms, now_ms())
    return incident


def _fail_over(cluster: Cluster, incident: Incident) -> None:
    before_ms = now_ms()
    options = ("--force", "--yes", "-n", cluster.namesrv, "-o", "json")
    done = run_trioha("failover", "broker-a", *options)
    assert done.code == 0, done.out + done.err
    incident.served_again_ms = (before_ms, now_ms())
    incident.switch = json.loads(done.out)


def _goes_on(loads: list[_Load], more: int) -> None:
    """Wait until each load has had `more` sends acknowledged."""
    wanted = [load.acknowledged + more for load in loads]

    def on() -> object:
        counts = [load.acknowledged for load in loads]
        return all(a >= b for a, b in zip(counts, wanted, strict=True)) or f"{counts} of {wanted}"

    wait_until("the load to go on", on, GOES_ON_S)


def _audit(
    clients: Clients, cluster: Cluster, broker: str, incident: Incident, readers: StockConsumer
) -> None:
    """Read everything from the start, each queue to the end that clients were told of."""
    acknowledged = {send.body for send in incident.sends if send.status}
    auditors = {
        topic: clients.consumer("cpp", cluster.namesrv, f"audit-{topic}", topic, wait=False)
        for topic in QUEUES
    }
    for topic, auditor in auditors.items():
        auditor.wait_for_bodies(body for body in acknowledged if body.startswith(f"{topic}-"))
    readers.wait_for_bodies(body for body in acknowledged if body.startswith("orders-"))
    # Messages stored without an acknowledgement are in the queues too.
    for topic, auditor in auditors.items():
        ends = {queue: max_offset(broker, topic, queue) for queue in range(QUEUES[topic])}
        wait_until(f"{topic} to be read", partial(_is_read, auditor, ends))
    for consumer in (*auditors.values(), readers):
        consumer.stop()
    groups = [("readers", "orders"), *((f"audit-{topic}", topic) for topic in QUEUES)]
    for group, topic in groups:
        offsets = {
            queue: consumer_offset(broker, group, topic, queue) for queue in range(QUEUES[topic])
        }
        # A queue that the group never committed to is answered with -1, or with 0.
        incident.committed[group, topic] = {q: at for q, at in offsets.items() if at > 0}
    for topic, auditor in auditors.items():
        once = {(each.queue_id, each.queue_offset): each for each in auditor.messages}
        incident.stored[topic] = [once[place] for place in sorted(once)]


def _is_read(auditor: StockConsumer, ends: Mapping[int, int]) -> bool | str:
    """Whether all that lies before these ends was received; if not, what is missing."""
    wanted = {(queue, offset) for queue, end in ends.items() for offset in range(end)}
    missing = wanted - {(each.queue_id, each.queue_offset) for each in auditor.messages}
    return f"{len(missing)} messages are missing" if missing else True


def now_ms() -> int:
    return time.time_ns() // 1_000_000
