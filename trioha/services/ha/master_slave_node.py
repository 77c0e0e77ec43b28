"""A broker of a master-slave set: what follows from its role, and from its links to the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from trioha.broker.failover import FailoverProcessor
from trioha.broker.failover_audit import AuditTrail
from trioha.config import BrokerConfig, BrokerRole
from trioha.ha.greeting import Greeting
from trioha.ha.mastership import Mastership
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.health import Check
from trioha.services.admin.introspection import NodeProcess
from trioha.services.admin.metrics_families import Families
from trioha.services.ha.announcement import announce_mastership
from trioha.services.ha.client import HaClient, SlaveState, connect_link
from trioha.services.ha.confirmation import Confirmation
from trioha.services.ha.greeting import HaGreeting
from trioha.services.ha.handshake import CLASSIC_EPOCH_MAX, Handshake
from trioha.services.ha.master import HaMaster, open_replicas
from trioha.services.ha.master_address import MasterAddress
from trioha.services.ha.metrics import replication_families
from trioha.services.ha.open_mastership import config_of_role, open_mastership
from trioha.services.ha.resync import HaResync
from trioha.services.ha.role import serve_role
from trioha.services.ha.role_control import RoleControl
from trioha.services.ha.settlement import settle_hand_overs
from trioha.services.ha.slave_synchronize import SlaveSynchronizer
from trioha.services.ha.status import master_slave_status
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.stand_still import StandStill
from trioha.services.loop.transport import Connect, connect
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.commitlog_flush import CommitlogFlush
from trioha.services.node.health import writable_check
from trioha.services.node.listeners import BrokerAddresses, BrokerListeners
from trioha.services.node.namesrv_registration import BrokerIdentity, Refutation
from trioha.store.accept_loss import forget_loss
from trioha.store.cuts import Cut
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire.codes import RequestCode

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class MasterSlaveNode(BrokerNode):
    """A master or a slave, one after the other as it is told."""

    flush: CommitlogFlush
    failover_alarm: Alarm

    def __init__(
        self,
        config: BrokerConfig,
        addresses: BrokerAddresses,
        store: FileMessageStore,
        clock: Clock,
        events: EventSink,
        started_wall_ms: int,
        mastership: Mastership,
        process: NodeProcess | None = None,
        *,
        connect_to: Connect = connect,
        connect_link: Connect = connect_link,
    ) -> None:
        """`connect_link` opens a slave's link to its master, `connect_to` all other connections."""
        counts = EventCounts(events)
        self.connect_to = connect_to
        self.connect_link = connect_link
        self.mastership = mastership
        self.replicas = open_replicas(config, counts)
        self.master_address = MasterAddress(config.ha_master_address)
        self.master_remoting_address = MasterAddress()
        self.ha_master: HaMaster | None = None
        self.ha_client: HaClient | None = None
        self.slave_synchronizer: SlaveSynchronizer | None = None
        self.audit = AuditTrail()
        super().__init__(
            config,
            addresses,
            store,
            clock,
            counts,
            self.replicas,
            BrokerIdentity.of(config, mastership),
            started_wall_ms=started_wall_ms,
            process=process,
            tables={"failovers.json": self.audit},
            connect_to=connect_to,
        )
        self.stand_still = StandStill(clock, self._on_stood_still)
        self.roles = RoleControl(self)
        self.failover = FailoverProcessor(
            config.broker_name, self.roles, counts, lambda: self.failover_alarm.check()
        )
        greeting = Greeting(config.broker_name, addresses.listen, mastership, store, self.roles)
        self.greeting = HaGreeting(greeting, config)
        self.handshake = Handshake(
            *(mastership, store, config, addresses.listen, self.master_remoting_address),
            *(counts, clock, self._on_cut, self.roles.adopted),
            on_fenced=self.on_fenced,
            connect_to=connect_to,
        )
        self.failover_alarm = Alarm(
            clock, self._next_failover_ms, self.in_batch(self._on_failover_time)
        )
        self._open_gate(
            {
                **self.failover.handlers(),
                RequestCode.HA_HELLO: self.greeting.answer,
                RequestCode.HA_RESYNC: HaResync(self).resync,
            },
            on_late=self.stand_still.check,
        )

    @property
    def broker_id(self) -> int:
        return self.roles.broker_id

    # What was put here, and what the disk and the slaves say.

    def make_flush(self) -> CommitlogFlush:
        return CommitlogFlush(self.store, self.config, self.clock, self.events, self._on_flushed)

    def log_grown(self) -> None:
        pipeline = self.core.pipeline
        if self.ha_master is not None:
            self.ha_master.on_log_grown(urgent=pipeline.has_slave_waiters)
        self.flush.grown_nowait(urgent=pipeline.has_flush_waiters)

    def changes_wait(self) -> None:
        waits = self.core.metadata_waits
        if waits.has_flush_waiters:
            self.metadata_files.grown_nowait(urgent=True)
        if waits.has_slave_waiters and self.ha_master is not None:
            self.ha_master.on_log_grown(urgent=True)

    def on_metadata_body(self, position: int, body: bytes) -> None:
        """Tell the slaves."""
        if self.ha_master is not None:
            urgent = self.core.metadata_waits.has_slave_waiters
            self.ha_master.send_metadata_nowait(position, body, urgent=urgent)

    def slave_reported(self, now_ms: int) -> None:
        """Answer what a slave's report allows, in the scheduler pass that has read it. HOT."""
        with self.outboxes.batch():
            self.core.on_acked(now_ms)
            if self.roles.awaits_slave_until_ms is not None:
                self.roles.slave_acknowledged()

    def on_slave_lost(self) -> None:
        """A link to a slave has ended or stalled: who waits in vain is told now."""
        with self.outboxes.batch():
            self.core.on_slave_lost()

    def _on_flushed(self, offset: int) -> None:
        with self.outboxes.batch():
            self.core.on_flushed(offset)

    # What a master says to this slave.

    def on_metadata(self, position: int, body: bytes) -> None:
        """A slave is told of changes, each where it belongs between the bytes of the log."""
        self.core.metadata.follow(body)
        self.failover.on_log_grown()
        self.persist.check()

    def streams_metadata(self) -> bool:
        """Does our master tell us of changes by itself at the moment?"""
        return self.ha_client is not None and self.ha_client.metadata_position >= 0

    def needs_no_polls(self) -> bool:
        """Do the master's tables come by themselves, now or as soon as there is a link?

        A set that was failed over has no classic master. Whoever would be polled before the link
        is there may have been deposed, and would take this node's offsets back.
        """
        return self.streams_metadata() or self.mastership.promised[0] > CLASSIC_EPOCH_MAX

    def on_appended(self) -> None:
        """A slave's log has grown."""
        if self.handshake.whole_at is not None:
            self.handshake.on_appended()
        self._seen_end = self.store.max_phy_offset
        self.flush.grown_nowait(urgent=False)
        self.reput.grown_nowait()
        self.failover.on_log_grown()

    def is_catching_up(self) -> bool:
        return self.ha_client is not None and self.ha_client.catching_up

    def topic_missed(self) -> None:
        if self.slave_synchronizer is not None:
            self.slave_synchronizer.hurry_nowait()

    def _on_cut(self, cut: Cut) -> None:
        """The log ends sooner: what was known of its end is not any more."""
        self._seen_end = self.store.max_phy_offset
        note = cut.note
        # A whole log that was set aside is copied anew, and says nothing of how far groups are.
        for queue in [] if note.get("whole") else note["queues"]:
            self.core.log_cut(queue["topic"], queue["queue_id"], queue["first_queue_offset"])
        if since_wall_ms := cut.note.get("first_store_timestamp"):
            self.core.schedule.deliveries_cut(since_wall_ms)
        self.persist.check()

    # Who is master.

    def on_fenced(self, reason: str) -> None:
        """Somebody holds a newer epoch: from this very pass on nothing is written here."""
        self.roles.fenced(reason)

    def on_master(self, address: str, ha_address: str) -> None:
        """A name server has told a slave where its master is."""
        if self.role is not BrokerRole.SLAVE or address == self.addresses.listen:
            return  # what it answers to what we have been
        self.master_remoting_address.set(address)
        if not self.config.ha_master_address or self.mastership.history.was_failed_over:
            self.master_address.set(ha_address)
        self.roles.master_known(address)

    def _on_stood_still(self, pause_ms: int) -> None:
        """A master may have been replaced while its process did not run: it asks the members."""
        mastership = self.mastership
        words = f"this process did not run for {pause_ms / 1000:.1f} s"
        if mastership.members and mastership.doubt(words):
            self.roles.doubted(words)

    def on_refuted(self, found: Refutation) -> None:
        """A name server has refused our claim to be master."""
        holder = f"{found.address}, says name server {found.namesrv},"
        if self.mastership.hear(found.epoch, found.nonce, holder, decided=True):
            self.on_fenced(self.mastership.fenced_by)
            if found.ha_address:
                self.on_master(found.address, found.ha_address)

    def _next_failover_ms(self) -> int | None:
        deadlines = (self.failover.next_deadline_ms, self.roles.next_alarm_ms())
        return min((one for one in deadlines if one is not None), default=None)

    def _on_failover_time(self, instant: Instant) -> None:
        self.failover.on_time(instant)
        self.roles.on_alarm(instant)

    # Its tasks, and its end.

    def start_storing(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.metadata_files.flush_wal, name="metadata_flush")

    async def start_replication(self, nursery: trio.Nursery, listeners: BrokerListeners) -> None:
        assert listeners.ha is not None, "a master-slave node listens for slaves"
        nursery.start_soon(self.failover_alarm.run, name="failover")
        nursery.start_soon(self.stand_still.run, name="stand_still")
        nursery.start_soon(
            settle_hand_overs, self.roles, self.clock, self.connect_to, name="failover.settle"
        )
        await nursery.start(serve_role, self, self.roles, listeners.ha, name="role")

    async def settle(self, nursery: trio.Nursery) -> None:
        roles, handshake, registration = self.roles, self.handshake, self.registration
        nursery.start_soon(announce_mastership, roles, handshake, registration, name="announcement")
        confirmation = Confirmation(self.config, roles, handshake, registration, self.flush)
        await nursery.start(confirmation.run, name="confirmation")

    async def stop(self) -> None:
        self.stopping = True
        self.roles.refuse_parked("the broker is shutting down")
        if not self.mastership.may_have_lost:
            forget_loss(self.store.config.root)
        await super().stop()

    async def wait_level(self) -> None:
        """Wait until who waits for disk or slave is answered and slaves in sync hold all."""
        if self.ha_master is not None:
            self.core.metadata.flush()
            await self.ha_master.wait_transferred(self.core.metadata.position)
        await super().wait_level()

    # What is told of it.

    def replication_status(self, instant: Instant) -> dict[str, object]:
        return master_slave_status(self, instant)

    def replication_checks(self) -> Iterator[Check]:
        if self.role is not BrokerRole.SLAVE:
            yield writable_check(self.store)
        elif self.ha_client is not None:
            link = self.ha_client.statistics()
            following = link.state == SlaveState.TRANSFER.value
            yield "following", "" if following else f"{link.state} {link.last_error}".strip()

    def replication_families(self, families: Families) -> Iterator[Metric]:
        return replication_families(self, families)


