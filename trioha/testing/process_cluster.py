"""A cluster of real processes on free loopback ports, for clients in any language."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from trioha.client import ClusterConfig
from trioha.client.cluster import open_cluster as open_client
from trioha.client.node_admin import POLL_S, NodeAdmin
from trioha.errors import TriohaError
from trioha.layouts import START_PATIENCE_S, free_ports, namesrv_arguments
from trioha.services.loop.background import open_background_nursery
from trioha.supervisor import Node, Supervisor, open_supervisor
from trioha.testing.cluster import TriohaCluster
from trioha.testing.cluster_broker import ClusterBroker, HandFailed
from trioha.testing.fork_server import fork_server
from trioha.testing.machines import Layout, MachineSpec, java_text, machines_of, settings_of
from trioha.testing.timeline import TimelineEvent
from trioha.testing.virtual_time import is_virtual
from trioha.wire.keyring import Keyring

HOST = "127.0.0.1"
_FOLLOW_AGAIN_S = 0.2
_SMALL: Mapping[str, object] = {
    "vipChannel": False,
    "adminHttpEnable": False,
    "mapedFileSizeCommitLog": 64 << 20,
    "mapedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 10_000,
    # A slave finds a master that starts beside it sooner than after 5 s.
    "haReconnectInterval": 100,
    "diskMaxUsedSpaceRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}


class ProcessClusterBroker(ClusterBroker):
    """A broker in a process of its own."""

    def __init__(self, cluster: ProcessCluster, machine: MachineSpec, port: int) -> None:
        self.machine = machine
        self.root = cluster.root / machine.label
        self.port = port
        self._cluster = cluster
        self._node: Node | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def is_up(self) -> bool:
        return self._node is not None and self._node.process.returncode is None

    @property
    def pid(self) -> int:
        """Id of its process; -1 if it does not run."""
        return self._node.pid if self._node is not None and self.is_up else -1

    async def start(self) -> None:
        self._cluster.note("start", broker=self.label)
        await self.launch()

    async def launch(self) -> None:
        """Start its process and wait until it serves."""
        if not self.is_up:
            arguments = self._cluster.arguments_of(self)
            self._node = await self._cluster.launch(self.label, arguments)

    async def stop(self) -> None:
        self._cluster.note("stop", broker=self.label)
        if self._node is not None and self.is_up:
            self._signal(signal.SIGCONT)
            await self._cluster.supervisor.stop(self._node)

    async def kill(self) -> None:
        self._cluster.note("kill", broker=self.label)
        if self._node is not None:
            await self._cluster.supervisor.kill(self._node)

    async def pause(self) -> None:
        self._cluster.note("pause", broker=self.label)
        self._signal(signal.SIGSTOP)

    async def resume(self) -> None:
        self._cluster.note("resume", broker=self.label)
        self._signal(signal.SIGCONT)

    async def wipe(self) -> None:
        await self.kill()
        self._cluster.note("wipe", broker=self.label)
        shutil.rmtree(self.root, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._node is not None and self.is_up:
            with suppress(ProcessLookupError):
                self._node.process.send_signal(number)


class ProcessCluster(TriohaCluster):
    """Brokers and a name server as processes, as `open_cluster` opens them."""

    def __init__(
        self, layout: Layout, seed: int, root: Path, settings: Mapping[str, object]
    ) -> None:
        machines = machines_of(layout)
        ports = list(free_ports(HOST, len(machines) + 1))
        if len(ports) <= len(machines):
            raise TriohaError(f"{HOST} has no {len(machines) + 1} blocks of free ports")
        self.root = root
        self.namesrv = f"{HOST}:{ports.pop()}"
        self.supervisor: Supervisor
        self._settings = settings
        self._namesrv_node: Node | None = None
        brokers = [
            ProcessClusterBroker(self, one, port) for one, port in zip(machines, ports, strict=True)
        ]
        self._peers = {broker.label: broker.address for broker in brokers}
        name = layout if isinstance(layout, str) else "table"
        super().__init__(name, seed, brokers)

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with the name server where stock clients look for it."""
        return {**os.environ, "ROCKETMQ_NAMESRV_ADDR": self.namesrv, "NAMESRV_ADDR": self.namesrv}

    def client_config(self) -> ClusterConfig:
        return ClusterConfig(
            rng=Random(self.rng.getrandbits(64)), credentials=None, keyring=Keyring("")
        )

    async def stop_namesrv(self) -> None:
        self.note("stop_namesrv")
        if self._namesrv_node is not None:
            await self.supervisor.kill(self._namesrv_node)

    async def start_namesrv(self) -> None:
        self.note("start_namesrv")
        await self.launch_namesrv()

    async def launch_namesrv(self) -> None:
        """Start the name server and wait until it serves."""
        arguments = namesrv_arguments(self.namesrv, self.root / "namesrv")
        self._namesrv_node = await self.launch("namesrv", arguments)

    async def launch_all(self) -> None:
        """Start the name server, then masters and members, then slaves: none has to ask again.

        Errors: as `launch`, for the first that fails.
        """
        failure: BaseException | None = None
        try:
            await self.launch_namesrv()
            for are_slaves in (False, True):
                async with trio.open_nursery() as nursery:
                    for broker in self.brokers:
                        assert isinstance(broker, ProcessClusterBroker)
                        if (broker.machine.role == "SLAVE") is are_slaves:
                            nursery.start_soon(broker.launch)
        except* TriohaError as errors:
            failure = errors
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        if failure is not None:
            raise failure

    async def launch(self, label: str, arguments: list[str]) -> Node:
        """Start a node and wait until it serves.

        Errors: NodeFailed with its last lines; HandFailed if it does not become ready.
        """
        logs = self.root / "logs"
        logs.mkdir(exist_ok=True)
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("TRIOHA_") and key != "NAMESRV_ADDR"
        }
        with trio.move_on_after(START_PATIENCE_S):
            return await self.supervisor.start(
                label, arguments, log=logs / f"{label}.log", environment=clean
            )
        raise HandFailed(f"{label} was not ready within {START_PATIENCE_S:g} s")

    def arguments_of(self, broker: ProcessClusterBroker) -> list[str]:
        """Return the arguments of `trioha run` for a broker."""
        settings = {
            **_SMALL,
            "bindAddress": HOST,
            "brokerIP1": HOST,
            "listenPort": broker.port,
            "haListenPort": broker.port + 1,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": broker.root,
            **settings_of(broker.machine, self._peers),
            **self._settings,
        }
        pairs = [f"{key}={java_text(value)}" for key, value in settings.items()]
        return ["broker", *(word for pair in pairs for word in ("--set", pair))]

    async def task_trees(self) -> Mapping[str, Mapping[str, Any]]:
        trees = {}
        for broker in self.brokers:
            with suppress(TriohaError):
                if broker.is_up:
                    trees[broker.label] = await NodeAdmin(self.observer, broker.address).tasks()
        return trees

    async def follow(self, label: str, address: str) -> None:
        """Take over the events of a node as it journals them, until cancelled."""
        node = NodeAdmin(self.observer, address)
        sequence = 0
        while True:
            try:
                piece = await node.journal(from_sequence=sequence, wait_s=POLL_S)
            except TriohaError:
                await trio.sleep(_FOLLOW_AGAIN_S)  # it is down, or not yet up
                continue
            for event in piece.events:
                self.timeline.add(TimelineEvent(event.wall_ms, label, event.name, event.fields))
            # A node whose disk was wiped counts from the start again.
            sequence = 0 if piece.end_sequence < sequence else piece.next_sequence


