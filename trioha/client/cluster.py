"""The nodes of a cluster as one client sees them: connections on demand, requests with patience.

One connection per address serves everything this client does there. The first request that
needs it opens it, in a task of the client's nursery. When it ends it is forgotten, and the next
request opens another. Nothing reconnects in the background.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import attrs
import trio

from trioha.config.secret_files import operator_keyring
from trioha.config.tls_files import ClientTls, client_context
from trioha.credentials import current_credentials, current_tls
from trioha.errors import CommandError, TriohaError, Unreachable
from trioha.remoting.channel import Handler
from trioha.security.node_signer import unsigned
from trioha.security.signature import Credentials
from trioha.services.loop.background import open_background_nursery
from trioha.services.loop.clock import Clock
from trioha.services.loop.tls import tls_connect
from trioha.services.loop.transport import Transport, connect
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.wire.address import parse_namesrvs
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import NOT_A_NAME_SERVER

log = logging.getLogger("trioha.client")

Connector = Callable[[str, int], Awaitable[Transport]]
"""Opens a byte stream to host and port: TCP as a rule, memory streams in tests."""

_serials = itertools.count(1)


@attrs.frozen(kw_only=True)
class ClusterConfig:
    """Timeouts, intervals, credentials and identity of a client."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 3.0
    route_interval_s: float = 30.0
    """Interval at which known routes are asked for again."""
    heartbeat_interval_s: float = 30.0
    """Brokers forget a client after 120 s without one."""
    credentials: Credentials | None = attrs.field(factory=current_credentials)
    """The account that signs every request; None: no request is signed."""
    tls: ClientTls | None = attrs.field(factory=current_tls)
    """Certificates of connections over TLS, as the environment says; None: plain connections."""
    connector: Connector = attrs.Factory(lambda self: _connector(self.tls), takes_self=True)
    keyring: Keyring = attrs.field(factory=operator_keyring)
    """Proves what only operators may ask; as the environment says."""
    clock: Clock = attrs.field(factory=Clock)
    rng: random.Random = attrs.field(factory=random.Random)
    host: str = ""
    """Address of this machine in client ids; empty: as the name server sees it."""
    process_id: int = attrs.field(factory=os.getpid)
    """Part of client ids and message ids."""
    serials: Iterator[int] = _serials
    """Numbers that tell the clients of this process apart."""


