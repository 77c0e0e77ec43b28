"""Whole members of a DLEDGER group on a MockClock: real brokers and stores, a network in memory.

Threads would let the clock jump while they work, so what nodes do in threads is done at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import attrs
import outcome
import pytest
import trio

from support.nodes.live_group import member_config
from support.nodes.live_node import SUCCESS, send_request
from trioha.remoting.channel import Channel
from trioha.services.loop.clock import Clock
from trioha.services.loop.ringing import ring
from trioha.services.loop.transport import Listener, Transport
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.listeners import BrokerAddresses, BrokerListeners
from trioha.services.raft.opening import open_raft_broker
from trioha.services.raft.replication import GroupReplication
from trioha.services.remoting.client import RemotingClient, open_remoting_client
from trioha.testing.network import MemoryNetwork, NetworkListener
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

PORT = 1
GROUP = "g"
PROGRESS: dict[str, ExtValue] = {"consumerGroup": GROUP, "topic": "T", "queueId": 0}


def host_of(number: int) -> str:
    return f"10.0.0.{number + 1}"


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do on the loop what nodes do in threads."""

    async def run_sync(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)

    def start_thread_soon(
        function: Callable[[], Any], deliver: Callable[[Any], object], name: str | None = None
    ) -> None:
        deliver(outcome.capture(function))

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    monkeypatch.setattr(trio.lowlevel, "start_thread_soon", start_thread_soon)


@attrs.define(eq=False)
class VirtualMember:
    """One machine: its store stays, its process comes and goes."""

    group: VirtualGroup
    number: int
    events: RecordedEvents = attrs.Factory(RecordedEvents)
    _node: BrokerNode | None = None
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _ended: trio.Event = attrs.Factory(trio.Event)

    @property
    def id(self) -> str:
        return f"n{self.number}"

    @property
    def host(self) -> str:
        """Address of the member in the network."""
        return host_of(self.number)

    @property
    def node(self) -> BrokerNode:
        assert self._node is not None, f"{self.id} is down"
        return self._node

    @property
    def replication(self) -> GroupReplication:
        return cast("GroupReplication", self.node.replication)

    @property
    def is_up(self) -> bool:
        return self._node is not None

    @property
    def leads(self) -> bool:
        return self._node is not None and self.replication.group_role.serving

    async def start(self) -> None:
        await self.group.nursery.start(self._live)

    async def kill(self) -> None:
        """End without a word to any peer."""
        self._scope.cancel()
        await self._ended.wait()

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        group = self.group
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        config = attrs.evolve(
            member_config(group.root / self.id, group.peers, self.number, PORT), **group.settings
        )
        addresses = BrokerAddresses(listen=f"{self.host}:{PORT}", ha_listen="", vip_listen="")
        self.events = RecordedEvents()
        node = self._node = await open_raft_broker(
            *(config, addresses, group.clock, self.events), connect_to=self._connect
        )
        listener = group.network.listeners[self.host] = NetworkListener()
        alarms = (node.group_transfer, node.pull_hold, node.schedule_message)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for task in (node.flush.run, node.reput.run, node.forwarding.run):
                        nursery.start_soon(task)
                    for alarm in alarms:
                        nursery.start_soon(ring, alarm)
                    await node.replication.start(nursery, cast("BrokerListeners", None))
                    accept = node.server.accept
                    nursery.start_soon(accept, cast("Listener", listener), nursery)
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            del group.network.listeners[self.host]
            self._node = None
            with trio.CancelScope(shield=True):
                await node.close()
            self._ended.set()

    async def _connect(self, host: str, port: int) -> Transport:
        return await self.group.network.connect(self.host, host)

    @asynccontextmanager
    async def client(self, name: str = "10.0.9.9") -> AsyncIterator[RemotingClient]:
        """A client's connection to this member."""
        transport = await self.group.network.connect(name, self.host)
        async with open_remoting_client(
            self.host, PORT, self.group.clock, transport=transport
        ) as client:
            yield client

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        """Errors: Unreachable when the member closes the connection."""
        async with self.client() as client:
            return await client.request(request)

    async def send(self) -> int:
        """Send a message; its queue offset."""
        answer = await self.ask(send_request())
        assert answer.code == SUCCESS, (answer.code, answer.remark)
        return answer.ext_int("queueOffset")

    async def commit(self, offset: int) -> None:
        request = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**PROGRESS, "commitOffset": offset}
        )
        answer = await self.ask(request)
        assert answer.code == SUCCESS, (answer.code, answer.remark)

    def channels(self) -> list[Channel]:
        """The connections that clients have to this member."""
        return [link for of_host in self.node.server._links.values() for link in of_host]


@attrs.define(eq=False)
class VirtualGroup:
    """The machines of one group, and the network between them and their clients."""

    root: Path
    size: int
    settings: dict[str, Any]
    nursery: trio.Nursery
    clock: Clock = attrs.Factory(Clock.virtual)
    network: MemoryNetwork = attrs.Factory(lambda: MemoryNetwork(Random(1)))
    members: list[VirtualMember] = attrs.Factory(list)

    @property
    def peers(self) -> str:
        return ";".join(f"n{number}-{host_of(number)}:{PORT}" for number in range(self.size))

    def __getitem__(self, number: int) -> VirtualMember:
        return self.members[number]

    async def start(self) -> None:
        for member in self.members:
            await member.start()

    def besides(self, *these: VirtualMember) -> list[VirtualMember]:
        return [member for member in self.members if member not in these]

    async def leader(self, *others: VirtualMember) -> VirtualMember:
        """The one of `others`, or of all, that serves; as soon as there is one."""
        with trio.fail_after(60):
            while True:
                for member in others or self.members:
                    if member.leads:
                        return member
                await trio.sleep(0.01)

    async def wait(self, done: Callable[[], object]) -> None:
        with trio.fail_after(60):
            while not done():  # noqa: ASYNC110
                await trio.sleep(0.01)

    def isolate(self, member: VirtualMember) -> None:
        """Cut a member off from the others both ways; clients reach all of them."""
        self.network.set_cuts(
            *((member.host, other.host) for other in self.besides(member)),
            *((other.host, member.host) for other in self.besides(member)),
        )

    def heal(self) -> None:
        self.network.set_cuts()


@asynccontextmanager
async def virtual_group(root: Path, size: int = 3, **settings: Any) -> AsyncIterator[VirtualGroup]:
    """A group that has elected a leader; run it on an `autojump_clock`, `without_threads`."""
    async with trio.open_nursery() as nursery:
        group = VirtualGroup(root, size, settings, nursery)
        group.members += [VirtualMember(group, number) for number in range(size)]
        await group.start()
        await group.leader()
        yield group
        nursery.cancel_scope.cancel()
