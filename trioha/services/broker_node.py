"""What the tasks of one broker share, and what happens between them.

The hooks here are plain calls within one scheduler pass. `after_batch` runs when the requests of
one read were handled: first the log goes to the slaves if a put waits for one, then parked pulls
are answered, then the answers leave (the `Outboxes` block around it), and the tasks that only
matter later are marked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import trio

from trioha.broker.core import BrokerCore
from trioha.broker.failover import FailoverProcessor
from trioha.config import BrokerConfig, BrokerRole
from trioha.ha.mastership import Mastership
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Instant
from trioha.services.alarm import Alarm
from trioha.services.broker_listeners import BrokerAddresses
from trioha.services.broker_status import broker_status
from trioha.services.clock import Clock
from trioha.services.commitlog_flush import CommitlogFlush
from trioha.services.disk_watch import watch_disk
from trioha.services.event_counts import EventCounts
from trioha.services.ha_client import HaClient
from trioha.services.ha_greeting import HaGreeting
from trioha.services.ha_handshake import Handshake
from trioha.services.ha_master import HaMaster, open_replicas
from trioha.services.ha_resync import HaResync
from trioha.services.health import alive, broker_checks, ready
from trioha.services.http_admin import OnGet
from trioha.services.introspection import Introspection, NodeProcess
from trioha.services.journal_samples import JournalSamples
from trioha.services.master_address import MasterAddress
from trioha.services.metadata_files import MetadataFiles
from trioha.services.metrics import broker_metrics
from trioha.services.namesrv_registration import (
    BrokerIdentity,
    NamesrvRegistration,
    Refutation,
)
from trioha.services.old_routes import OldRoutes
from trioha.services.open_mastership import config_of_role, open_mastership
from trioha.services.remoting_link import LinkLimits
from trioha.services.remoting_server import RemotingServer
from trioha.services.reput import Reput
from trioha.services.role_control import RoleControl
from trioha.services.slave_synchronize import SlaveSynchronizer
from trioha.store.cuts import Cut
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire.codes import RequestCode


class BrokerNode:
    """One broker, between its store and its tasks."""

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
    ) -> None:
        self.mastership = mastership
        self.config = config
        self.addresses = addresses
        self.store = store
        self.clock = clock
        events = self.events = self.event_counts = EventCounts(events)
        self.role = config.broker_role
        self.started_wall_ms = started_wall_ms
        self.stopping = False
        """Asked to end: not for new clients any more."""
        self.pages: dict[str, OnGet] = {
            "/metrics": broker_metrics(self),
            "/livez": alive,
            "/readyz": ready(partial(broker_checks, self)),
        }
        self.replicas = open_replicas(config, events)
        self.master_address = MasterAddress(config.ha_master_address)
        self.master_remoting_address = MasterAddress()
        self.ha_master: HaMaster | None = None
        self.ha_client: HaClient | None = None
        self.slave_synchronizer: SlaveSynchronizer | None = None
        self.core = BrokerCore(
            config, store, self.replicas, events, Random(), clock.instant(), self.status
        )
        core = self.core
        self.introspection = Introspection(process or NodeProcess(), lambda: core.config, clock)
        core.handlers.update(self.introspection.handlers())
        store.on_dispatch = core.on_dispatch
        self.server = RemotingServer(
            core.handlers,
            clock,
            events,
            limits=LinkLimits(
                idle_s=config.server_channel_max_idle_time_seconds,
                frame_s=config.frame_timeout / 1000,
                outbox_bytes_max=config.outbox_bytes_max,
            ),
            connections_max=config.connections_max,
            on_closed=self._channel_closed,
            on_batch=self.after_batch,
        )
        # What was changed is on its way to disk and slaves before an answer says so.
        self.server.outboxes.before_answers = core.metadata.flush
        core.metadata.on_body = self.tell_slaves
        self.samples = JournalSamples(core, store, clock, events)
        self.flush = CommitlogFlush(store, config, clock, events, self._on_flushed)
        self.reput = Reput(store, events, self.on_dispatched, self._is_catching_up)
        self.group_transfer = Alarm(
            clock,
            core.next_wait_deadline_ms,
            self._in_batch(core.expire_waits),
        )
        self.pull_hold = Alarm(
            clock, lambda: core.hold.next_deadline_ms, self._in_batch(core.expire_pulls)
        )
        self.client_expiry = Alarm(
            clock, core.next_client_deadline_ms, self._in_batch(core.expire_clients)
        )
        self.schedule_message = Alarm(
            clock, self._next_delivery_ms, self._in_batch(core.deliver_delayed)
        )
        self.registration = NamesrvRegistration(
            config,
            BrokerIdentity.of(config, mastership),
            lambda: (core.topics.data_version, core.topics.topics),
            clock,
            events,
            on_master=self._on_master,
            on_refuted=self._on_refuted,
        )
        core.topics.on_change = self.registration.topics_changed
        self.old_routes = OldRoutes(clock, events)
        self.roles = RoleControl(self)
        self.metadata_files = MetadataFiles(
            config, core, events, self._on_metadata_synced, {"failovers.json": self.roles.audit}
        )
        self.persist = self.metadata_files.persist
        self.failover = FailoverProcessor(
            config.broker_name, self.roles, events, lambda: self.failover_alarm.check()
        )
        core.handlers.update(self.failover.handlers())
        self.greeting = HaGreeting(
            *(mastership, store, config, addresses.listen, self.on_fenced),
            lambda: self.master_remoting_address.value,
        )
        core.handlers[RequestCode.HA_HELLO] = self.greeting.answer
        core.handlers[RequestCode.HA_RESYNC] = HaResync(self).resync
        self.handshake = Handshake(
            *(mastership, store, config, addresses.listen, self.master_remoting_address),
            *(events, clock, self._on_cut, self.roles.history_adopted),
        )
        self.failover_alarm = Alarm(
            clock, self._next_failover_ms, self._in_batch(self._on_failover_time)
        )
        self._seen_end = store.max_phy_offset
        # After an unclean stop the index is behind the log.
        self.reput.grown_nowait()

    def after_batch(self) -> None:
        """The requests of one read were handled. HOT."""
        core = self.core
        end = self.store.max_phy_offset
        if end != self._seen_end:
            self._seen_end = end
            if self.ha_master is not None:
                self.ha_master.on_log_grown(urgent=core.pipeline.has_slave_waiters)
            self.flush.grown_nowait(urgent=core.pipeline.has_flush_waiters)
            self.reput.grown_nowait()
            self.group_transfer.check()
            if core.schedule_changed:
                core.schedule_changed = False
                self.schedule_message.check()
        if core.hold.has_due:
            core.after_batch(self.clock.instant())
        if core.metadata_waits.waiter_count:
            if core.metadata_waits.has_flush_waiters:
                self.metadata_files.grown_nowait(urgent=True)
            if core.metadata_waits.has_slave_waiters and self.ha_master is not None:
                self.ha_master.on_log_grown(urgent=True)
            self.group_transfer.check()
        self.pull_hold.check()
        self.client_expiry.check()
        self.persist.check()

    def _channel_closed(self, channel: Channel) -> None:
        self.core.channel_closed(channel)
        self.old_routes.channel_closed(channel)

    def on_acked(self, offset: int) -> None:
        """A slave has acknowledged; called in the scheduler pass that read it. HOT."""
        with self.server.outboxes.batch():
            self.samples.on_acked(offset)
            if self.roles.awaits_slave_until_ms is not None:
                self.roles.slave_acknowledged()

    def tell_slaves(self, position: int, body: bytes) -> None:
        """Metadata has changed; called in the pass that changed it. HOT."""
        if self.ha_master is not None:
            urgent = self.core.metadata_waits.has_slave_waiters
            self.ha_master.send_metadata_nowait(position, body, urgent=urgent)

    def on_slave_lost(self) -> None:
        """A link to a slave has ended or stalled: who waits in vain is told now."""
        with self.server.outboxes.batch():
            self.core.on_slave_lost()

    def on_metadata(self, position: int, body: bytes) -> None:
        """A slave is told of changes, each where it belongs between the bytes of the log."""
        self.core.metadata.follow(body)
        self.failover.on_log_grown()
        self.persist.check()

    def streams_metadata(self) -> bool:
        """Does our master tell us of changes by itself at the moment?"""
        return self.ha_client is not None and self.ha_client.metadata_position >= 0

    def on_appended(self) -> None:
        """A slave's log has grown."""
        if self.handshake.whole_at is not None:
            self.handshake.on_appended()
        self._seen_end = self.store.max_phy_offset
        self.flush.grown_nowait(urgent=False)
        self.reput.grown_nowait()
        self.failover.on_log_grown()

    def on_fenced(self, reason: str) -> None:
        """Somebody holds a newer epoch: from this very pass on nothing is written here."""
        self.roles.fenced(reason)

    def status(self, instant: Instant) -> dict[str, object]:
        """What `trioha ha status` and the console show of this node."""
        return broker_status(self, instant)

    async def watch_disk(self) -> None:
        """Look at the disk, and sample the counters, every `cleanResourceInterval`."""

        def on_looked() -> None:
            self.core.sample(self.clock.instant())
            self.after_batch()

        await watch_disk(self.store, self.config, self.clock, on_looked)

    async def wait_level(self) -> None:
        """Wait until who waits for disk or slave is answered and slaves in sync hold all."""
        if self.ha_master is not None:
            self.core.metadata.flush()
            await self.ha_master.wait_transferred(self.core.metadata.position)
        await self.flush.flush_all()

    def give_up_waiting(self) -> None:
        """Answer who still waits for disk or slave, while their connections are there."""
        with self.server.outboxes.batch():
            self.core.give_up_waiting()

    async def close(self) -> None:
        """Bring everything to disk and let go of the store. Blocks in a thread.

        Errors: StoreError when the disk does not take it.
        """
        await self.persist.save_all()
        await trio.to_thread.run_sync(self.store.close)

    def _on_master(self, address: str, ha_address: str) -> None:
        """A name server has told a slave where its master is."""
        if self.role is not BrokerRole.SLAVE or address == self.addresses.listen:
            return  # what it answers to what we have been
        self.master_remoting_address.set(address)
        if not self.config.ha_master_address or self.mastership.history.was_failed_over:
            self.master_address.set(ha_address)
        self.roles.master_known(address)

    def _on_refuted(self, found: Refutation) -> None:
        """A name server has refused our claim to be master."""
        holder = f"{found.address}, says name server {found.namesrv},"
        if self.mastership.hear(found.epoch, found.nonce, holder, decided=True):
            self.on_fenced(self.mastership.fenced_by)
            if found.ha_address:
                self._on_master(found.address, found.ha_address)

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

    def _on_flushed(self, offset: int) -> None:
        with self.server.outboxes.batch():
            self.core.on_flushed(offset)

    def _on_metadata_synced(self, position: int) -> None:
        with self.server.outboxes.batch():
            self.core.metadata_waits.on_synced(position)

    def on_dispatched(self) -> None:
        """Records became readable."""
        core = self.core
        if core.unknown_topic_seen:
            core.unknown_topic_seen = False
            if self.slave_synchronizer is not None:
                self.slave_synchronizer.hurry_nowait()
        if core.hold.has_due:
            with self.server.outboxes.batch():
                core.after_batch(self.clock.instant())
        if core.schedule_changed:
            core.schedule_changed = False
            self.schedule_message.check()

    def _next_failover_ms(self) -> int | None:
        deadlines = (self.failover.next_deadline_ms, self.roles.next_deadline_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def _on_failover_time(self, instant: Instant) -> None:
        self.failover.on_time(instant)
        self.roles.on_time(instant)

    def _is_catching_up(self) -> bool:
        return self.ha_client is not None and self.ha_client.catching_up

    def _in_batch(self, on_time: Callable[[Instant], None]) -> Callable[[Instant], None]:
        def run(instant: Instant) -> None:
            with self.server.outboxes.batch():
                on_time(instant)
                self.after_batch()

        return run

    def _next_delivery_ms(self) -> int | None:
        wall_ms = self.clock.wall_ms()
        due_ms = self.core.schedule.next_deadline(wall_ms)
        if due_ms is None:
            return None
        return self.clock.now_ms() + max(0, due_ms - wall_ms)


async def open_broker_node(
    config: BrokerConfig,
    addresses: BrokerAddresses,
    clock: Clock,
    events: EventSink,
    process: NodeProcess | None = None,
) -> BrokerNode:
    """Open the store, recovering it if need be, and read the tables.

    Errors: StoreError with file and cure.
    """
    wall_ms = clock.wall_ms()
    store = await trio.to_thread.run_sync(
        lambda: FileMessageStore.open(StoreConfig.of(config), events, wall_ms=wall_ms)
    )
    try:
        assert store.recovery is not None, "an open store has been recovered"
        clean = store.recovery.clean
        mastership = open_mastership(config, store.max_phy_offset, events, wall_ms, clean=clean)
        config = config_of_role(config, mastership)
        node = BrokerNode(config, addresses, store, clock, events, wall_ms, mastership, process)
        node.metadata_files.load()
        node.core.schedule.refresh()
        await node.persist.save_all()
    except BaseException:
        store.close()
        raise
    if not mastership.unconfirmed:  # else it is said once it is known
        node.roles.say_role(events)
    return node