@attrs.frozen
class Groups:
    """Memberships of a client, as its heartbeats tell them to brokers."""

    producers: tuple[ProducerData, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()


NO_GROUPS = Groups()
NO_HANDLERS: Mapping[int, Handler] = MappingProxyType({})


def _connector(tls: ClientTls | None) -> Connector:
    return connect if tls is None else tls_connect(client_context(tls).fresh)


class Cluster:
    """Requests to any node of a cluster, by address."""

    def __init__(
        self,
        namesrv: tuple[str, ...],
        host: str,
        nursery: trio.Nursery,
        config: ClusterConfig,
        groups: Groups,
        handlers: Mapping[int, Handler],
    ) -> None:
        """`handlers` answer what brokers ask this client, by request code."""
        self.config = config
        self.clock = config.clock
        self.host = host
        self.client_id = f"{host}@{config.process_id}#{next(config.serials)}"
        self.namesrvs = namesrv
        """Addresses of the name servers, in the order given."""
        self._namesrv_index = config.rng.randrange(len(namesrv))
        self._nursery = nursery
        self._groups = groups
        self._handlers = handlers
        self._clients: dict[str, RemotingClient] = {}
        self._opening: dict[str, trio.Event] = {}

    def heartbeat(self) -> RemotingCommand:
        """Return the request that registers this client with a broker."""
        data = HeartbeatData(self.client_id, self._groups.producers, self._groups.consumers)
        return RemotingCommand(RequestCode.HEART_BEAT, body=data.encode())

    async def request(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Ask a node and await its answer, `request_timeout_s` at most.

        Errors: Unreachable. The caller judges the answer's code.
        """
        client = await self.connection(address)
        with trio.move_on_after(self.config.request_timeout_s):
            return await client.request(command)
        raise Unreachable(f"{address} did not answer within {self.config.request_timeout_s:g} s")

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Tell a node something and await nothing but the connection."""
        (await self.connection(address)).oneway_nowait(command)

    async def ask_namesrv(self, command: RemotingCommand) -> RemotingCommand:
        """Ask the name server that answered last, then the others in turn.

        Errors: Unreachable when none answers; it names each with its reason.
        """
        reasons = []
        for _ in self.namesrvs:
            address = self.namesrvs[self._namesrv_index]
            try:
                response = await self.request(address, command)
            except Unreachable as error:
                reasons.append(str(error))
            else:
                if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return response
                reasons.append(f"{address} {NOT_A_NAME_SERVER}")
            self._namesrv_index = (self._namesrv_index + 1) % len(self.namesrvs)
        raise Unreachable("no name server answers: " + "; ".join(reasons))

    async def connection(self, address: str) -> RemotingClient:
        """The open connection to `address`, opened now if need be.

        Errors: Unreachable.
        """
        while True:
            client = self._clients.get(address)
            if client is not None and not client.closed:
                return client
            opening = self._opening.get(address)
            if opening is None:
                return await self._open(address)
            await opening.wait()
            # The task that opened it may have failed or been cancelled: look again.

    async def _open(self, address: str) -> RemotingClient:
        opened = self._opening[address] = trio.Event()
        try:
            with trio.move_on_after(self.config.connect_timeout_s):
                client: RemotingClient = await self._nursery.start(
                    self._serve, address, name=f"client.conn[{address}]"
                )
                return client
            raise Unreachable(f"{address}: no connection in {self.config.connect_timeout_s:g} s")
        finally:
            del self._opening[address]
            opened.set()

    async def _serve(
        self, address: str, task_status: trio.TaskStatus[RemotingClient] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            host, port = parse_address(address)
        except TriohaError as error:  # another node may have told it
            raise Unreachable(str(error)) from error
        closed = trio.Event()
        credentials = self.config.credentials
        try:
            transport = await self.config.connector(host, port)
        except OSError as error:
            raise Unreachable(f"{address}: {error.strerror or error}") from error
        async with open_remoting_client(
            host,
            port,
            self.clock,
            handlers=self._handlers,
            on_closed=closed.set,
            transport=transport,
            sign=credentials.sign if credentials is not None else unsigned,
            keyring=self.config.keyring,
        ) as client:
            self._clients[address] = client
            if self._groups != NO_GROUPS and address not in self.namesrvs:
                client.oneway_nowait(self.heartbeat())
            task_status.started(client)
            try:
                await closed.wait()
                log.info("connection to %s closed %s", address, client.link.close_reason)
            finally:
                if self._clients.get(address) is client:
                    del self._clients[address]


@asynccontextmanager
async def open_cluster(
    namesrv: str,
    config: ClusterConfig | None = None,
    *,
    groups: Groups = NO_GROUPS,
    handlers: Mapping[int, Handler] = NO_HANDLERS,
) -> AsyncIterator[Cluster]:
    """A cluster known by its name servers (``host:port;host:port``).

    With `groups` the first request on a connection to a broker is the client's heartbeat.
    Errors: TriohaError when `namesrv` is not a list of addresses.
    """
    addresses = parse_namesrvs(namesrv)
    config = config or ClusterConfig()
    host = config.host or await _local_host(*parse_address(addresses[0]))
    async with open_background_nursery() as nursery:
        left = trio.Event()
        connections = await nursery.start(_hold_connections, left, name="client.connections")
        try:
            yield Cluster(addresses, host, connections, config, groups, handlers)
        finally:
            left.set()


async def _hold_connections(
    left: trio.Event,
    task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED,
) -> None:
    # Shielded, and not around the user's block: when that is cancelled, the last commits and
    # farewells still need their connections.
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as connections:
            task_status.started(connections)
            await left.wait()
            connections.cancel_scope.cancel()


def success(response: RemotingCommand) -> RemotingCommand:
    """The response itself if its code is 0.

    Errors: CommandError with the node's code and remark.
    """
    if response.code != ResponseCode.SUCCESS:
        raise CommandError(response.code, response.remark or "refused without a remark")
    return response


async def _local_host(host: str, port: int) -> str:
    """The address of ours that the name server sees. Nothing is sent."""
    try:
        ((family, _, _, _, address), *_) = await trio.socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
