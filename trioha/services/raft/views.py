"""Protocols: the parts of a member, and of its broker, that other modules here use."""

from __future__ import annotations

from typing import Protocol

from trioha.broker.core import BrokerCore
from trioha.broker.raft.metadata import RaftMetadata
from trioha.broker.request_gate import RequestGate
from trioha.config import BrokerRole
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import Role
from trioha.remoting.outboxes import Outboxes
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.node.request_forwarding import RequestForwarding
from trioha.services.raft.bootstrap import Bootstrap
from trioha.services.raft.interfaces import MemberSetup
from trioha.services.raft.peers import Peers
from trioha.services.raft.reads import CurrentReads
from trioha.store.message_store import FileMessageStore


class ToldMember(Protocol):
    """A member, as its status shows it."""

    setup: MemberSetup
    member_id: str
    node: RaftNode | None
    peers: Peers
    bootstrap: Bootstrap

    @property
    def role(self) -> Role: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def elections(self) -> int: ...
    @property
    def uncommitted_age_ms(self) -> int: ...
    def addresses(self) -> dict[str, str]: ...


class LedMember(Protocol):
    """A member, as its broker's role sees it."""

    @property
    def term(self) -> int: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def may_append(self) -> bool: ...
    def addresses(self) -> dict[str, str]: ...
    def resign(self, reason: str) -> None: ...


class GroupBroker(Protocol):
    """A broker that its role promotes and demotes."""

    core: BrokerCore
    store: FileMessageStore
    clock: Clock
    gate: RequestGate
    forwarding: RequestForwarding
    outboxes: Outboxes
    reads: CurrentReads
    raft_metadata: RaftMetadata
    parked_alarm: Alarm
    schedule_message: Alarm

    @property
    def stopping(self) -> bool: ...
    @property
    def member(self) -> LedMember: ...
    def become(self, role: BrokerRole) -> None: ...
    def after_batch(self) -> None: ...
