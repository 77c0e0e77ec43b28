"""The compared sides: groups of three and single brokers, of both makes, each with its settings.

Java's DLedger acknowledges before any fsync, whatever `flushDiskType` says. So one figure of its
stands against two of ours: replicated in memory, the same promise, and fsynced by a majority.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs
from bench.peer.nodes import QUEUES, RUNBROKER_FLAGS
from bench.peer.probe import wait_for_accepted_send
from bench.peer.scale import MIB
from support.clusters.raft_group import ELECTED_S, START_S, RaftGroup, raft_group
from support.peers.java import java_broker, java_namesrv
from support.processes.admin import create_topic
from support.processes.rig import (
    Node,
    Processes,
    running_processes,
    trioha_broker,
    trioha_namesrv,
)

BROKER = "broker-a"
TOPIC = "bench"
# Three members have room for it.
JAVA_HEAP = ("-Xms1g", "-Xmx1g", "-Xmn512m", "-XX:MaxDirectMemorySize=2g")
SETTINGS: Mapping[str, object] = {
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": 256 * MIB,
    "diskMaxUsedSpaceRatio": 95,
}
JAVA_SETTINGS: Mapping[str, object] = {
    # The value in RocketMQ's example group.
    "sendMessageThreadPoolNums": 16,
}


@attrs.frozen
class Side:
    """One side of the comparison."""

    name: str
    title: str
    settings: Mapping[str, object] = attrs.field(factory=dict)

    @property
    def is_group(self) -> bool:
        return not self.name.startswith("alone")

    @property
    def is_java(self) -> bool:
        return self.name == "java"


SIDES: Mapping[str, Side] = {
    side.name: side
    for side in (
        Side("java", "Java, DLEDGER"),
        Side("memory", "trioha, DLEDGER in memory", {"dLegerReplicatedInMemory": True}),
        Side("fsync", "trioha, DLEDGER, fsync on a majority"),
        Side("alone", "trioha, unreplicated, ASYNC_FLUSH"),
        Side("alone-fsync", "trioha, unreplicated, SYNC_FLUSH", {"flushDiskType": "SYNC_FLUSH"}),
    )
}


@attrs.define(eq=False)
class Scene:
    """One side, running, its topic there."""

    side: Side
    processes: Processes
    namesrv: Node
    nodes: list[Node]
    group: RaftGroup | None

    @property
    def leader(self) -> Node:
        return self.group.wait_for_leader() if self.group is not None else self.nodes[0]

    def pids(self) -> dict[str, int]:
        """Return the pids of the running nodes, by role."""
        leader = self.leader
        found = {"namesrv": self.namesrv.process.pid, "leader": leader.process.pid}
        for number, node in enumerate(node for node in self.nodes if node is not leader):
            if node.running:
                found[f"follower{number}"] = node.process.pid
        return found


@contextlib.contextmanager
def open_scene(
    side: Side, root: Path, settings: Mapping[str, object] | None = None
) -> Iterator[Scene]:
    """Start one side in an empty directory; all of it ends with the block."""
    settings = {**SETTINGS, **side.settings, **(settings or {})}
    with running_processes(root) as processes:
        namesrv = (java_namesrv if side.is_java else trioha_namesrv)(processes)
        namesrv.start(START_S)
        group = None
        if side.is_java:
            settings = {**settings, **JAVA_SETTINGS}
            group = raft_group(
                processes,
                namesrv.address,
                make="java",
                name=BROKER,
                settings=settings,
                java_broker=partial(java_broker, heap=[*JAVA_HEAP, *RUNBROKER_FLAGS], sizes={}),
            )
        elif side.is_group:
            group = raft_group(processes, namesrv.address, name=BROKER, settings=settings)
        if group is None:
            nodes = [trioha_broker(processes, namesrv.address, name=BROKER, settings=settings)]
            nodes[0].start(START_S)
            create_topic(nodes[0].address, namesrv.address, TOPIC, QUEUES)
        else:
            nodes = group.nodes
            group.start(ELECTED_S)
            group.wait_for_followers()
            group.create_topic(TOPIC, QUEUES)
        scene = Scene(side, processes, namesrv, nodes, group)
        wait_for_accepted_send(scene.leader.address, START_S)
        yield scene
