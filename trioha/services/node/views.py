"""Protocols: the parts of a node that its status, checks and metrics read."""

from __future__ import annotations

from typing import Protocol

from trioha.broker.core import BrokerCore
from trioha.config import BrokerConfig, BrokerRole
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.introspection import NodeProcess
from trioha.services.loop.clock import Clock
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.node.namesrv_registration import NamesrvRegistration
from trioha.services.node.replication import Replication
from trioha.services.node.request_forwarding import RequestForwarding
from trioha.services.remoting.server import RemotingServer
from trioha.store.message_store import FileMessageStore
from trioha.wire.keyring import Keyring


class CheckedBroker(Protocol):
    """A broker, as /readyz sees it."""

    stopping: bool
    registration: NamesrvRegistration

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def replication(self) -> Replication: ...


class ServedBroker(Protocol):
    """A broker of either kind, while it serves."""

    store: FileMessageStore
    core: BrokerCore
    server: RemotingServer

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def role(self) -> BrokerRole: ...


class ToldBroker(ServedBroker, Protocol):
    """A broker, as TRIOHA_NODE_STATUS shows it."""

    keyring: Keyring
    addresses: BrokerAddresses
    forwarding: RequestForwarding
    started_wall_ms: int
    process: NodeProcess

    @property
    def broker_id(self) -> int: ...


class MeasuredBroker(ServedBroker, Protocol):
    """A broker, as /metrics shows it."""

    keyring: Keyring
    clock: Clock
    traffic: TrafficBudget
    events: EventCounts
    registration: NamesrvRegistration
    process: NodeProcess

    @property
    def replication(self) -> Replication: ...
