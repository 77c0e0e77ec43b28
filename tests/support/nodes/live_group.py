"""A name server and the members of one DLEDGER group in one Trio loop, on loopback.

Timers are half the defaults: on a busy machine a quicker group would elect without need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from support.nodes.live_node import SMALL, LiveNode, live_namesrv, send_request, tls_of
from support.suite.ports import distinct_ports
from trioha.config import BrokerConfig
from trioha.errors import StoreError
from trioha.services.broker import serve_broker
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.remoting_command import RemotingCommand


@attrs.define(eq=False)
class Member(LiveNode):
    """One node; it may stop in order, be cut off in the middle, and start again."""

    error: str = ""
    """Error that ended it."""
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    @property
    def id(self) -> str:
        return self.config.d_leger_self_id

    async def start(self) -> None:
        self.events = RecordedEvents()
        await self.nursery.start(self._run)

    async def break_off(self) -> None:
        """End without a word to any peer."""
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

    async def send(self, body: bytes = b"hello") -> RemotingCommand:
        return await self.ask(send_request(body))


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
    ports = distinct_ports(count)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    secret_file = settings.get("cluster_secret_file", "")
    async with live_namesrv(root, cluster_secret_file=secret_file, **tls_of(settings)) as (
        nursery,
        namesrv,
    ):
        members = [
            Member(
                attrs.evolve(
                    member_config(root / f"n{number}", peers, number, port),
                    namesrv_addr=namesrv,
                    **settings,
                ),
                nursery,
            )
            for number, port in enumerate(ports)
        ]
        yield LiveGroup(namesrv, members)


def member_config(root: Path, peers: str, number: int, port: int) -> BrokerConfig:
    return BrokerConfig(
        **SMALL,
        enable_d_leger_commit_log=True,
        d_leger_peers=peers,
        d_leger_self_id=f"n{number}",
        d_leger_heartbeat_interval=60,
        d_leger_election_timeout_min=500,
        d_leger_election_timeout_max=900,
        slave_timeout=20_000,  # a disk may stand still for seconds
        store_path_root_dir=str(root),
        listen_port=port,
        shutdown_grace=500,
    )
