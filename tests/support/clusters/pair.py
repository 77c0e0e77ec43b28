"""A name server, a master and perhaps a slave, each of either make, on loopback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import attrs

from support.peers.java import java_broker, java_namesrv
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv

Make = Literal["trioha", "java"]

_NAMESRVS: Mapping[str, Callable[[Processes], Node]] = {
    "trioha": trioha_namesrv,
    "java": java_namesrv,
}
_BROKERS = {"trioha": trioha_broker, "java": java_broker}

# Sizes that keep the store of a test small. The keys are RocketMQ's, so a Java peer of the pair
# gets the same sizes.
SMALL_FILES: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "diskMaxUsedSpaceRatio": 95,
}


@attrs.define(eq=False)
class Cluster:
    """The nodes of one replica set under one name server. Nodes are `None` until started."""

    processes: Processes
    make: Make = "trioha"
    namesrv_make: Make | None = None
    slave_make: Make | None = None
    settings: Mapping[str, object] = SMALL_FILES

    namesrv_node: Node | None = None
    master_node: Node | None = None
    slave_node: Node | None = None

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        assert self.namesrv_node is not None
        return self.namesrv_node.address

    @property
    def master(self) -> Node:
        assert self.master_node is not None
        return self.master_node

    @property
    def slave(self) -> Node:
        assert self.slave_node is not None
        return self.slave_node

    def start_namesrv(self) -> Node:
        self.namesrv_node = _NAMESRVS[self.namesrv_make or self.make](self.processes)
        return self.namesrv_node.start()

    def start_master(
        self,
        role: str = "ASYNC_MASTER",
        name: str = "broker-a",
        settings: Mapping[str, object] | None = None,
    ) -> Node:
        self.master_node = _BROKERS[self.make](
            self.processes,
            self.namesrv,
            name=name,
            role=role,
            settings={**self.settings, **(settings or {})},
        )
        return self.master_node.start()

    def start_slave(
        self, name: str = "broker-a", settings: Mapping[str, object] | None = None
    ) -> Node:
        self.slave_node = _BROKERS[self.slave_make or self.make](
            self.processes,
            self.namesrv,
            name=name,
            broker_id=1,
            role="SLAVE",
            settings={**self.settings, **(settings or {})},
        )
        return self.slave_node.start()

    def start(
        self,
        role: str = "ASYNC_MASTER",
        *,
        slave: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> Cluster:
        """Start all of it, each node serving before the next one starts."""
        self.start_namesrv()
        self.start_master(role, settings=settings)
        if slave:
            self.start_slave(settings=settings)
        return self
