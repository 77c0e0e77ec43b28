"""One side's brokers and the load clients beside them, for the rows of one block.

Everything is started when it is first needed and kept: a fresh JVM is slow for seconds, and what
the rows compare are brokers that have run for a while. A broker meets each kind of header from 64
threads of the Java client before it is measured with it, whichever client the row is of.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
from bench.peer.load_clients import (
    ClientKind,
    LoadClient,
    LoadClientEnded,
    LoadFailed,
    Outcome,
    open_load_client,
)
from bench.peer.nodes import START_S, ReplicaSet, Runtime, open_replica_set
from bench.peer.proc import cpu_seconds, read_cpu
from bench.peer.protection import Protection
from bench.peer.results import Side
from bench.peer.rows import BATCH, WAITING_TIMER_S, Row, Topology
from bench.peer.scale import Scale
from support.processes.rig import Process

TOPIC = "bench"
LOAD_SLACK_S = 60.0
_BINARY = "ROCKETMQ"


@attrs.define(eq=False)
class Stage:
    """Brokers and load clients for the rows of a block."""

    replicas: ReplicaSet
    scale: Scale
    stored: int = 0
    """Messages that `fill` has put into TOPIC."""
    _running: bool = False
    _clients: dict[tuple[ClientKind, str], LoadClient] = attrs.Factory(dict)
    _warm: set[str] = attrs.Factory(set)
    _topics: Iterator[int] = attrs.Factory(itertools.count)
    _numbered: tuple[str, int] = ("", 0)
    _waiting: str = ""
    """The topic with the timer messages that fall due after the measurement."""

    def start(self) -> None:
        """Start all nodes and bring them to speed, once.

        A Java slave spends ten seconds on its way to its master: the master is warmed meanwhile,
        and again when the slave is there.
        """
        if self._running:
            return
        replicas = self.replicas
        replicas.namesrv.start(START_S)
        replicas.master.start(START_S)
        if replicas.topology.has_slave:
            replicas.slave.process.start()
        replicas.create_topic(TOPIC)
        self._warm_up(_BINARY, self.scale.broker_warm_up_s)
        if replicas.topology.has_slave:
            replicas.slave.wait_until_ready(START_S)
            replicas.wait_until_in_sync()
            self._warm_up(_BINARY, self.scale.header_warm_up_s)
        self._warm.add(_BINARY)
        self._start_neighbours()
        self._running = True

    def meet(self, header: str) -> None:
        """Let the master meet this kind of header before it is measured with it."""
        if header not in self._warm:
            self._warm_up(header, self.scale.header_warm_up_s)
            self._warm.add(header)

    def run_load(
        self,
        kind: ClientKind,
        mode: str,
        options: Mapping[str, object],
        within_s: float,
        header: str = _BINARY,
    ) -> Outcome:
        """One run to its end. Errors: LoadFailed."""
        load = self.begin_load(kind, mode, options, header)
        try:
            return load.outcome(within_s)
        except LoadFailed:
            self.drop_client(kind, header)
            raise
        finally:
            if kind == "cpp":
                load.process.kill()
            elif self.scale.is_cold:
                self.drop_client(kind, header)

    def begin_load(
        self, kind: ClientKind, mode: str, options: Mapping[str, object], header: str = _BINARY
    ) -> LoadClient:
        """Start a run whose outcome the caller asks for. Errors: LoadClientEnded."""
        load = self._clients.get((kind, header))
        if load is None:
            replicas = self.replicas
            load = self._clients[kind, header] = open_load_client(
                kind,
                header,
                replicas.processes,
                replicas.namesrv.address,
                self.pids,
                replicas.protection.client_properties(),
            )
        try:
            load.begin(mode, options)
        except LoadClientEnded:
            self.drop_client(kind, header)
            raise
        return load

    def drop_client(self, kind: ClientKind, header: str) -> None:
        """The next run gets a new process."""
        if (load := self._clients.pop((kind, header), None)) is not None:
            load.process.kill()

    def fill(self, messages: int, size: int, topic: str = "", *, is_numbered: bool = False) -> int:
        """Send in batches from the Java client; how many are stored. Errors: LoadFailed.

        `is_numbered`: each has a property n from 0 to 99, in turns.
        """
        topic = topic or TOPIC
        self.replicas.create_topic(topic)
        options = {
            "topic": topic,
            "threads": 4,
            "batch": BATCH,
            "bytes": size,
            "numbered": is_numbered,
            "messages": messages // BATCH * BATCH,
        }
        # Slower than this no broker is worth measuring.
        outcome = self.run_load("java", "send", options, LOAD_SLACK_S + messages / 2000)
        assert outcome.stored > 0, f"nothing was stored: {dict(outcome.errors)}"
        if topic == TOPIC:
            self.stored += outcome.stored
        return outcome.stored

    def numbered_backlog(self, size: int) -> tuple[str, int]:
        """Return a topic with `scale.filter_backlog` messages, and how many it has.

        Each has a property n from 0 to 99, in turns. All rows read the same. Errors: LoadFailed.
        """
        if not self._numbered[0]:
            topic = self.new_topic("numbered")
            stored = self.fill(self.scale.filter_backlog, size, topic, is_numbered=True)
            self._numbered = topic, stored
        return self._numbered

    def fill_timers(self, messages: int, topic: str, **timer: int) -> None:
        """Send timer messages of 128 bytes. Errors: LoadFailed; AssertionError if one was refused.

        `timer`: `timer_delay_s` or `deliver_at_ms` of all of them.
        """
        options = {"topic": topic, "threads": 64, "bytes": 128, "messages": messages, **timer}
        outcome = self.run_load("java", "send", options, LOAD_SLACK_S + messages / 2000)
        assert outcome.stored == messages, f"{outcome.stored} stored: {dict(outcome.errors)}"

    def waiting_timers(self) -> str:
        """Return a topic with `scale.waiting_timers` messages due in WAITING_TIMER_S.

        All rows have them beside them. Errors: LoadFailed.
        """
        if not self._waiting:
            self._waiting = self.new_topic("waiting")
            self.fill_timers(
                self.scale.waiting_timers, self._waiting, timer_delay_s=WAITING_TIMER_S
            )
        return self._waiting

    def new_topic(self, kind: str) -> str:
        topic = f"{kind}_{next(self._topics)}"
        self.replicas.create_topic(topic)
        return topic

    def own_cpu_s(self) -> float:
        """Processor seconds of this process, its ended children and all that runs here."""
        live_s = 0.0
        for process in self.replicas.processes.members:
            if process.running:
                with contextlib.suppress(OSError):
                    live_s += cpu_seconds(Path(f"/proc/{process.pid}/stat").read_text())
        return sum(os.times()[:4]) + live_s

    def strangers_cpu_s(self) -> float:
        """Return the processor seconds of all other processes; use differences of readings."""
        return read_cpu({}).all_processes - self.own_cpu_s()

    def _start_neighbours(self) -> None:
        root, command = self.replicas.root, [sys.executable, "-c", "while True: pass"]
        for number in range(self.scale.neighbours):
            process = Process(f"neighbour-{number}", command, root / f"neighbour-{number}.log")
            self.replicas.processes.add(process).start()

    def _warm_up(self, header: str, seconds: float) -> None:
        options = {"topic": TOPIC, "threads": 64, "bytes": 128, "warm_up_s": 0.0}
        options["seconds"] = seconds
        self.run_load("java", "send", options, seconds + LOAD_SLACK_S, header)

    def pids(self) -> dict[str, int]:
        """Nodes, and clients that idle while another one works."""
        clients = {
            f"{kind}/{header}": load.process.pid
            for (kind, header), load in self._clients.items()
            if load.process.running
        }
        return {**clients, **self.replicas.pids()}


@contextlib.contextmanager
def open_stage(
    side: Side,
    topology: Topology,
    root: Path,
    runtime: Runtime,
    scale: Scale,
    settings: Mapping[str, object],
    protection: Protection = Protection.NONE,
    java_release: str = "4",
) -> Iterator[Stage]:
    """A stage on which nothing runs yet; all its processes end with the block."""
    with open_replica_set(
        side, topology, root, runtime, settings, protection, java_release
    ) as replicas:
        yield Stage(replicas, scale)


def client_of(row: Row) -> tuple[ClientKind, str]:
    """Which client a row is of, and its header."""
    kind: ClientKind = "cpp" if row.client == "cpp" else "java"
    header = row.options.get("header", _BINARY)
    assert isinstance(header, str)
    return kind, header
