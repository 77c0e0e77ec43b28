"""Replication in a DLEDGER group: the group keeps the log and elects the master.

::

    replication
    ├─ raft                  the member: its alarm, its links, its bootstrap
    ├─ raft.role             promotes this node whenever it is elected
    └─ raft.parked           requests that wait for a leader, at most three seconds

Theory of operation. The leader's bytes go to the followers in the pass that appended them, and to
the disk at once. Bytes that a majority has on disk are *committed*. The pass that reads the
deciding answer also answers puts, wakes parked pulls and changes the followers' tables. The member
(`StateMachine`) and the batches of `BrokerNode` make all calls here; `services.raft.role`
decides what a role means for clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioha.broker.raft.log import RaftLog
from trioha.broker.raft.metadata import RaftMetadata, RaftReplicas
from trioha.config import BrokerConfig, BrokerRole
from trioha.config.dledger import broker_id_of
from trioha.dledger.ready import SoftState
from trioha.errors import CommitLogCorrupted
from trioha.ha.epochs import NONCE_BYTES
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Instant
from trioha.services.admin.health import Check
from trioha.services.admin.metrics_families import Families
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.host import random_source
from trioha.services.loop.ringing import ring
from trioha.services.loop.transport import Connect
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.health import writable_check
from trioha.services.node.listeners import BrokerListeners
from trioha.services.node.log_flush import LogFlush
from trioha.services.node.namesrv_registration import BrokerIdentity, Refutation
from trioha.services.raft.bootstrap import VoteFile
from trioha.services.raft.interfaces import MemberContext, MemberSetup
from trioha.services.raft.member import RaftMember
from trioha.services.raft.member_tasks import hand_over, run_member
from trioha.services.raft.metrics import raft_families
from trioha.services.raft.reads import CurrentReads
from trioha.services.raft.role import GroupRole
from trioha.services.raft.role_tasks import run_role, wait_answered, wait_led
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class GroupReplication:
    """The part of a node that is a member of a group."""

    member: RaftMember
    group_role: GroupRole

    def __init__(
        self,
        node: BrokerNode,
        ledger: RaftLog,
        replicas: RaftReplicas,
        setup: MemberSetup,
        votes: VoteFile,
        connect_to: Connect,
    ) -> None:
        """Read the table files beside the log; they count only while the log has no snapshot.

        `connect_to` opens connections to the other members.
        Errors: StoreError, with the cure, if a file cannot be read.
        """
        config, store, clock = node.config, node.store, node.clock
        self.node = node
        self.ledger = ledger
        self.replicas = replicas
        self.store = store
        self.clock = clock
        self.core = node.core
        self.forwarding = node.forwarding
        self.outboxes = node.outboxes
        self.schedule_message = node.schedule_message
        self._home_id = broker_id_of(config.d_leger_self_id)
        self.flush = LogFlush(
            store,
            clock,
            node.events,
            delay_ms=config.flush_interval_commit_log,
            queue_interval_ms=config.flush_interval_consume_queue,
            on_flushed=lambda end, cut_count: self.member.flushed(end, cut_count),
            on_failed=lambda error: self.member.flush_failed(error),
            cut_count=lambda: self.member.cut_count,
        )
        context = MemberContext(node.outboxes, clock, node.events, connect_to, node.access.sign)
        self.member = RaftMember(setup, ledger, votes, self, self.flush, context, random_source())
        node.metadata_files.load()
        self.raft_metadata = RaftMetadata(
            config,
            self.core.metadata,
            replicas,
            store,
            wall_ms=clock.wall_ms,
            on_failed=self.member.resign,
            may_append=lambda: self.member.may_append,
        )
        self.reads = CurrentReads(
            self.core.handlers,
            self.member.read,
            self.raft_metadata.uncommitted_end,
            lambda channel, request: self.group_role.not_read(channel, request),
            node.events,
            node.traffic,
        )
        handlers = dict(self.member.handlers())
        code = int(RequestCode.TRIOHA_RAFT_ADMIN)
        operators = {code: handlers.pop(code)}
        # The other members' messages are proven by the greeting of their connection.
        self.gate = node.open_gate({**handlers, **node.guarded(operators)}, confirm=self._confirm)
        self.group_role = GroupRole(self)
        # Called after each pass: no call between. HOT.
        self.on_settled = self.group_role.look
        self.core.must_confirm(True)
        self.parked_alarm = Alarm(
            clock, lambda: self.group_role.next_deadline_ms, self.group_role.on_time
        )

    @property
    def broker_id(self) -> int:
        return 0 if self.group_role.serving else self._home_id

    @property
    def stopping(self) -> bool:
        return self.node.stopping

    def after_batch(self) -> None:
        self.node.after_batch()

    # Puts and changes of this broker.

    def write_metadata(self, position: int, body: bytes) -> None:
        """Do nothing: each change is a record of the log, so no second log keeps it."""

    def delete_queues(self, topic: str) -> None:
        self.raft_metadata.delete_queues(topic)

    def log_grown(self) -> None:
        self.raft_metadata.on_log_grown()
        self.node.seen_to(self.store.max_phy_offset)
        self.member.log_grown()

    def changes_wait(self) -> None:
        """Nothing to do: changes are records of the log, and puts wait for those already."""

    def on_metadata_body(self, position: int, body: bytes) -> None:
        """Append a body of changes and push it at once: this may be between two batches."""
        self.raft_metadata.append(position, body)
        self.member.log_grown()

    def _confirm(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        self.reads.handle(channel, request, instant)

    # Calls of the member: `services.raft.interfaces.StateMachine`.

    def on_soft_state(self, soft: SoftState) -> None:
        """Follow a change of role, term or leader."""
        self.group_role.on_soft_state(soft)

    def on_commit(self, committed_offset: int) -> None:
        """Release everything below `committed_offset`: a majority has it on disk. HOT."""
        self.node.visibility.set_limit(committed_offset)
        self.raft_metadata.on_commit(committed_offset)
        self.core.on_acked(self.clock.now_ms())
        self.reads.on_commit(committed_offset)
        self.node.records_readable()

    def on_log_written(self, end_offset: int) -> None:
        """Dispatch the bytes by which a follower's log has grown."""
        self.node.seen_to(end_offset)
        self.node.reput.grown_nowait()

    def on_log_cut(self, end_offset: int) -> None:
        """Follow a cut of a follower's log, or its emptying."""
        self.node.seen_to(end_offset)
        self.node.visibility.cut(end_offset)
        if self.store.min_phy_offset == end_offset:
            self.raft_metadata.reset()
        else:
            self.raft_metadata.truncated(end_offset)

    def confirm_master(self, then: Callable[[bool], None]) -> None:
        self.reads.confirm(then)

    # Other calls of `BrokerNode`; several need nothing in a group.

    def on_dispatched(self) -> None:
        self.raft_metadata.on_dispatched()

    def channel_closed(self, channel: Channel) -> None:
        self.member.channel_closed(channel)

    def is_catching_up(self) -> bool:
        """False: a follower keeps its queues up to date, since it may lead at any moment."""
        return False

    def on_damaged(self, error: CommitLogCorrupted) -> None:
        """End the node: nobody sends the bytes again by themselves."""
        raise error

    def topic_missed(self) -> None:
        """Nothing to do: the topic's record comes, before its first message."""

    def on_master(self, address: str, ha_address: str) -> None:
        """Nothing to do: the group tells its leader, sooner than a name server."""

    def on_refuted(self, found: Refutation) -> None:
        """Nothing to do: the group tells of a newer leader, and until then nothing commits here."""

    def become(self, role: BrokerRole) -> None:
        """Take this role towards clients and name servers."""
        node = self.node
        node.config = attrs.evolve(node.config, broker_role=role)
        self.core.become(role, self.broker_id)
        say_role(node, node.events)
        node.registration.register_as(identity_of(node.config, self.broker_id, self.member.term))

    # Tasks and shutdown.

    def check_disk(self, wall_ms: int) -> None:
        """Delete only what is committed and not needed to make the tables again."""
        floor = self.raft_metadata.retention_floor()
        self.ledger.check_disk(wall_ms, floor, self.member.log_trimmed)

    def start_storing(self, nursery: trio.Nursery) -> None:
        """Start nothing: a member has no log of changes beside the commitlog."""

    async def start(self, nursery: trio.Nursery, listeners: BrokerListeners) -> None:
        nursery.start_soon(run_role, self.group_role, name="raft.role")
        nursery.start_soon(ring, self.parked_alarm, name="raft.parked")
        await nursery.start(run_member, self.member, name="raft")

    async def settle(self, nursery: trio.Nursery) -> None:
        """Do not wait: an election needs members that may start after this one."""

    async def leave(self) -> None:
        """Hand the leadership over, if a follower is fit for it."""
        with trio.move_on_after(self.node.config.d_leger_election_timeout_max / 1000):
            await hand_over(self.member)
            await wait_led(self.group_role)
        self.group_role.refuse_parked("the broker is shutting down")

    async def wait_level(self) -> None:
        """Wait until all waiting requests are answered, here or by the new leader."""
        await self.flush.flush_all()
        await self.forwarding.wait_idle()
        await wait_answered(self.group_role)

    # Status and metrics.

    def status(self, instant: Instant) -> dict[str, object]:
        return {
            "connections": [],
            "refusals": [],
            "absent": [],
            "slave": None,
            "standing": "MASTER" if self.group_role.serving else "SLAVE",
            "epoch": self.member.term,
            "log_epoch": self.member.term,
            "home_id": self._home_id,
            "epochs": [],
            "follows": self.forwarding.master,
            "ticket": None,
            "fenced_by": "",
            "members": {},
            "sync": True,
            "raft": {**self.member.status(), "metadata": self.raft_metadata.status()},
        }

    def checks(self) -> Iterator[Check]:
        status: Mapping[str, Any] = self.member.status()
        yield "member", status["bootstrap"] or status["failed"]
        if self.group_role.serving:
            yield writable_check(self.store)
        else:
            yield "following", "" if self.member.leader_id else "its group has no leader"

    def families(self, families: Families) -> Iterator[Metric]:
        return raft_families(
            families,
            self.member.status(),
            self.core.pipeline,
            self.node.events,
            serving=self.group_role.serving,
        )


def say_role(node: BrokerNode, events: EventSink) -> None:
    """Write the role to the journal."""
    config = node.config
    events.event(
        "role",
        role=node.role.value,
        broker_id=node.broker_id,
        heartbeat_interval_ms=config.d_leger_heartbeat_interval,
        heartbeat_limit_ms=config.d_leger_election_timeout_min,
    )


def identity_of(config: BrokerConfig, broker_id: int, term: int) -> BrokerIdentity:
    """Return the identity for name servers; a leader's claim has its term as epoch."""
    identity = BrokerIdentity.of(attrs.evolve(config, broker_id=broker_id))
    if broker_id:
        return identity
    # At most one member leads a term, so a nonce made from its name is unique.
    nonce = sha256(f"{identity.broker_name} {config.d_leger_self_id}".encode()).digest()
    return attrs.evolve(identity, epoch=term, epoch_nonce=nonce[:NONCE_BYTES].hex())