async def open_master_slave_node(
    config: BrokerConfig,
    addresses: BrokerAddresses,
    clock: Clock,
    events: EventSink,
    process: NodeProcess | None = None,
    *,
    connect_to: Connect = connect,
    connect_link: Connect = connect_link,
) -> MasterSlaveNode:
    """Open the store, recovering it if need be, and read the tables.

    Errors: StoreError with file and cure.
    """
    wall_ms = clock.wall_ms()
    store = await trio.to_thread.run_sync(
        lambda: FileMessageStore.open(StoreConfig.of(config), events, wall_ms=wall_ms)
    )
    try:
        assert store.recovery is not None, "an open store has been recovered"
        mastership = open_mastership(
            *(config, store.max_phy_offset, events, wall_ms),
            clean=store.recovery.clean,
            is_whole=store.recovery.is_whole,
        )
        config = config_of_role(config, mastership)
        node = MasterSlaveNode(
            *(config, addresses, store, clock, events, wall_ms, mastership, process),
            connect_to=connect_to,
            connect_link=connect_link,
        )
        node.metadata_files.load()
        node.core.schedule.refresh()
        await node.persist.save_all()
    except BaseException:
        store.close()
        raise
    if not mastership.unconfirmed:  # else it is said once it is known
        node.roles.say_role(events)
    return node
