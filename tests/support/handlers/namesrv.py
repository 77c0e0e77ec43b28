"""Requests to a name server, and one without a network."""

from __future__ import annotations

import trio

from support.memory.links import MemoryListener
from trioha.config import NamesrvConfig
from trioha.namesrv.kv_config import KvConfig
from trioha.namesrv.processor import NamesrvProcessor
from trioha.namesrv.route_info import BrokerAddress
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.services.loop.clock import Clock
from trioha.services.remoting.server import RemotingServer
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import RequestCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import RegisterBrokerBody

MASTER = BrokerAddress("C", "broker-a", 0, "10.0.0.1:10911")
SLAVE = BrokerAddress("C", "broker-a", 1, "10.0.0.2:10911")
VERSION = DataVersion(1, 1)


def topics(*names: str, queues: int = 4) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, queues, queues) for name in names}


def broker_fields(broker: BrokerAddress) -> dict[str, ExtValue]:
    return {
        "clusterName": broker.cluster,
        "brokerName": broker.broker_name,
        "brokerId": str(broker.broker_id),
        "brokerAddr": broker.address,
    }


def register_request(
    broker: BrokerAddress = MASTER,
    table: dict[str, TopicConfig] | None = None,
    version: DataVersion = VERSION,
    ha_server_addr: str = "10.0.0.1:10912",
    epoch: int = 0,
    nonce: str = "",
) -> RemotingCommand:
    """A registration as a broker sends it; with an epoch, as trioha's masters do."""
    body = RegisterBrokerBody(version, topics("T") if table is None else table)
    fields = broker_fields(broker) | {"haServerAddr": ha_server_addr, "compressed": "false"}
    if epoch:
        fields |= {"epoch": str(epoch), "epochNonce": nonce}
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, body.encode())


def route_request(topic: str, version: int = 409) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, version=version, opaque=1
    )


class MemoryNamesrv:
    """A name server behind memory streams that remembers its requests and may be mute."""

    def __init__(self, secret: str = "") -> None:
        self.events = RecordedEvents()
        self.processor = NamesrvProcessor(NamesrvConfig(), KvConfig(), self.events, Keyring(secret))
        self.listener = MemoryListener()
        self.requests: list[RemotingCommand] = []
        self.times: list[float] = []
        self.mute = False
        handlers = {code: self._noted(it) for code, it in self.processor.handlers().items()}
        self.server = RemotingServer(
            RequestTable(handlers, self.events).handle,
            *(Clock.virtual(), self.events),
            on_closed=self.processor.channel_closed,
        )
        self.connections: trio.Nursery | None = None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self.connections:
            task_status.started()
            while True:
                transport = await self.listener.accept()
                self.connections.start_soon(self.server.serve_connection, transport)

    def drop_connections(self) -> None:
        for link in [link for of_host in self.server._links.values() for link in of_host]:
            link.close_nowait("dropped by the test")

    def codes(self) -> list[int]:
        return [request.code for request in self.requests]

    def registrations(self) -> list[RegisterBrokerBody]:
        return [
            RegisterBrokerBody.decode(
                request.body_bytes(), compressed=request.ext_bool("compressed"), version=409
            )
            for request in self.requests
            if request.code == RequestCode.REGISTER_BROKER
        ]

    def _noted(self, handler: Handler) -> Handler:
        def handle(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            request.body = request.body_bytes()
            self.requests.append(request)
            self.times.append(trio.current_time())
            return None if self.mute else handler(channel, request, instant)

        return handle
