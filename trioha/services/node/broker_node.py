"""The state that the tasks of one broker share, and the calls between these tasks.

The node's replication (`services.node.replication`), which it is given, sends appended bytes to
other nodes and decides the node's role.

The hooks here are plain calls within one scheduler pass. What follows when the requests of one read
were handled is in `services.node.batch_end`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from types import MappingProxyType

import attrs

from trioha.broker.core import BrokerCore, BrokerReplicas
from trioha.broker.metadata_ops import AccessPut
from trioha.broker.request_gate import RequestGate
from trioha.broker.set_modes import ACCOUNTS
from trioha.broker.visibility import Visibility
from trioha.config import BrokerConfig, BrokerRole
from trioha.config.secret_files import cluster_keyring, ha_keyring, raft_keyring
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.node_proofs import NodeProofs
from trioha.remoting.outboxes import Outboxes
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.security.requirements import Port, body_limits, check_pages_declared
from trioha.security.secret_guard import SecretGuard
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.health import alive, ready
from trioha.services.admin.http import OnGet
from trioha.services.admin.introspection import Introspection, NodeProcess
from trioha.services.admin.journal_samples import JournalSamples
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import random_bytes, random_source, run_blocking
from trioha.services.loop.transport import Connect, connect
from trioha.services.node.access_control import broker_access
from trioha.services.node.batch_end import BatchEnd
from trioha.services.node.cold_reading import ColdReading
from trioha.services.node.config_persist import PersistedTable
from trioha.services.node.disk_watch import watch_disk
from trioha.services.node.health import broker_checks
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.node.metadata_files import MetadataFiles
from trioha.services.node.metrics import broker_metrics
from trioha.services.node.namesrv_registration import BrokerIdentity, NamesrvRegistration
from trioha.services.node.replication import Replication
from trioha.services.node.reput import Reput
from trioha.services.node.request_forwarding import PATIENCE_S, RequestForwarding
from trioha.services.node.route_questions import RouteQuestions
from trioha.services.node.status import broker_status
from trioha.services.remoting.server import RemotingServer, server_limits
from trioha.store.lookup import UNBOUNDED
from trioha.store.message_store import FileMessageStore
from trioha.wire.bodies import TopicConfig
from trioha.wire.names import METADATA_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from trioha.wire.properties import REAL_TOPIC, decode_properties
from trioha.wire.record import dispatch_fields
from trioha.wire.remoting_command import RemotingCommand

RUNTIME_SETTINGS = "runtimeSettings.json"


@attrs.frozen(kw_only=True)
class NodeParts:
    """Parts from which a broker is made."""

    config: BrokerConfig
    addresses: BrokerAddresses
    store: FileMessageStore
    clock: Clock
    events: EventCounts
    started_wall_ms: int
    process: NodeProcess = attrs.Factory(NodeProcess)
    connect_to: Connect = connect
    """Opens connections to the other nodes and to name servers."""
    replicas: BrokerReplicas
    identity: BrokerIdentity
    tables: Mapping[str, PersistedTable] = MappingProxyType({})
    """Tables that are kept beside the four of every broker, by file name."""
    forwarding_patience_s: float = PATIENCE_S
    readable_offset: int = UNBOUNDED
    """End of the log, in bytes, that readers see at first."""


class BrokerNode:
    """One broker, between its store and its tasks."""

    replication: Replication
    group_transfer: Alarm
    pull_hold: Alarm
    client_expiry: Alarm
    schedule_message: Alarm
    cold_reads: ColdReading

    def __init__(self, parts: NodeParts, replicate: Callable[[BrokerNode], Replication]) -> None:
        """`replicate` makes the replication of this node, and calls `open_gate`."""
        config, store, clock, events = parts.config, parts.store, parts.clock, parts.events
        self.config = config
        self.addresses = parts.addresses
        self.store = store
        self.clock = clock
        self.events = events
        self.started_wall_ms = parts.started_wall_ms
        self.process = parts.process
        self.stopping = False
        """Shutdown has begun; no new client is accepted."""
        self._shares_accounts = _links_are_proven(config)
        self.access = broker_access(config, self._topic_at, events, self._accounts_changed)
        """Access control: nothing is checked or signed without `aclEnable`."""
        self.pages: dict[str, OnGet] = {
            "/metrics": broker_metrics(self),
            "/livez": alive,
            "/readyz": ready(partial(broker_checks, self)),
        }
        check_pages_declared(self.pages)
        self.traffic = TrafficBudget(config.traffic_bytes_max)
        self.routes = RouteQuestions(
            config.namesrv_addr, clock, connect_to=parts.connect_to, sign=self.access.sign
        )
        self.core = self._make_core(parts)
        core = self.core
        self.keyring = cluster_keyring(config)
        """Proves what nodes and operators ask of each other."""
        self.refusals = RefusalNotes(events)
        self._proofs = NodeProofs(self.keyring, self.refusals, random_bytes)
        self.introspection = Introspection(parts.process, lambda: core.config, clock)
        self.visibility = Visibility(store, parts.readable_offset, core.on_dispatch)
        store.tell_dispatches(self.visibility.on_dispatch)
        # A change is on its way to disk and slaves before an answer confirms it.
        self.outboxes = Outboxes(core.metadata.flush)
        self.samples = JournalSamples(core, store, clock, events)
        self.reput = Reput(
            store,
            events,
            self.on_dispatched,
            lambda: self.replication.is_catching_up(),
            lambda error: self.replication.on_damaged(error),
        )
        self._make_alarms()
        self.registration = NamesrvRegistration(
            config,
            parts.identity,
            lambda: (core.topics.data_version, core.topics.topics),
            clock,
            events,
            on_master=lambda *addresses: self.replication.on_master(*addresses),
            on_refuted=lambda found: self.replication.on_refuted(found),
            connect=parts.connect_to,
            sign=self.access.sign,
            keyring=self.keyring,
        )
        self.forwarding = RequestForwarding(
            clock,
            events,
            patience_s=parts.forwarding_patience_s,
            connect_to=parts.connect_to,
            sign=self.access.sign,
            keyring=self.keyring,
            traffic=self.traffic,
        )
        others = {RUNTIME_SETTINGS: core.runtime_settings, **parts.tables}
        self.metadata_files = MetadataFiles(config, core, events, self._on_metadata_synced, others)
        self.persist = self.metadata_files.persist
        self.batch_end = BatchEnd(
            core,
            store,
            clock,
            dispatch_soon=self.reput.grown_nowait,
            tables=self.persist.changed,
            cold_pulls=self.cold_reads,
            group_transfer=self.group_transfer,
            schedule_message=self.schedule_message,
            pull_hold=self.pull_hold,
            client_expiry=self.client_expiry,
        )
        # Bound here, so that a batch is not one more call deep.
        self.after_batch = self.batch_end.run
        # After an unclean stop the index is behind the log.
        self.reput.grown_nowait()
        self.replication = self.batch_end.replication = replicate(self)
        self.flush = self.replication.flush

    def _make_core(self, parts: NodeParts) -> BrokerCore:
        return BrokerCore(
            parts.config,
            parts.store,
            parts.replicas,
            parts.events,
            Random(random_source().getrandbits(64)),
            parts.clock.instant(),
            self.status,
            write_metadata=lambda position, body: self.replication.write_metadata(position, body),
            on_metadata_body=lambda position, body: self.replication.on_metadata_body(
                position, body
            ),
            delete_queues=lambda topic: self.replication.delete_queues(topic),
            on_topics_changed=self._topics_changed,
            traffic=self.traffic,
            access=self.access.text if self._shares_accounts else None,
            ask_route=self.routes.ask,
            confirm_master=lambda then: self.replication.confirm_master(then),
        )

    def _make_alarms(self) -> None:
        core, store, clock = self.core, self.store, self.clock
        self.group_transfer = Alarm(
            clock,
            core.next_wait_deadline_ms,
            self.in_batch(core.expire_waits),
        )
        self.pull_hold = Alarm(
            clock, core.next_parked_deadline_ms, self.in_batch(core.expire_pulls)
        )
        self.cold_reads = ColdReading(
            core.cold_reads, clock, lambda: store.max_phy_offset, self._were_read
        )
        self.client_expiry = Alarm(
            clock, core.next_client_deadline_ms, self.in_batch(core.expire_clients)
        )
        self.schedule_message = Alarm(clock, self._next_delivery_ms, self.in_batch(self._deliver))

    @property
    def role(self) -> BrokerRole:
        return self.config.broker_role

    def take_config(self, config: BrokerConfig) -> None:
        """Take the role of this configuration towards clients and name servers."""
        self.config = config

    @property
    def broker_id(self) -> int:
        """The brokerId to register; 0 is the broker that takes writes."""
        return self.replication.broker_id

    def guarded(
        self, handlers: Mapping[int, Handler], *, besides: Collection[int] = ()
    ) -> dict[int, Handler]:
        """Return the handlers of requests of nodes and operators, whose senders have to prove it.

        Those of `besides` need no proof here. Requests that break the protocol are journalled.
        """
        watched = self.refusals.watched(handlers)
        return self._proofs.guarded(watched, watched.keys() - set(besides))

    def open_gate(
        self,
        handlers: Mapping[int, Handler],
        *,
        confirm: Handler,
        on_late: Callable[[int], None] | None = None,
    ) -> RequestGate:
        """Make the gate of this node and the server of its connections.

        `handlers` are the replication's own, beside those of every broker; `confirm` is the gate's.
        """
        config = self.config
        access = self.access
        declared = [self.core.handlers, self.introspection.handlers(), handlers]
        shares, is_group = self._shares_accounts, config.enable_d_leger_commit_log
        declared.append(
            access.admin_handlers(
                config,
                self._answer_later,
                lambda: shares and (is_group or self.core.role is BrokerRole.SLAVE),
            )
        )
        self.gate = RequestGate(
            declared,
            self.forwarding,
            self.events,
            confirm,
            access.guard or SecretGuard(Port.BROKER, self._proofs, self.events),
            self.traffic,
            served=() if shares else ACCOUNTS,
        )
        self.server = RemotingServer(
            self.gate.handle,
            self.clock,
            self.events,
            limits=server_limits(
                config,
                body_limits(Port.BROKER, config.max_message_size),
                self.traffic,
                self.core.waits,
            ),
            connections_max=config.connections_max,
            on_closed=self.channel_closed,
            on_batch=self.after_batch,
            on_late=on_late,
            outboxes=self.outboxes,
        )
        return self.gate

    def _answer_later(
        self, channel: Channel, request: RemotingCommand
    ) -> Callable[[RemotingCommand], None]:
        """Return what answers a change of accounts, which is made behind its request."""
        waits = self.core.metadata_waits
        answer = waits.later(channel, request, shared=self._shares_accounts)

        def send(response: RemotingCommand) -> None:
            with self.outboxes.batch():
                now = answer(response, self.clock.instant())
                if now is not None:
                    channel.send_nowait(now)
                self.after_batch()

        return send

    def seen_to(self, end_offset: int) -> None:
        """Note that the log ends here; other nodes need not be told."""
        self.batch_end.seen_end = end_offset

    def _were_read(self) -> None:
        """Answer pulls that waited for the disk."""
        with self.outboxes.batch():
            self.after_batch()

    def on_dispatched(self) -> None:
        """Records were dispatched."""
        self.replication.on_dispatched()
        self.records_readable()

    def records_readable(self) -> None:
        """Answer the requests that wait for records which readers see from now on."""
        core = self.core
        if core.unknown_topic_seen:
            core.unknown_topic_seen = False
            self.replication.topic_missed()
        if core.has_due:
            with self.outboxes.batch():
                core.after_batch(self.clock.instant())
        if core.schedule_changed:
            core.schedule_changed = False
            self.schedule_message.check()

    def channel_closed(self, channel: Channel) -> None:
        self.replication.channel_closed(channel)
        self.core.channel_closed(channel)
        self.gate.channel_closed(channel)
        self.forwarding.channel_closed(channel)

    def in_batch(self, on_time: Callable[[Instant], None]) -> Callable[[Instant], None]:
        """`on_time`, treated as a batch of requests."""

        def run(instant: Instant) -> None:
            with self.outboxes.batch():
                on_time(instant)
                self.after_batch()

        return run

    def status(self, instant: Instant) -> dict[str, object]:
        """Return the status that `trioha ha status` and the console show."""
        return broker_status(self, instant) | self.replication.status(instant)

    async def watch_disk(self) -> None:
        """Look at the disk, and sample the counters, every `cleanResourceInterval`."""
        await watch_disk(self.check_disk, self.config, self.disk_looked_at)

    def check_disk(self) -> None:
        """Measure the disk, delete expired segments, stop or resume writes."""
        self.replication.check_disk(self.clock.wall_ms())

    def disk_looked_at(self) -> None:
        """Segments may have gone, and writes may have stopped or resumed."""
        self.core.sample(self.clock.instant())
        self.after_batch()

    def give_up_waiting(self) -> None:
        """Answer every waiting send and change while its connection is open."""
        with self.outboxes.batch():
            self.core.give_up_waiting()

    async def stop(self) -> None:
        """Stop accepting sends; shutdown has begun."""
        await self.replication.leave()
        self.stopping = True
        self.gate.stop("the broker is shutting down")

    async def close(self) -> None:
        """Bring everything to disk and close the store. Blocks in a thread.

        Errors: StoreError when the disk does not take it.
        """
        await self.metadata_files.save_all(self.clock.wall_ms())
        await run_blocking(self.store.close)

    def _topic_at(self, phy_offset: int) -> str:
        """Return the topic of the message at an offset in bytes; empty when there is none.

        A half message and a timer message belong to the topic that they are for.
        """
        record = self.store.look_message(phy_offset)
        if record is None:
            return ""
        fields = dispatch_fields(record, 0)
        if fields.topic in (TRANS_HALF_TOPIC, TIMER_TOPIC):
            return decode_properties(fields.properties).get(REAL_TOPIC, fields.topic)
        return "" if fields.topic == METADATA_TOPIC else fields.topic

    def _accounts_changed(self, op: AccessPut) -> None:
        if self._shares_accounts:
            self.core.metadata.access_changed(op)

    def _topics_changed(self, topic: TopicConfig | None) -> None:
        self.registration.topics_changed(topic)

    def _on_metadata_synced(self, position: int) -> None:
        with self.outboxes.batch():
            self.core.metadata_waits.on_synced(position)

    def _deliver(self, instant: Instant) -> None:
        self.cold_reads.read_soon(self.core.deliveries.run_due(instant))

    def _next_delivery_ms(self) -> int | None:
        wall_ms = self.clock.wall_ms()
        due_ms = self.core.deliveries.next_deadline(wall_ms)
        if due_ms is None:
            return None
        return self.clock.now_ms() + max(0, due_ms - wall_ms)


def _links_are_proven(config: BrokerConfig) -> bool:
    """Return whether a stranger gets no log of this broker, and so no accounts either."""
    keyring = raft_keyring if config.enable_d_leger_commit_log else ha_keyring
    return bool(keyring(config))
