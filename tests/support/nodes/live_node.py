"""The common part of brokers in the test's own Trio loop, and a name server for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgpack
import trio

from trioha.config import BrokerConfig, NamesrvConfig
from trioha.config.tls_files import client_context, node_client_tls
from trioha.services.loop.clock import Clock
from trioha.services.loop.tls import tls_connect
from trioha.services.loop.transport import Connect, connect
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

NAME = "broker-a"
SUCCESS, REFUSED = int(ResponseCode.SUCCESS), int(ResponseCode.SERVICE_NOT_AVAILABLE)
SMALL: dict[str, Any] = {
    **{"broker_name": NAME, "bind_address": "127.0.0.1", "broker_ip1": "127.0.0.1"},
    **{"mapped_file_size_commit_log": 1 << 20, "max_message_size": 1 << 16},
    **{"max_hash_slot_num": 100, "max_index_num": 400},
    **{"vip_channel": False, "admin_http_enable": False},
}
"""Settings of small brokers on loopback."""


def tls_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of TLS among these; a name server takes them too."""
    return {name: value for name, value in settings.items() if name.startswith("tls_")}


def send_request(body: bytes = b"hello", topic: str = "T", unique_key: str = "") -> RemotingCommand:
    fields: dict[str, ExtValue] = {"a": "pg", "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0}
    fields |= {"g": 1000, "h": 0, "i": f"UNIQ_KEY\x01{unique_key}" if unique_key else ""}
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)


@attrs.define(eq=False)
class LiveNode:
    """One broker; it may stop and start again."""

    config: BrokerConfig
    nursery: trio.Nursery
    events: RecordedEvents = attrs.Factory(RecordedEvents)
    ended: trio.Event = attrs.Factory(trio.Event)
    _shutdown: trio.Event = attrs.Factory(trio.Event)

    @property
    def address(self) -> str:
        return f"{self.config.broker_ip1}:{self.config.listen_port}"

    @property
    def root(self) -> Path:
        return Path(self.config.store_path_root_dir)

    async def stop(self) -> None:
        self._shutdown.set()
        await self.ended.wait()

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        connect_to: Connect = connect
        if self.config.dials_tls:
            connect_to = tls_connect(client_context(node_client_tls(self.config)))
        async with open_remoting_client(
            *parse_address(self.address), Clock(), connect_to=connect_to
        ) as client:
            return await client.request(request)

    async def status(self) -> dict[str, Any]:
        answer = await self.ask(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        status: dict[str, Any] = msgpack.unpackb(answer.body_bytes(), strict_map_key=False)
        return status

    async def wait(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until `done` accepts its status; return that."""
        while True:
            status = await self.status()
            if done(status):
                return status
            await trio.sleep(0.01)  # it is a real network


@asynccontextmanager
async def live_namesrv(
    root: Path, *, cluster_secret_file: str = "", **tls: Any
) -> AsyncIterator[tuple[trio.Nursery, str]]:
    """A nursery and a name server's address; all of it ends with the block, within a minute."""
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        admin_http_enable=False,
        kv_config_path=str(root / "kv.json"),
        cluster_secret_file=cluster_secret_file,
        **tls,
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_namesrv, config, trio.Event(), RecordedEvents())
            namesrv = await nursery.start(serve)
            yield nursery, namesrv.listen
            nursery.cancel_scope.cancel()
