"""A name server and brokers of one set in one Trio loop, on loopback; each may stop and start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from support.nodes.live_node import NAME, SMALL, LiveNode, live_namesrv, send_request, tls_of
from support.suite.ports import free_ports
from trioha.client.cluster import open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.config import BrokerConfig, BrokerRole
from trioha.failover.outcome import Outcome
from trioha.services.broker import serve_broker
from trioha.testing.recorded_events import RecordedEvents


class Broker(LiveNode):
    """One member; its ports stay the same from one life to the next."""

    async def start(self) -> None:
        self.events = RecordedEvents()
        await self.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[object]) -> None:
        self._shutdown, self.ended = trio.Event(), trio.Event()
        try:
            await serve_broker(self.config, self._shutdown, self.events, task_status=task_status)
        finally:
            self.ended.set()

    async def send(self, body: bytes, unique_key: str = "") -> int:
        """The code of the answer."""
        return (await self.ask(send_request(body, unique_key=unique_key))).code


@attrs.define(eq=False)
class LiveSet:
    root: Path
    nursery: trio.Nursery
    namesrv: str
    settings: dict[str, Any]
    brokers: list[Broker] = attrs.Factory(list)

    async def add(self, role: BrokerRole = BrokerRole.SLAVE) -> Broker:
        home_id, port = len(self.brokers), free_ports()
        config = BrokerConfig(
            **SMALL,
            broker_id=home_id,
            broker_role=role,
            namesrv_addr=self.namesrv,
            store_path_root_dir=str(self.root / str(home_id)),
            listen_port=port,
            ha_listen_port=port + 1,
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
    """A set without brokers yet; all of it ends with the block, within a minute."""
    secret_file = settings.get("cluster_secret_file", "")
    async with live_namesrv(root, cluster_secret_file=secret_file, **tls_of(settings)) as (
        nursery,
        namesrv,
    ):
        yield LiveSet(root, nursery, namesrv, settings)


def level(status: dict[str, Any]) -> bool:
    """Does the master's status say that a slave follows on an extended link and holds all?"""
    return any(link["in_sync"] and not link["gap_bytes"] for link in status["connections"])


def follows(status: dict[str, Any]) -> bool:
    slave = status["slave"]
    return bool(slave and slave["state"] == "TRANSFER")
