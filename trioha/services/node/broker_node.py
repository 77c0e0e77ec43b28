"""What the tasks of one broker share, and what happens between them, whoever else keeps its log.

Two kinds of broker are made of it: one of a master-slave set (`services.ha.master_slave_node`), and
a member of a DLEDGER group (`services.raft.broker`). They differ in who is told of a byte that was
appended, in who decides what the node is, and in what they tell of that; those are the methods at
the end.

The hooks here are plain calls within one scheduler pass. `after_batch` runs when the requests of
one read were handled: first the log goes to the other nodes if a put waits for one, then parked
pulls are answered, then the answers leave (the `Outboxes` block around it), and the tasks that only
matter later are marked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Protocol

import trio

from trioha.broker.core import BrokerCore, BrokerReplicas
from trioha.broker.request_gate import RequestGate
from trioha.config import BrokerConfig
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.health import Check, alive, ready
from trioha.services.admin.http import OnGet
from trioha.services.admin.introspection import Introspection, NodeProcess
from trioha.services.admin.journal_samples import JournalSamples
from trioha.services.admin.metrics_families import Families
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect, connect
from trioha.services.node.config_persist import Table
from trioha.services.node.disk_watch import watch_disk
from trioha.services.node.health import broker_checks
from trioha.services.node.listeners import BrokerAddresses, BrokerListeners
from trioha.services.node.metadata_files import MetadataFiles
from trioha.services.node.metrics import broker_metrics
from trioha.services.node.namesrv_registration import (
    BrokerIdentity,
    NamesrvRegistration,
    Refutation,
)
from trioha.services.node.reput import Reput
from trioha.services.node.request_forwarding import RequestForwarding
from trioha.services.node.status import broker_status
from trioha.services.remoting.link import LinkLimits, Outboxes
from trioha.services.remoting.server import RemotingServer
from trioha.store.message_store import FileMessageStore

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class LogFlush(Protocol):
    """Who calls fsync."""

    async def run(self) -> None: ...
    async def flush_all(self) -> None: ...


class BrokerNode(ABC):
    """One broker, between its store and its tasks."""

    def __init__(
        self,
        config: BrokerConfig,
        addresses: BrokerAddresses,
        store: FileMessageStore,
        clock: Clock,
        events: EventCounts,
        replicas: BrokerReplicas,
        identity: BrokerIdentity,
        *,
        started_wall_ms: int,
        process: NodeProcess | None = None,
        tables: Mapping[str, Table] | None = None,
        connect_to: Connect = connect,
    ) -> None:
        """`tables`: what is kept beside the four of every broker, by file name.

        `connect_to`: opens connections to the other nodes and to name servers.
        A kind of node ends its own constructor with `_open_gate`.
        """
        self.config = config
        self.addresses = addresses
        self.store = store
        self.clock = clock
        self.events = self.event_counts = events
        self.role = config.broker_role
        self.started_wall_ms = started_wall_ms
        self.stopping = False
        """Asked to end: not for new clients any more."""
        self.pages: dict[str, OnGet] = {
            "/metrics": broker_metrics(self),
            "/livez": alive,
            "/readyz": ready(partial(broker_checks, self)),
        }
        self.core = BrokerCore(
            config, store, replicas, events, Random(), clock.instant(), self.status
        )
        core = self.core
        self.introspection = Introspection(process or NodeProcess(), lambda: core.config, clock)
        store.on_dispatch = core.on_dispatch
        # What was changed is on its way to disk and slaves before an answer says so.
        self.outboxes = Outboxes(core.metadata.flush)
        core.metadata.on_body = self.on_metadata_body
        self.samples = JournalSamples(core, store, clock, events)
        self.flush = self.make_flush()
        self.reput = Reput(store, events, self.on_dispatched, self.is_catching_up)
        self.group_transfer = Alarm(
            clock,
            core.next_wait_deadline_ms,
            self.in_batch(core.expire_waits),
        )
        self.pull_hold = Alarm(
            clock, lambda: core.hold.next_deadline_ms, self.in_batch(core.expire_pulls)
        )
        self.client_expiry = Alarm(
            clock, core.next_client_deadline_ms, self.in_batch(core.expire_clients)
        )
        self.schedule_message = Alarm(
            clock, self._next_delivery_ms, self.in_batch(core.deliver_delayed)
        )
        self.registration = NamesrvRegistration(
            config,
            identity,
            lambda: (core.topics.data_version, core.topics.topics),
            clock,
            events,
            on_master=self.on_master,
            on_refuted=self.on_refuted,
            connect=connect_to,
        )
        core.topics.on_change = self.registration.topics_changed
        self.forwarding = RequestForwarding(clock, events, connect_to=connect_to)
        self.metadata_files = MetadataFiles(
            config, core, events, self._on_metadata_synced, tables or {}
        )
        self.persist = self.metadata_files.persist
        self._seen_end = store.max_phy_offset
        # After an unclean stop the index is behind the log.
        self.reput.grown_nowait()

    def _open_gate(
        self,
        handlers: Mapping[int, Handler],
        *,
        confirm: Handler | None = None,
        on_late: Callable[[int], None] | None = None,
    ) -> None:
        """Make the gate of this node and the server of its connections.

        `handlers` are this kind's own, beside those of every broker; `confirm` is the gate's.
        """
        config = self.config
        declared = (self.core.handlers, self.introspection.handlers(), handlers)
        self.gate = RequestGate(declared, self.forwarding, self.events, confirm)
        self.server = RemotingServer(
            self.gate.handle,
            self.clock,
            self.events,
            limits=LinkLimits(
                idle_s=config.server_channel_max_idle_time_seconds,
                frame_s=config.frame_timeout / 1000,
                outbox_bytes_max=config.outbox_bytes_max,
            ),
            connections_max=config.connections_max,
            on_closed=self.channel_closed,
            on_batch=self.after_batch,
            on_late=on_late,
            outboxes=self.outboxes,
        )

    def after_batch(self) -> None:
        """The requests of one read were handled. HOT."""
        core = self.core
        end = self.store.max_phy_offset
        if end != self._seen_end:
            self._seen_end = end
            self.log_grown()
            self.reput.grown_nowait()
            self.group_transfer.check()
            if core.schedule_changed:
                core.schedule_changed = False
                self.schedule_message.check()
        if core.hold.has_due:
            core.after_batch(self.clock.instant())
        if core.metadata_waits.waiter_count:
            self.changes_wait()
            self.group_transfer.check()
        self.pull_hold.check()
        self.client_expiry.check()
        self.persist.check()

    def on_dispatched(self) -> None:
        """Records became readable."""
        core = self.core
        if core.unknown_topic_seen:
            core.unknown_topic_seen = False
            self.topic_missed()
        if core.hold.has_due:
            with self.outboxes.batch():
                core.after_batch(self.clock.instant())
        if core.schedule_changed:
            core.schedule_changed = False
            self.schedule_message.check()

    def channel_closed(self, channel: Channel) -> None:
        self.core.channel_closed(channel)
        self.forwarding.channel_closed(channel)

    def in_batch(self, on_time: Callable[[Instant], None]) -> Callable[[Instant], None]:
        """`on_time`, treated as a batch of requests."""

        def run(instant: Instant) -> None:
            with self.outboxes.batch():
                on_time(instant)
                self.after_batch()

        return run

    def status(self, instant: Instant) -> dict[str, object]:
        """What `trioha ha status` and the console show of this node."""
        return broker_status(self, instant) | self.replication_status(instant)

    async def watch_disk(self) -> None:
        """Look at the disk, and sample the counters, every `cleanResourceInterval`."""
        await watch_disk(self.store, self.config, self.clock, self.disk_looked_at)

    def disk_looked_at(self) -> None:
        """Segments may have gone, and writes may have stopped or resumed."""
        self.core.sample(self.clock.instant())
        self.after_batch()

    def give_up_waiting(self) -> None:
        """Answer who still waits for disk or another node, while their connections are there."""
        with self.outboxes.batch():
            self.core.give_up_waiting()

    async def stop(self) -> None:
        """Asked to end: take nothing new."""
        self.stopping = True
        self.gate.stop("the broker is shutting down")

    async def wait_level(self) -> None:
        """Wait until who waits is answered and the other nodes hold what they can have."""
        await self.flush.flush_all()

    async def close(self) -> None:
        """Bring everything to disk and let go of the store. Blocks in a thread.

        Errors: StoreError when the disk does not take it.
        """
        await self.persist.save_all()
        await trio.to_thread.run_sync(self.store.close)

    def _on_metadata_synced(self, position: int) -> None:
        with self.outboxes.batch():
            self.core.metadata_waits.on_synced(position)

    def _next_delivery_ms(self) -> int | None:
        wall_ms = self.clock.wall_ms()
        due_ms = self.core.schedule.next_deadline(wall_ms)
        if due_ms is None:
            return None
        return self.clock.now_ms() + max(0, due_ms - wall_ms)

    # What the two kinds do each in its own way.

    @property
    @abstractmethod
    def broker_id(self) -> int:
        """What we register as: 0 is the one that takes writes."""

    @abstractmethod
    def make_flush(self) -> LogFlush:
        """Who brings the log to disk; asked once, before the tasks start."""

    @abstractmethod
    def log_grown(self) -> None:
        """Records were put: other nodes and the disk are to have them. HOT."""

    @abstractmethod
    def changes_wait(self) -> None:
        """Somebody waits for a change of offsets, topics or groups to be safe. HOT."""

    @abstractmethod
    def on_metadata_body(self, position: int, body: bytes) -> None:
        """Offsets, topics or groups have changed; called in the pass that changed them. HOT."""

    @abstractmethod
    async def start_replication(self, nursery: trio.Nursery, listeners: BrokerListeners) -> None:
        """Start what keeps the log on other nodes; returns once this node has its first role."""

    @abstractmethod
    async def settle(self, nursery: trio.Nursery) -> None:
        """Clients can connect: wait, for a moment at most, until it is known what this node is."""

    @abstractmethod
    def replication_status(self, instant: Instant) -> dict[str, object]:
        """This kind's part of `status`: plain values."""

    @abstractmethod
    def replication_checks(self) -> Iterator[Check]:
        """This kind's lines of /readyz."""

    @abstractmethod
    def replication_families(self, families: Families) -> Iterator[Metric]:
        """This kind's part of /metrics."""

    @abstractmethod
    def start_storing(self, nursery: trio.Nursery) -> None:
        """Start what this kind keeps on disk beside the log and the tables."""

    @abstractmethod
    def is_catching_up(self) -> bool:
        """Are bytes of the past arriving in bulk? Queues may wait a little then."""

    @abstractmethod
    def topic_missed(self) -> None:
        """The log holds messages of a topic that the table does not know."""

    @abstractmethod
    def on_master(self, address: str, ha_address: str) -> None:
        """A name server has told where the master is."""

    @abstractmethod
    def on_refuted(self, found: Refutation) -> None:
        """A name server has refused our claim to be master."""