@asynccontextmanager
async def open_process_cluster(
    layout: Layout, *, seed: int, root: Path | None, settings: Mapping[str, object]
) -> AsyncIterator[ProcessCluster]:
    """Open a cluster of processes; it is in sync, and all of them end with the block.

    Errors: TriohaError on virtual time, which real processes do not share.
    """
    if is_virtual():
        raise TriohaError("real processes need real time: run without MockClock's autojump")
    async with AsyncExitStack() as stack:
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="trioha-test-"))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
        cluster = ProcessCluster(layout, seed, root, settings)
        cluster.supervisor = await stack.enter_async_context(
            open_supervisor(spawn=fork_server().spawn)
        )
        stack.callback(cluster.supervisor.kill_all)
        cluster.operator = cluster.observer = await stack.enter_async_context(
            open_client(cluster.namesrv, cluster.client_config())
        )
        nursery = await stack.enter_async_context(open_background_nursery())
        await cluster.launch_all()
        nodes = {broker.label: broker.address for broker in cluster.brokers}
        for label, address in {"namesrv": cluster.namesrv, **nodes}.items():
            nursery.start_soon(partial(cluster.follow, label, address), name=f"follow[{label}]")
        await cluster.wait_in_sync()
        yield cluster
        nursery.cancel_scope.cancel()
