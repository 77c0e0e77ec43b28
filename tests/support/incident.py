"""A failover by hand under stock clients, and all that the clients were told about it.

A SYNC_MASTER with a slave takes messages from the C++ and the Node.js client. It is killed with
SIGKILL under load; its slave is stopped and started again as the master, by its settings; the load
goes on, at first without a slave; the old master comes back as the slave. In the end an auditor
reads both topics from their first message: what is stored is what it was told, place, time and
size of each message. Nothing here reads a store.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import attrs
from support.admin import consumer_offset, create_topic
from support.clients import Clients, Kind, Received, SendFailed, StockConsumer, StockProducer
from support.cluster import SMALL_FILES, Cluster
from support.processes import Node, Processes, trioha_broker
from support.status import wait_in_sync, wait_level, wait_until

from trioha.store.inspect import diff_logs

TOPICS: dict[Kind, str] = {"cpp": "orders", "js": "events"}
QUEUES = {"orders": 4, "events": 2}
PHASE_S = 4.0
PAUSE_S = 0.004
GOES_ON_S = 90.0
"""The C++ client asks for routes every thirty seconds, and may just have done so."""


@attrs.frozen
class Told:
    """What a producer was told about one send. `status` is empty when it failed."""

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
    """What happened, by the clock of this machine, and what was told."""

    first_store: Path
    second_store: Path
    namesrv_journal: Path
    sends: list[Told] = attrs.field(factory=list)
    stored: dict[str, list[Received]] = attrs.field(factory=dict)
    """Topic -> every message in it, as the auditor was given them."""
    committed: dict[tuple[str, str], dict[int, int]] = attrs.field(factory=dict)
    """(group, topic) -> queue -> the offset that the broker answers to a consumer of the group."""
    serving_ms: int = 0
    killed_ms: tuple[int, int] = (0, 0)
    """Before and after the kill: it died in between."""
    restarting_ms: int = 0
    served_again_ms: tuple[int, int] = (0, 0)
    """Before and after the new master said that it is ready."""
    slave_back_ms: int = 0
    """0 when the old master's log holds what the new one's does not."""
    stopped_ms: tuple[int, int] = (0, 0)

    def told(self, status: str) -> list[Told]:
        return [send for send in self.sends if send.status == status]

    @property
    def statuses(self) -> Counter[str]:
        return Counter(send.status for send in self.sends)

    @property
    def stores(self) -> tuple[str, str]:
        return str(self.first_store), str(self.second_store)


class _Load:
    """One producer, one message at a time, from a thread of its own."""

    def __init__(self, kind: Kind, producer: StockProducer, sends: list[Told]) -> None:
        self.kind = kind
        self.acknowledged = 0
        self._topic = TOPICS[kind]
        self._producer = producer
        self._sends = sends
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load[{kind}]", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        number = 0
        try:
            while not self._ending.wait(PAUSE_S):
                self._send(number)
                number += 1
        except BaseException as error:
            self._error = error

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
            self._ending.wait(0.2)
        told = Told(self._topic, body, keys, tags, status, msg_id, queue_offset, asked_ms, now_ms())
        self._sends.append(told)


def live_through(processes: Processes, clients: Clients) -> Incident:
    """All of it, in about a minute.

    Errors: ProcessFailed when something does not come about in time.
    """
    cluster = Cluster(processes)
    cluster.start("SYNC_MASTER", slave=True)
    master, slave = cluster.master, cluster.slave
    assert master.store is not None
    assert slave.store is not None
    incident = Incident(
        master.store,
        slave.store,
        processes.root / cluster.namesrv_node.name / "journal",  # type: ignore[union-attr]
    )
    incident.serving_ms = now_ms()
    wait_in_sync(master)
    for topic, queues in QUEUES.items():
        create_topic(master.address, cluster.namesrv, topic, queues)
    readers = clients.consumer("cpp", cluster.namesrv, "readers", "orders", wait=False)
    loads = [
        _Load(kind, clients.producer(kind, cluster.namesrv, timeout_ms=2000), incident.sends)
        for kind in TOPICS
    ]
    readers.wait_until_ready()
    time.sleep(PHASE_S)
    before_ms = now_ms()
    master.kill()
    incident.killed_ms = (before_ms, now_ms())
    time.sleep(2)
    new_master = _promote(processes, cluster, slave, incident)
    # The C++ client takes SLAVE_NOT_AVAILABLE for a failure: it stores the message again, three
    # times, and gives up. Only the other one goes on without a slave.
    _goes_on([load for load in loads if load.kind == "js"], 200)
    _bring_back(processes, cluster, master, new_master, incident)
    if incident.slave_back_ms:
        _goes_on(loads, 200)
    for load in loads:
        load.stop()
    _audit(clients, cluster, new_master.address, incident, readers)
    if cluster.slave_node is not None and incident.slave_back_ms:
        wait_level(new_master, cluster.slave)
    before_ms = now_ms()
    for node in (cluster.slave_node, new_master, cluster.namesrv_node):
        if node is not None and node.running:
            assert node.stop() == 0
    incident.stopped_ms = (before_ms, now_ms())
    return incident


def _promote(processes: Processes, cluster: Cluster, slave: Node, incident: Incident) -> Node:
    """The slave's store under a master's settings, on the slave's own port."""
    incident.restarting_ms = now_ms()
    assert slave.stop() == 0
    cluster.slave_node = None
    node = _broker(processes, cluster, slave, 0, "SYNC_MASTER")
    before_ms = now_ms()
    node.start()
    incident.served_again_ms = (before_ms, now_ms())
    return node


def _bring_back(
    processes: Processes, cluster: Cluster, old: Node, master: Node, incident: Incident
) -> None:
    """The old master follows, unless its log has an end that nobody was promised."""
    diff = diff_logs(old.commitlog, master.commitlog)
    if diff.first_difference is None and diff.end_a <= diff.end_b:
        cluster.slave_node = _broker(processes, cluster, old, 1, "SLAVE")
        cluster.slave.start()
        wait_in_sync(master)
        incident.slave_back_ms = now_ms()


def _broker(processes: Processes, cluster: Cluster, like: Node, broker_id: int, role: str) -> Node:
    return trioha_broker(
        processes,
        cluster.namesrv,
        broker_id=broker_id,
        role=role,
        port=int(like.address.rpartition(":")[2]),
        store=like.store,
        settings=SMALL_FILES,
    )


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
    # What was stored and not acknowledged comes with the rest, or right behind it.
    time.sleep(1)
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


def now_ms() -> int:
    return time.time_ns() // 1_000_000
