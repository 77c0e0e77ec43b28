"""A cluster in this process: real nodes, a network in memory, and virtual time if there is any."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from trioha.client import ClusterConfig
from trioha.client.cluster import open_cluster as open_client
from trioha.errors import TriohaError
from trioha.services.admin.task_tree import task_tree
from trioha.services.loop.background import open_background_nursery
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import simulate_host
from trioha.testing.cluster import TriohaCluster
from trioha.testing.cluster_broker import ClusterBroker
from trioha.testing.disk_faults import DiskFaults
from trioha.testing.machines import Layout, MachineSpec, config_of, machines_of, settings_of
from trioha.testing.memory_node import (
    HA_PORT,
    NAMESRV_PORT,
    PORT,
    MemoryBroker,
    MemoryNamesrv,
    MemoryWorld,
)
from trioha.testing.network import MemoryNetwork
from trioha.testing.timeline import PROMOTED, NodeJournal
from trioha.testing.virtual_time import is_virtual, seeded_scheduler
from trioha.wire.keyring import Keyring

NAMESRV, OPERATOR, CLIENTS, OBSERVER = "10.0.9.1", "10.0.9.2", "10.0.9.3", "10.0.9.4"
_SMALL: Mapping[str, object] = {
    "bindAddress": "127.0.0.1",
    "namesrvAddr": f"{NAMESRV}:{NAMESRV_PORT}",
    "listenPort": PORT,
    "haListenPort": HA_PORT,
    "vipChannel": False,
    "adminHttpEnable": False,
    "mapedFileSizeCommitLog": 16 << 20,
    "mapedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 10_000,
    # The test's machine may be nearly full; its disk is no part of the cluster.
    "diskMaxUsedSpaceRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}
"""Settings under which stores are small."""
_MEMORY_DISK = Path("/dev/shm")


class MemoryClusterBroker(ClusterBroker):
    """A broker in this process."""

    def __init__(self, cluster: MemoryCluster, machine: MachineSpec, node: MemoryBroker) -> None:
        self.machine = machine
        self.node = node
        self.root = node.root
        self._cluster = cluster

    @property
    def address(self) -> str:
        return self.node.address

    @property
    def is_up(self) -> bool:
        return self.node.is_up

    async def start(self) -> None:
        self._note("start")
        await self.node.start()

    async def stop(self) -> None:
        self._note("stop")
        await self.node.stop()

    async def kill(self) -> None:
        self._note("kill")
        await self.node.kill()

    async def pause(self) -> None:
        self._note("pause")
        self._cluster.hold(self.node.host)

    async def resume(self) -> None:
        self._note("resume")
        self._cluster.release(self.node.host)

    async def wipe(self) -> None:
        self._note("wipe")
        await self.node.wipe()

    async def power_loss(self) -> None:
        self._note("power_loss")
        await self.node.lose_power()

    def disk_full(self, full: bool = True) -> None:
        self._note("disk_full", full=full)
        self._cluster.faults.set_full(self.root, full)
        if self.is_up:
            self.node.node.check_disk()

    def fail_fsync(self, failing: bool = True) -> None:
        self._note("fail_fsync", failing=failing)
        self._cluster.faults.set_broken(self.root, failing)

    def _note(self, name: str, **fields: object) -> None:
        self._cluster.note(name, broker=self.label, **fields)


class MemoryCluster(TriohaCluster):
    """Brokers in this process, as `open_cluster` opens them."""

    def __init__(
        self,
        layout: Layout,
        seed: int,
        root: Path,
        world: MemoryWorld,
        settings: Mapping[str, object],
    ) -> None:
        machines = machines_of(layout)
        hosts = {one.label: f"10.0.0.{place + 1}" for place, one in enumerate(machines)}
        peers = {label: f"{host}:{PORT}" for label, host in hosts.items()}
        self.world = world
        self.faults = DiskFaults()
        self.namesrv = f"{NAMESRV}:{NAMESRV_PORT}"
        self._root = root
        self._hosts = {**hosts, "namesrv": NAMESRV, "clients": CLIENTS, "operator": OPERATOR}
        self._cuts: set[tuple[str, str]] = set()
        self._paused: set[str] = set()
        name = layout if isinstance(layout, str) else "table"
        super().__init__(name, seed, [self._broker(one, peers, settings) for one in machines])
        self.namesrv_node = MemoryNamesrv(
            world, NAMESRV, root, partial(self._journal_of, "namesrv", root)
        )

    def client_config(self) -> ClusterConfig:
        serial = next(self._serials)
        return self._config_for(CLIENTS, 1000 + serial)

    def config_from(self, host: str) -> ClusterConfig:
        """Return a configuration for the test's own connections, from this machine."""
        return self._config_for(host, 1000)

    async def stop_namesrv(self) -> None:
        self.note("stop_namesrv")
        self.namesrv_node.kill()

    async def start_namesrv(self) -> None:
        self.note("start_namesrv")
        await self.namesrv_node.start()

    async def wait_elected(self, name: str) -> None:
        """Wait for the first leader of a group."""
        labels = {broker.label for broker in self.members(name)}
        async for event in self.events():
            if event.node in labels and event.is_one(PROMOTED, {}):
                return

    async def task_trees(self) -> Mapping[str, Mapping[str, Any]]:
        return {"this process": task_tree()}

    def cut(self, a: object, b: object = None, *, one_way: bool = False) -> None:
        self.note("cut", a=_label(a), b=_label(b), one_way=one_way)
        ways = self._ways(a, b)
        host = self._host(a)
        self._cuts |= {way for way in ways if not one_way or way[0] == host}
        self._set_cuts()

    def heal(self, a: object = None, b: object = None) -> None:
        self.note("heal", a=_label(a), b=_label(b))
        ways = None if a is None else self._ways(a, b)
        latencies = self.world.network.latencies_s
        for way in list(latencies) if ways is None else ways:
            latencies.pop(way, None)
        self._cuts = set() if ways is None else self._cuts - ways
        self._set_cuts()

    def slow(self, a: object, b: object, latency_s: float) -> None:
        self.note("slow", a=_label(a), b=_label(b), latency_s=latency_s)
        self.world.network.latencies_s.update(dict.fromkeys(self._ways(a, b), latency_s))

    def hold(self, host: str) -> None:
        """Hold back all that a machine sends and receives."""
        self._paused.add(host)
        self._set_cuts()

    def release(self, host: str) -> None:
        """End `hold`."""
        self._paused.discard(host)
        self._set_cuts()

    def _set_cuts(self) -> None:
        everybody = (*self._hosts.values(), OBSERVER)
        held = {
            way
            for host in self._paused
            for other in everybody
            if other != host
            for way in ((host, other), (other, host))
        }
        self.world.network.set_cuts(*(self._cuts | held))

    def _ways(self, a: object, b: object) -> set[tuple[str, str]]:
        host = self._host(a)
        others = (
            [one for one in self._hosts.values() if one != host] if b is None else [self._host(b)]
        )
        return {(host, one) for one in others} | {(one, host) for one in others}

    def _host(self, one: object) -> str:
        label = _label(one)
        if label not in self._hosts:
            raise TriohaError(f"nothing here has the name {label}; take {', '.join(self._hosts)}")
        return self._hosts[label]

    def _broker(
        self, machine: MachineSpec, peers: Mapping[str, str], settings: Mapping[str, object]
    ) -> MemoryClusterBroker:
        host = self._hosts[machine.label]
        root = self._root / machine.label
        own = {"storePathRootDir": root, "brokerIP1": host, "brokerIP2": host}
        config = config_of({**_SMALL, **own, **settings_of(machine, peers), **settings})
        journal = partial(self._journal_of, machine.label, root)
        node = MemoryBroker(self.world, host, config, journal)
        return MemoryClusterBroker(self, machine, node)

    def _journal_of(self, label: str, root: Path) -> NodeJournal:
        return NodeJournal(self.timeline, label, self.world.clock.wall_ms, root)

    def _config_for(self, host: str, process_id: int) -> ClusterConfig:
        return ClusterConfig(
            connector=partial(self.world.network.connect, host),
            clock=self.world.clock,
            rng=Random(self.rng.getrandbits(64)),
            credentials=None,
            keyring=Keyring(""),
            host=host,
            process_id=process_id,
            serials=count(1),
        )


