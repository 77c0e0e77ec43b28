"""A name server and the members of one DLEDGER group in one Trio loop, on loopback.

Timers are half the defaults: on a busy machine a quicker group would elect without need.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgpack
import trio

from support.memory.events import RecordedEvents
from support.nodes.live_set import send_request
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.errors import StoreError
from trioha.services.broker import serve_broker
from trioha.services.clock import Clock
from trioha.services.namesrv import serve_namesrv
from trioha.services.remoting_client import open_remoting_client, parse_address
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

NAME = "broker-a"
SUCCESS = int(ResponseCode.SUCCESS)
REFUSED = int(ResponseCode.SERVICE_NOT_AVAILABLE)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@attrs.define(eq=False)
class Member:
    """One node; it may stop in order, be cut off in the middle, and start again."""

    config: BrokerConfig
    nursery: trio.Nursery
    events: RecordedEvents = attrs.Factory(RecordedEvents)
    ended: trio.Event = attrs.Factory(trio.Event)
    error: str = ""
    """What it ended with."""
    _shutdown: trio.Event = attrs.Factory(trio.Event)
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    @property
    def id(self) -> str:
        return self.config.d_leger_self_id

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.config.listen_port}"

    async def start(self) -> None:
        self.events = RecordedEvents()
        await self.nursery.start(self._run)

    async def stop(self) -> None:
        self._shutdown.set()
        await self.ended.wait()

    async def break_off(self) -> None:
        """End without a word to anybody."""
        self._scope.cancel()
        await self.ended.wait()

    async def _run(self, *, task_status: trio.TaskStatus[object]) -> None:
        self._shutdown, self.ended = trio.Event(), trio.Event()
        try:
            with trio.CancelScope() as self._scope:
                await serve_broker(
                    self.config, self._shutdown, self.events, task_status=task_status
                )
        except* StoreError as errors:
            self.error = str(_first(errors))
        finally:
            self.ended.set()

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        async with open_remoting_client(*parse_address(self.address), Clock()) as client:
            return await client.request(request)

    async def send(self, body: bytes = b"hello") -> RemotingCommand:
        return await self.ask(send_request(body))

    async def status(self) -> dict[str, Any]:
        answer = await self.ask(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        status: dict[str, Any] = msgpack.unpackb(answer.body_bytes(), strict_map_key=False)
        return status

    async def wait(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until its status says so."""
        while True:
            status = await self.status()
            if done(status):
                return status
            await trio.sleep(0.01)  # it is a real network


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@attrs.define(eq=False)
class LiveGroup:
    namesrv: str
    members: list[Member]

    async def start(self) -> None:
        for member in self.members:
            await member.start()

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    async def leader(self, *others: Member) -> Member:
        """The one of `others`, or of all, that serves; as soon as there is one."""
        while True:
            for member in others or self.members:
                if (await member.status())["standing"] == "MASTER":
                    return member
            await trio.sleep(0.01)  # it is a real network

    def besides(self, member: Member) -> list[Member]:
        return [other for other in self.members if other is not member]


@asynccontextmanager
async def live_group(root: Path, count: int = 3, **settings: Any) -> AsyncIterator[LiveGroup]:
    """Members that are not started yet; all of it ends with the block, within a minute."""
    ports = free_ports(count)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    shutdown = trio.Event()
    namesrv_config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        admin_http_enable=False,
        kv_config_path=str(root / "kv.json"),
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_namesrv, namesrv_config, shutdown, RecordedEvents())
            namesrv = await nursery.start(serve)
            members = [
                Member(
                    attrs.evolve(
                        member_config(root / f"n{number}", peers, number, port),
                        namesrv_addr=namesrv.listen,
                        **settings,
                    ),
                    nursery,
                )
                for number, port in enumerate(ports)
            ]
            yield LiveGroup(namesrv.listen, members)
            nursery.cancel_scope.cancel()


def member_config(root: Path, peers: str, number: int, port: int) -> BrokerConfig:
    return BrokerConfig(
        broker_name=NAME,
        enable_d_leger_commit_log=True,
        d_leger_peers=peers,
        d_leger_self_id=f"n{number}",
        d_leger_heartbeat_interval=60,
        d_leger_election_timeout_min=500,
        d_leger_election_timeout_max=900,
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        max_message_size=1 << 16,
        max_hash_slot_num=100,
        max_index_num=400,
        bind_address="127.0.0.1",
        broker_ip1="127.0.0.1",
        listen_port=port,
        vip_channel=False,
        admin_http_enable=False,
        shutdown_grace=500,
    )
