"""Nodes of the production shell in this process: real stores on disk, a network in memory.

A machine keeps its store while its process comes and goes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import attrs
import trio

from trioha.config import BrokerConfig, NamesrvConfig
from trioha.errors import StoreError
from trioha.journal import EventSink
from trioha.services.broker import serve_node
from trioha.services.ha.opening import open_master_slave_node
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Listener, Transport
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.listeners import BrokerAddresses, BrokerListeners
from trioha.services.raft.opening import open_raft_broker
from trioha.testing.network import MemoryNetwork, NetworkListener
from trioha.testing.recorded_events import RecordedEvents

PORT, HA_PORT, NAMESRV_PORT = 10911, 10912, 9876
_LOG_NAME_DIGITS = 20


class Killed(BaseException):
    """The process was killed inside this call; nothing may handle it."""


@attrs.frozen
class MemoryWorld:
    """The surroundings that all nodes of a cluster share."""

    network: MemoryNetwork
    nursery: trio.Nursery
    clock: Clock


@attrs.define(eq=False)
class MemoryBroker:
    """One machine with a broker of either kind."""

    world: MemoryWorld
    host: str
    config: BrokerConfig
    """Configuration for its next start."""
    journal: Callable[[], EventSink] = RecordedEvents
    """Makes the sink of one life of the process."""
    failure: StoreError | None = None
    """Error that ended the process, if it ended by itself."""
    _events: EventSink = attrs.Factory(RecordedEvents)
    _node: BrokerNode | None = None
    _is_ready: bool = False
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _shutdown: trio.Event = attrs.Factory(trio.Event)
    _ended: trio.Event = attrs.Factory(trio.Event)

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{self.host}:{PORT}"

    @property
    def root(self) -> Path:
        """Directory of the store."""
        return Path(self.config.store_path_root_dir)

    @property
    def node(self) -> BrokerNode:
        """The running node."""
        assert self._node is not None, f"the broker on {self.host} is down"
        return self._node

    @property
    def is_up(self) -> bool:
        return self._node is not None

    async def start(self) -> None:
        """Return once the node is ready.

        Errors: StoreError when it does not start.
        """
        await self.world.nursery.start(self._live, name=f"machine[{self.host}]")

    async def stop(self) -> None:
        """Stop in order."""
        if self.is_up:
            self._shutdown.set()
            await self._ended.wait()

    async def kill(self) -> None:
        """End without a word, and without closing the store."""
        if self.is_up:
            self._end_process()
            await self._ended.wait()

    async def lose_power(self) -> None:
        """Kill the node; its store keeps only the bytes of its logs that were flushed."""
        if not self.is_up:
            return
        flushed_offset = self.node.store.flushed_offset
        wal = self.node.metadata_files.wal
        await self.kill()
        self._cut_log(flushed_offset)
        if wal.synced_position < wal.position:
            for path in wal.directory.iterdir():
                if path.name.isdigit() and int(path.name) > wal.synced_position:
                    path.unlink()

    async def wipe(self) -> None:
        """Kill the node if it runs, and empty its disk."""
        await self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def die(self) -> None:
        """Kill the process inside the call that it is in.

        Errors: Killed, for the caller to let through.
        """
        self._end_process()
        raise Killed

    async def connect(self, host: str, port: int) -> Transport:
        """Connect from this machine."""
        assert not self._scope.cancel_called, "the process is dead"
        return await self.world.network.connect(self.host, host, port)

    async def _live(self, *, task_status: trio.TaskStatus[object]) -> None:
        self._scope, self._shutdown, self._ended = trio.CancelScope(), trio.Event(), trio.Event()
        self._is_ready, self.failure = False, None
        try:
            with self._scope:
                await self._serve(task_status)
        except* Killed:
            pass
        except* StoreError as errors:
            error = first_error(errors)
            self._events.event("node_stopped", reason=str(error))
            self._failed(error)
        finally:
            self.world.network.end_process(self.host)
            if self._node is not None:
                self._node.store.abandon()
            self._node = None
            self._ended.set()

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        config, world = self.config, self.world
        is_raft = config.enable_d_leger_commit_log
        ha_listen = "" if is_raft else f"{self.host}:{HA_PORT}"
        addresses = BrokerAddresses(self.address, ha_listen, vip_listen="")
        events = self._events = self.journal()
        if is_raft:
            node = await open_raft_broker(
                config, addresses, world.clock, events, connect_to=self.connect
            )
        else:
            node = await open_master_slave_node(
                config,
                addresses,
                world.clock,
                events,
                connect_to=self.connect,
                connect_link=self.connect,
            )
        self._node = node
        self.opened(node)
        remoting = cast("Listener", self._listen(PORT))
        ha = None if is_raft else cast("Listener", self._listen(HA_PORT))
        listeners = BrokerListeners(config, remoting, None, ha, None, addresses)

        self._is_ready = True
        await serve_node(node, listeners, self._shutdown, task_status)
        await node.close()

    def opened(self, node: BrokerNode) -> None:
        """Called with each node before it serves; for rigs that look deeper."""

    def _failed(self, error: StoreError) -> None:
        if not self._is_ready:
            raise error
        self.failure = error

    def _listen(self, port: int) -> NetworkListener:
        listener = NetworkListener(self.host, port)
        self.world.network.listeners[f"{self.host}:{port}"] = listener
        return listener

    def _end_process(self) -> None:
        # First the connections: nothing that the dying tasks do is heard of.
        self.world.network.end_process(self.host)
        self._scope.cancel()

    def _cut_log(self, flushed_offset: int) -> None:
        size = self.config.mapped_file_size_commit_log
        for path in (self.root / "commitlog").glob("[0-9]" * _LOG_NAME_DIGITS):
            begin = max(flushed_offset - int(path.name), 0)
            if begin < size:
                os.truncate(path, begin)
                os.truncate(path, size)


class MemoryNamesrv:
    """A machine with a name server. One that starts again has forgotten every route."""

    def __init__(
        self,
        world: MemoryWorld,
        host: str,
        root: Path,
        journal: Callable[[], EventSink] = RecordedEvents,
    ) -> None:
        self.host = host
        self.events: EventSink = journal()
        self._journal = journal
        self._world = world
        self._config = NamesrvConfig(
            bind_address="127.0.0.1", admin_http_enable=False, kv_config_path=str(root / "kv.json")
        )
        self._scope = trio.CancelScope()
        self._is_up = False

    @property
    def is_up(self) -> bool:
        return self._is_up

    @property
    def address(self) -> str:
        return f"{self.host}:{NAMESRV_PORT}"

    async def start(self) -> None:
        """Return once it accepts connections."""
        await self._world.nursery.start(self._live, name=f"machine[{self.host}]")

    def kill(self) -> None:
        """End without a word."""
        self._world.network.end_process(self.host)
        self._scope.cancel()
        self._is_up = False

    async def _live(self, *, task_status: trio.TaskStatus[object]) -> None:
        listener = NetworkListener(self.host, NAMESRV_PORT)
        self._world.network.listeners[self.address] = listener
        self.events = self._journal()
        serve = partial(
            serve_namesrv,
            self._config,
            trio.Event(),
            self.events,
            clock=self._world.clock,
            listener=cast("Listener", listener),
        )
        self._is_up = True
        with trio.CancelScope() as self._scope:
            await serve(task_status=task_status)


def first_error(error: BaseExceptionGroup[StoreError]) -> StoreError:
    """Return the first leaf of the group."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, StoreError)
    return found