@asynccontextmanager
async def open_memory_cluster(
    layout: Layout, *, seed: int, root: Path | None, settings: Mapping[str, object]
) -> AsyncIterator[MemoryCluster]:
    """Open a cluster in this process; it is in sync, and ends with the block."""
    virtual = is_virtual()
    rng = Random(seed)
    clock = Clock()
    with ExitStack() as stack:
        if virtual:
            clock = Clock.virtual()
            stack.enter_context(seeded_scheduler(seed))
            simulate_host(Random(rng.getrandbits(64)))
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="trioha-test-", dir=_memory_disk()))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
        async with open_background_nursery() as nursery:
            network = MemoryNetwork(Random(rng.getrandbits(64)))
            world = MemoryWorld(network, nursery, clock)
            cluster = MemoryCluster(layout, seed, root, world, settings)
            stack.callback(cluster.faults.clear)
            async with (
                open_client(cluster.namesrv, cluster.config_from(OPERATOR)) as operator,
                open_client(cluster.namesrv, cluster.config_from(OBSERVER)) as observer,
            ):
                cluster.operator, cluster.observer = operator, observer
                await cluster.namesrv_node.start()
                for broker in cluster.brokers:
                    assert isinstance(broker, MemoryClusterBroker)
                    await broker.node.start()
                groups = {one.machine.name for one in cluster.brokers if one.machine.is_raft}
                for group in sorted(groups):
                    await cluster.wait_elected(group)
                await cluster.wait_in_sync()
                yield cluster
            nursery.cancel_scope.cancel()


def _memory_disk() -> Path | None:
    return _MEMORY_DISK if os.access(_MEMORY_DISK, os.W_OK) else None


def _label(one: object) -> str:
    return one.label if isinstance(one, ClusterBroker) else str(one or "")
