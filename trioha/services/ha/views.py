"""Protocols: the parts of a node that other modules here use."""

from __future__ import annotations

from typing import Protocol

from trioha.broker.core import BrokerCore
from trioha.broker.failover import FailoverProcessor
from trioha.broker.failover_audit import AuditTrail
from trioha.broker.request_gate import RequestGate
from trioha.broker.visibility import Visibility
from trioha.config import BrokerConfig, BrokerRole
from trioha.ha.mastership import Mastership
from trioha.ha.replicas import Replicas
from trioha.remoting.outboxes import Outboxes
from trioha.services.admin.event_counts import EventCounts
from trioha.services.ha.client import HaClient
from trioha.services.ha.handshake import Handshake
from trioha.services.ha.master import HaMaster
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect
from trioha.services.node.access_control import AccessControl
from trioha.services.node.config_persist import ConfigPersist
from trioha.services.node.namesrv_registration import NamesrvRegistration
from trioha.services.node.request_forwarding import RequestForwarding
from trioha.store.message_store import FileMessageStore


class SetNode(Protocol):
    """The state of a member of a set, read only."""

    store: FileMessageStore
    core: BrokerCore
    clock: Clock
    events: EventCounts
    mastership: Mastership
    replicas: Replicas
    handshake: Handshake
    master_remoting_address: MasterAddress

    @property
    def ha_master(self) -> HaMaster | None: ...
    @property
    def ha_client(self) -> HaClient | None: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def role(self) -> BrokerRole: ...


class ReaderControl(Protocol):
    """Limits readers when the role changes: `trioha.services.ha.reader_service`."""

    @property
    def held_back_bytes(self) -> int: ...
    def limit(self) -> None: ...
    def send_on(self) -> None: ...


class ToldNode(SetNode, Protocol):
    """A node of a set, as its status and /metrics show it."""

    failover: FailoverProcessor
    audit: AuditTrail
    gate: RequestGate

    @property
    def reader_service(self) -> ReaderControl: ...
    def slave_reported(self, now_ms: int) -> None: ...
    def streams_metadata(self) -> bool: ...


class LinkedNode(SetNode, Protocol):
    """A member, as the links of its role use it."""

    master_address: MasterAddress
    registration: NamesrvRegistration
    connect_to: Connect
    connect_link: Connect
    access: AccessControl

    def on_appended(self) -> None: ...
    def on_metadata(self, position: int, body: bytes) -> None: ...
    def needs_no_polls(self) -> bool: ...
    def slave_reported(self, now_ms: int) -> None: ...
    def on_slave_lost(self) -> None: ...


class RoleNode(Protocol):
    """A member, as the journal tells of its role."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def role(self) -> BrokerRole: ...
    @property
    def broker_id(self) -> int: ...


class ServingNode(RoleNode, Protocol):
    """The node of a member, as its clients meet it: `services.node.broker_node`."""

    clock: Clock
    core: BrokerCore
    events: EventCounts
    forwarding: RequestForwarding
    gate: RequestGate
    outboxes: Outboxes
    persist: ConfigPersist
    schedule_message: Alarm
    store: FileMessageStore
    visibility: Visibility

    def take_config(self, config: BrokerConfig) -> None: ...
    def after_batch(self) -> None: ...
    def give_up_waiting(self) -> None: ...


class ControlledNode(Protocol):
    """A member whose role is changed."""

    clock: Clock
    core: BrokerCore
    events: EventCounts
    failover: FailoverProcessor
    master_address: MasterAddress
    master_remoting_address: MasterAddress
    mastership: Mastership
    registration: NamesrvRegistration
    store: FileMessageStore

    @property
    def reader_service(self) -> ReaderControl: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def role(self) -> BrokerRole: ...
