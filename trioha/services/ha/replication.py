"""Replication in a master-slave set: the role of a node, and its links to the other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import trio

from trioha.broker.failover import FailoverProcessor
from trioha.broker.failover_audit import AuditTrail
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommitLogCorrupted
from trioha.ha.greeting import Greeting
from trioha.ha.mastership import Mastership
from trioha.ha.replicas import Replicas
from trioha.ha.role_states import State
from trioha.remoting.channel import Channel, Instant
from trioha.services.admin.health import Check
from trioha.services.admin.metrics_families import Families
from trioha.services.ha.announcement import announce_mastership
from trioha.services.ha.client import HaClient, SlaveState
from trioha.services.ha.client_service import ClientService
from trioha.services.ha.confirmation import Confirmation
from trioha.services.ha.failover_facts import FailoverFacts
from trioha.services.ha.greeting import HaGreeting
from trioha.services.ha.handshake import CLASSIC_EPOCH_MAX, Handshake
from trioha.services.ha.master import HaMaster
from trioha.services.ha.master_address import MasterAddress
from trioha.services.ha.metrics import replication_families
from trioha.services.ha.reader_service import ReaderService
from trioha.services.ha.resync import HaResync
from trioha.services.ha.role import serve_role
from trioha.services.ha.role_control import RoleControl
from trioha.services.ha.role_journal import tell_role
from trioha.services.ha.role_links import RoleLinks
from trioha.services.ha.settlement import settle_hand_overs
from trioha.services.ha.status import master_slave_status
from trioha.services.ha.term_preparation import TermPreparation
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.ringing import ring
from trioha.services.loop.stand_still import StandStill
from trioha.services.loop.transport import Connect
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.health import writable_check
from trioha.services.node.listeners import BrokerListeners
from trioha.services.node.log_flush import LogFlush
from trioha.services.node.namesrv_registration import Refutation
from trioha.store.accept_loss import forget_loss
from trioha.store.cuts import Cut
from trioha.wire.codes import RequestCode

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class SetReplication:
    """The part of a node in a master-slave set; its role changes while it runs."""

    failover_alarm: Alarm

    def __init__(
        self,
        node: BrokerNode,
        mastership: Mastership,
        replicas: Replicas,
        audit: AuditTrail,
        *,
        connect_to: Connect,
        connect_link: Connect,
    ) -> None:
        """`connect_to` opens connections to other nodes, `connect_link` to a slave's master."""
        config, store, clock = node.config, node.store, node.clock
        self.node = node
        self.store = store
        self.clock = clock
        self.core = node.core
        self.events = node.events
        address = node.addresses.listen
        self.access = node.access
        self.outboxes = node.outboxes
        self.registration = node.registration
        self.mastership = mastership
        self.replicas = replicas
        self.audit = audit
        self.connect_to = connect_to
        self.connect_link = connect_link
        self.master_address = MasterAddress(config.ha_master_address)
        self.master_remoting_address = MasterAddress()
        self.links = RoleLinks()
        self.flush = LogFlush(
            store,
            clock,
            node.events,
            delay_ms=config.flush_interval_commit_log,
            queue_interval_ms=config.flush_interval_consume_queue,
            on_flushed=self._on_flushed,
        )
        self.stand_still = StandStill(clock, self._on_stood_still)
        self.reader_service = ReaderService(node, mastership, replicas, self._on_deadline)
        self.client_service = ClientService(
            node, mastership, replicas, self.reader_service, self._on_deadline
        )
        preparation = TermPreparation(store, self.flush, self.outboxes, node.on_dispatched)
        self.roles = RoleControl(self, address, self.links, self.client_service, preparation)
        self.failover = FailoverProcessor(
            config.broker_name,
            self.roles,
            FailoverFacts(self),
            self.audit,
            self.events,
            on_deadline=self._on_deadline,
            caller=self.access.caller,
        )
        greeting = Greeting(
            config.broker_name,
            address,
            mastership,
            store,
            self.roles,
            ticket_holder=self.failover.desk.holder,
        )
        self.greeting = HaGreeting(greeting, config, node.refusals)
        self.handshake = Handshake(
            mastership,
            store,
            config,
            address,
            self.master_remoting_address,
            self.events,
            clock,
            on_cut=self._on_cut,
            on_adopted=self.roles.adopted,
            on_fenced=self.on_fenced,
            connect_to=connect_to,
            sign=self.access.sign,
        )
        self.failover_alarm = Alarm(
            clock, self._next_failover_ms, node.in_batch(self._on_failover_time)
        )
        self.gate = node.open_gate(
            node.guarded(
                {
                    **self.failover.handlers(),
                    RequestCode.HA_HELLO: self.greeting.answer,
                    RequestCode.HA_RESYNC: HaResync(self).resync,
                },
                # A hello has a challenge of its own, under haSecret.
                besides={RequestCode.HA_HELLO},
            ),
            confirm=self.reader_service.confirm,
            on_late=self.stand_still.check,
        )
        self.reader_service.limit()

    @property
    def ha_master(self) -> HaMaster | None:
        """The links to slaves; None unless this node is master."""
        return self.links.master

    @property
    def ha_client(self) -> HaClient | None:
        """The link to the master; None unless this node is a slave."""
        return self.links.client

    @property
    def broker_id(self) -> int:
        return self.roles.broker_id

    @property
    def config(self) -> BrokerConfig:
        return self.node.config

    @property
    def role(self) -> BrokerRole:
        return self.node.role

    def _on_deadline(self) -> None:
        self.failover_alarm.check()

    # Puts of this node, and what disk and slaves confirm of them.

    def log_grown(self) -> None:
        pipeline, master = self.core.pipeline, self.links.master
        if master is not None:
            master.on_log_grown(urgent=pipeline.has_slave_waiters)
        self.flush.grown_nowait(urgent=pipeline.has_flush_waiters)

    def changes_wait(self) -> None:
        waits = self.core.metadata_waits
        if waits.has_flush_waiters:
            self.node.metadata_files.grown_nowait(urgent=True)
        master = self.links.master
        if waits.has_slave_waiters and master is not None:
            master.on_log_grown(urgent=True)

    def write_metadata(self, position: int, body: bytes) -> None:
        self.node.metadata_files.keep(position, body)

    def delete_queues(self, topic: str) -> None:
        self.store.delete_topic(topic)

    def on_metadata_body(self, position: int, body: bytes) -> None:
        """Tell the slaves."""
        master = self.links.master
        if master is not None:
            waits, readers = self.core.metadata_waits, self.reader_service
            urgent = waits.has_slave_waiters or readers.has_questions
            master.send_metadata_nowait(position, body, urgent=urgent)

    def slave_reported(self, now_ms: int) -> None:
        """Answer the sends that a slave's report confirms, in the pass that read it. HOT."""
        with self.outboxes.batch():
            self.core.on_acked(now_ms)
            self.reader_service.show_acknowledged()
            if self.roles.state is State.AWAITS_SLAVE and self.replicas.slave_available(
                self.store.max_phy_offset
            ):
                self.roles.slave_in_sync()

    def on_slave_lost(self) -> None:
        """Answer the sends that no slave can confirm any more: a link has ended or stalled."""
        with self.outboxes.batch():
            self.core.on_slave_lost()

    def _on_flushed(self, offset: int, cut_count: int) -> None:
        with self.outboxes.batch():
            self.core.on_flushed(offset, self.clock.now_ms())

    # Bytes and changes that a master sends to this slave.

    def on_metadata(self, position: int, body: bytes) -> None:
        """Apply changes that the master sent, each between the bytes of log where it belongs."""
        self.core.metadata.follow(body)
        self.failover.on_log_grown()
        self.node.persist.changed.check()

    def streams_metadata(self) -> bool:
        """Return whether the master sends changes by itself at the moment."""
        return self.ha_client is not None and self.ha_client.metadata_position >= 0

    def needs_no_polls(self) -> bool:
        """Return whether the master sends its tables by itself, now or once there is a link.

        A set that was failed over has no classic master. A node polled before the link is there may
        have been replaced, and its old offsets would take this node's offsets back.
        """
        return self.streams_metadata() or self.mastership.promised[0] > CLASSIC_EPOCH_MAX

    def on_appended(self) -> None:
        """Flush and dispatch the bytes by which a slave's log has grown."""
        if self.handshake.whole_at is not None:
            self.handshake.on_appended()
        self.node.seen_to(self.store.max_phy_offset)
        self.flush.grown_nowait(urgent=False)
        self.node.reput.grown_nowait()
        self.failover.on_log_grown()

    def on_damaged(self, error: CommitLogCorrupted) -> None:
        """Cut off what a master has sent where it is no record, and ask for it again.

        A master that knows the secret may send anything, and must not end its slaves. All that is
        cut off lies in the master's log: ours agreed with that before it grew.
        Errors: `error` on a node that follows nobody; StoreError when the log cannot be cut.
        """
        if self.ha_client is None:
            raise error
        begin, end = self.store.dispatched_offset, self.store.max_phy_offset
        reason = (
            f"the master's bytes from offset {begin} on are no record; they were cut off and are "
            "asked for again. Look at the master's log with `trioha log verify`"
        )
        self.ha_client.refuse_nowait(reason)
        self.store.truncate_log(begin, reason)
        self.node.seen_to(begin)
        epoch = self.mastership.history.epoch
        self.events.event("log_cut", from_offset=begin, to_offset=end, epoch=epoch, kept="")

    def is_catching_up(self) -> bool:
        return self.ha_client is not None and self.ha_client.catching_up

    def on_dispatched(self) -> None:
        """Do nothing: `reader_service` shows readers what this node stores."""

    def confirm_master(self, then: Callable[[bool], None]) -> None:
        self.reader_service.confirm_master(then)

    def check_disk(self, wall_ms: int) -> None:
        self.store.check_disk(wall_ms)

    def channel_closed(self, channel: Channel) -> None:
        """Do nothing: links to slaves have connections of their own."""

    def topic_missed(self) -> None:
        if self.links.synchronizer is not None:
            self.links.synchronizer.hurry_nowait()

    def _on_cut(self, cut: Cut) -> None:
        """Forget what this node knew of the log behind a cut."""
        self.node.seen_to(self.store.max_phy_offset)
        self.reader_service.on_cut()
        note = cut.note
        # A log that was set aside whole is copied anew: its cut sets no group back.
        for queue in [] if note.get("whole") else note["queues"]:
            self.core.log_cut(queue["topic"], queue["queue_id"], queue["first_queue_offset"])
        if since_wall_ms := cut.note.get("first_store_timestamp"):
            self.core.schedule.deliveries_cut(since_wall_ms)
        self.node.persist.changed.check()

    # News of the master.

    def on_fenced(self, reason: str) -> None:
        """Write nothing from this pass on: another node holds a newer epoch."""
        self.roles.fenced(reason)

    def on_master(self, address: str, ha_address: str) -> None:
        """Follow the master that a name server names, if this node is a slave."""
        if self.role is not BrokerRole.SLAVE or address == self.node.addresses.listen:
            return  # the answer to a registration of an earlier role
        self.master_remoting_address.set(address)
        if not self.config.ha_master_address or self.mastership.history.was_failed_over:
            self.master_address.set(ha_address)
        self.roles.master_known(address)

    def _on_stood_still(self, pause_ms: int) -> None:
        """Ask the members: a master may have been replaced while its process did not run."""
        mastership = self.mastership
        words = f"this process did not run for {pause_ms / 1000:.1f} s"
        if mastership.members and mastership.doubt(words):
            self.roles.doubted(words)

    def on_refuted(self, found: Refutation) -> None:
        """Step down if a name server rejected the claim because of a newer epoch."""
        holder = f"{found.address}, says name server {found.namesrv},"
        if self.mastership.hear(found.epoch, found.nonce, holder, decided=True):
            self.on_fenced(self.mastership.fenced_by)
            if found.ha_address:
                self.on_master(found.address, found.ha_address)

    def _next_failover_ms(self) -> int | None:
        parts = (self.failover, self.roles, self.client_service, self.reader_service)
        deadlines = (part.next_deadline_ms for part in parts)
        return min((one for one in deadlines if one is not None), default=None)

    def _on_failover_time(self, instant: Instant) -> None:
        self.failover.on_time(instant)
        if not self.node.stopping:
            self.roles.on_time(instant.now_ms)
            self.client_service.on_time(instant)
        self.reader_service.on_time(instant)

    # Its tasks, and its end.

    def start_storing(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.node.metadata_files.flush_wal, name="metadata_flush")

    async def start(self, nursery: trio.Nursery, listeners: BrokerListeners) -> None:
        assert listeners.ha is not None, "a master-slave node listens for slaves"
        nursery.start_soon(ring, self.failover_alarm, name="failover")
        nursery.start_soon(self.stand_still.run, name="stand_still")
        nursery.start_soon(
            settle_hand_overs,
            self.roles,
            self.clock,
            self.connect_to,
            self.access.sign,
            self.node.keyring,
            name="failover.settle",
        )
        await nursery.start(serve_role, self, self.links, self.roles, listeners.ha, name="role")

    async def settle(self, nursery: trio.Nursery) -> None:
        roles, handshake, registration = self.roles, self.handshake, self.registration
        nursery.start_soon(announce_mastership, roles, handshake, registration, name="announcement")
        confirmation = Confirmation(
            self.config,
            roles,
            handshake,
            registration,
            self.flush,
            tell_role=partial(tell_role, self, self.events),
        )
        await nursery.start(confirmation.run, name="confirmation")

    async def leave(self) -> None:
        self.roles.refuse_parked("the broker is shutting down")
        if not self.mastership.may_have_lost:
            forget_loss(self.store.config.root)

    async def wait_level(self) -> None:
        """Wait until all waiting sends are answered and the slaves in sync hold all."""
        if self.ha_master is not None:
            self.core.metadata.flush()
            await self.ha_master.wait_transferred(self.core.metadata.position)
        await self.flush.flush_all()

    # Status, health and metrics.

    def status(self, instant: Instant) -> dict[str, object]:
        return master_slave_status(self, instant)

    def checks(self) -> Iterator[Check]:
        if self.role is not BrokerRole.SLAVE:
            yield writable_check(self.store)
        elif self.ha_client is not None:
            link = self.ha_client.statistics()
            following = link.state == SlaveState.TRANSFER.value
            yield "following", "" if following else f"{link.state} {link.last_error}".strip()

    def families(self, families: Families) -> Iterator[Metric]:
        return replication_families(self, families)
