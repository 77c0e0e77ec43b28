"""A name server and brokers of one set in one Trio loop, on loopback; each may stop and start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgpack
import trio

from support.memory.events import RecordedEvents
from trioha.client.cluster import open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.config import BrokerConfig, BrokerRole, NamesrvConfig
from trioha.failover.outcome import Outcome
from trioha.services.broker import serve_broker
from trioha.services.broker_listeners import BrokerAddresses
from trioha.services.clock import Clock
from trioha.services.namesrv import serve_namesrv
from trioha.services.remoting_client import open_remoting_client, parse_address
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

NAME = "broker-a"


def send_request(body: bytes = b"hello", topic: str = "T", unique_key: str = "") -> RemotingCommand:
    fields: dict[str, ExtValue] = {"a": "pg", "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0}
    fields |= {"g": 1000, "h": 0, "i": f"UNIQ_KEY\x01{unique_key}" if unique_key else ""}
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)


@attrs.define(eq=False)
class Broker:
    """One node; its ports stay the same from one life to the next."""

    config: BrokerConfig
    nursery: trio.Nursery
    events: RecordedEvents = attrs.Factory(RecordedEvents)
    _shutdown: trio.Event = attrs.Factory(trio.Event)
    _ended: trio.Event = attrs.Factory(trio.Event)

    @property
    def address(self) -> str:
        return f"{self.config.broker_ip1}:{self.config.listen_port}"

    @property
    def root(self) -> Path:
        return Path(self.config.store_path_root_dir)

    async def start(self) -> None:
        self.events = RecordedEvents()
        addresses: BrokerAddresses = await self.nursery.start(self._run)
        _, port = parse_address(addresses.listen)
        self.config = attrs.evolve(self.config, listen_port=port)
        if addresses.ha_listen:  # a member of a DLEDGER group has none
            _, ha_port = parse_address(addresses.ha_listen)
            self.config = attrs.evolve(self.config, ha_listen_port=ha_port)

    async def stop(self) -> None:
        self._shutdown.set()
        await self._ended.wait()

    async def _run(self, *, task_status: trio.TaskStatus[BrokerAddresses]) -> None:
        self._shutdown, self._ended = trio.Event(), trio.Event()
        try:
            await serve_broker(self.config, self._shutdown, self.events, task_status=task_status)
        finally:
            self._ended.set()

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        async with open_remoting_client(*parse_address(self.address), Clock()) as client:
            return await client.request(request)

    async def send(self, body: bytes, unique_key: str = "") -> int:
        """The code of the answer."""
        return (await self.ask(send_request(body, unique_key=unique_key))).code

    async def status(self) -> dict[str, Any]:
        answer = await self.ask(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        status: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
        return status

    async def wait(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until its status says so."""
        while True:
            status = await self.status()
            if done(status):
                return status
            await trio.sleep(0.01)  # it is a real network


@attrs.define(eq=False)
class LiveSet:
    root: Path
    nursery: trio.Nursery
    namesrv: str
    settings: dict[str, Any]
    brokers: list[Broker] = attrs.Factory(list)

    async def add(self, role: BrokerRole = BrokerRole.SLAVE) -> Broker:
        home_id = len(self.brokers)
        config = BrokerConfig(
            broker_name=NAME,
            broker_id=home_id,
            broker_role=role,
            namesrv_addr=self.namesrv,
            store_path_root_dir=str(self.root / str(home_id)),
            mapped_file_size_commit_log=1 << 20,
            max_message_size=1 << 16,
            max_hash_slot_num=100,
            max_index_num=400,
            bind_address="127.0.0.1",
            broker_ip1="127.0.0.1",
            listen_port=0,
            ha_listen_port=0,
            vip_channel=False,
            admin_http_enable=False,
            ha_reconnect_interval=20,
            shutdown_grace=200,
        )
        broker = Broker(attrs.evolve(config, **self.settings), self.nursery)
        self.brokers.append(broker)
        await broker.start()
        return broker

    async def fail_over(self, *, to: int | None = None, force: bool = False) -> Outcome:
        async with open_cluster(self.namesrv) as cluster:
            return await run_failover(cluster, new_order(cluster, NAME, to=to, force=force))


@asynccontextmanager
async def live_set(root: Path, **settings: Any) -> AsyncIterator[LiveSet]:
    """A set without brokers yet; all of it ends with the block, within half a minute."""
    shutdown = trio.Event()
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        admin_http_enable=False,
        kv_config_path=str(root / "kv.json"),
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_namesrv, config, shutdown, RecordedEvents())
            namesrv = await nursery.start(serve)
            yield LiveSet(root, nursery, namesrv.listen, settings)
            nursery.cancel_scope.cancel()


def level(status: dict[str, Any]) -> bool:
    """Of a master: a slave follows on an extended link and holds all."""
    return any(link["in_sync"] and not link["gap_bytes"] for link in status["connections"])


def follows(status: dict[str, Any]) -> bool:
    slave = status["slave"]
    return bool(slave and slave["state"] == "TRANSFER")


SUCCESS, REFUSED = int(ResponseCode.SUCCESS), int(ResponseCode.SERVICE_NOT_AVAILABLE)
