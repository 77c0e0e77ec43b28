"""The brokers under comparison: both makes with the same settings, one replica set at a time.

Stock defaults but for what is written here; on both sides the same keys get the same values. The
JVM flags are those of RocketMQ's runbroker.sh with a heap that fits a small machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs
from bench.peer.probe import Probe
from bench.peer.protection import Protection
from bench.peer.results import Side
from bench.peer.rows import Topology
from bench.peer.scale import MIB
from support.peers.java import java_broker, java_namesrv
from support.processes.admin import request, topic_command, wait_for_route
from support.processes.rig import (
    REPO,
    Node,
    Processes,
    running_processes,
    trioha_broker,
    trioha_namesrv,
)

from trioha.wire.codes import ResponseCode

QUEUES = 8
BROKER = "broker-a"
BROKER_HEAP = ("-Xms2g", "-Xmx2g", "-Xmn1g", "-XX:MaxDirectMemorySize=4g")
RUNBROKER_FLAGS = (
    *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"),
    *("-XX:-OmitStackTraceInFastThrow", "-XX:+AlwaysPreTouch", "-XX:-UseLargePages"),
)
production_broker = partial(java_broker, heap=[*BROKER_HEAP, *RUNBROKER_FLAGS], sizes={})
"""A Java broker with the heap and the flags of a production start."""
SETTINGS: Mapping[str, object] = {
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": 256 * MIB,
    "enablePropertyFilter": True,
    "diskMaxUsedSpaceRatio": 95,
}
START_S = 60.0
# A Java slave waits 5 s for its master's address and 5 s more before it reports its offset.
IN_SYNC_S = 60.0
ASK_PERIOD_S = 0.05


@attrs.frozen
class Runtime:
    """Which trioha is measured: an interpreter, and the checkout that it imports.

    Without a checkout it is what is installed beside the interpreter.
    """

    python: str = sys.executable
    tree: Path | None = REPO

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        environment = {name: value for name, value in base.items() if name != "PYTHONPATH"}
        return environment if self.tree is None else environment | {"PYTHONPATH": str(self.tree)}

    def version(self) -> dict[str, str]:
        """Return what its `trioha version` tells.

        Errors: OSError, subprocess.CalledProcessError when there is no trioha.
        """
        run = subprocess.run(
            # -P: not what lies in the directory that the comparison is started from.
            [self.python, "-P", "-m", "trioha", "version", "-o", "json"],
            env=self.environment(os.environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        told: dict[str, str] = json.loads(run.stdout)
        return told

    def take(self, node: Node) -> Node:
        """The same node, run by this trioha."""
        process = node.process
        process.command = [self.python, *process.command[1:]]
        process.env = self.environment(process.env or {})
        return node


@attrs.define(eq=False)
class ReplicaSet:
    """One side's name server, master and perhaps slave. The slave is started when asked for."""

    side: Side
    topology: Topology
    processes: Processes
    namesrv: Node
    master: Node
    slave: Node
    protection: Protection = Protection.NONE

    @property
    def root(self) -> Path:
        return self.processes.root

    def pids(self) -> dict[str, int]:
        """Return the pids of the running nodes, by role."""
        nodes = {"namesrv": self.namesrv, "master": self.master, "slave": self.slave}
        return {name: node.process.pid for name, node in nodes.items() if node.running}

    def create_topic(self, topic: str) -> None:
        command = topic_command(topic, QUEUES)
        if (operator := self.protection.operator) is not None:
            operator.sign(command)
        answer = request(self.master.address, command)
        assert answer.code == ResponseCode.SUCCESS, f"{topic}: {answer.code} {answer.remark}"
        wait_for_route(self.namesrv.address, topic)

    def wait_until_in_sync(self, within_s: float = IN_SYNC_S) -> None:
        """Send now and then until the slave has it and the master is content.

        Errors: AssertionError when that does not come to pass.
        """
        deadline = time.monotonic() + within_s
        with Probe(self.master.address) as master, Probe(self.slave.address) as slave:
            while True:
                # SYNC_MASTER answers 0 only with the slave's word for it.
                code = master.send()
                ours = master.max_phy_offset()
                # An ASYNC_MASTER of trioha's gathers for 2 ms the bytes that no send waits for.
                time.sleep(ASK_PERIOD_S)
                theirs = slave.max_phy_offset()
                if code == ResponseCode.SUCCESS and theirs >= ours:
                    return
                assert time.monotonic() < deadline, (
                    f"no slave in sync after {within_s} s: last answer {code}, its log ends at "
                    f"{theirs}, the master's at {ours}"
                )

    def check_running(self) -> None:
        """Errors: AssertionError that names a node which has ended."""
        expected = [self.namesrv, self.master]
        if self.topology.has_slave:
            expected.append(self.slave)
        for node in expected:
            assert node.running, f"{node.name} has ended\n{node.process.tail()}"


@contextlib.contextmanager
def open_replica_set(
    side: Side,
    topology: Topology,
    root: Path,
    runtime: Runtime,
    settings: Mapping[str, object],
    protection: Protection = Protection.NONE,
    java_release: str = "4",
) -> Iterator[ReplicaSet]:
    """A replica set, not yet started; all its processes end with the block."""
    settings = {**SETTINGS, **settings}
    with running_processes(root) as processes:
        make_broker: Callable[..., Node] = trioha_broker
        if side == "java":
            namesrv = java_namesrv(processes, release=java_release)
            make_broker = partial(
                production_broker, properties=protection.java_properties(), release=java_release
            )
        else:
            made = trioha_namesrv(processes, settings=protection.node_settings())
            namesrv = runtime.take(made)

        def broker(broker_id: int, role: str) -> Node:
            home = processes.root / f"{side}-{BROKER}-{broker_id}"
            accounts = home / "conf" / "plain_acl.yml"
            node = make_broker(
                processes,
                namesrv.address,
                name=BROKER,
                broker_id=broker_id,
                role=role,
                settings={**settings, **protection.settings(accounts, java=side == "java")},
            )
            return runtime.take(node) if side == "trioha" else node

        master, slave = broker(0, topology.role), broker(1, "SLAVE")
        yield ReplicaSet(side, topology, processes, namesrv, master, slave, protection)
