"""A broker without its sockets: every table and processor, and one table of handlers.

The shell (`trioha.services.broker`) gives it a store and the time and tells it what happened:
`after_batch` when requests were handled or records dispatched, `on_flushed` and `on_acked` as the
log gets safe, `channel_closed`, and the four deadlines below as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

from trioha.broker.access_text import AccessText
from trioha.broker.admin import AdminProcessor
from trioha.broker.admin_config import RuntimeSettings
from trioha.broker.client_registrations import client_registrations
from trioha.broker.client_relay import ClientRelay
from trioha.broker.clients import ConsumerManager, ProducerManager
from trioha.broker.cold_reads import ColdReads
from trioha.broker.delay import DelayLevels
from trioha.broker.deliveries import Deliveries
from trioha.broker.groups import GroupTable
from trioha.broker.heartbeat import HeartbeatProcessor
from trioha.broker.locks import QueueLocks
from trioha.broker.metadata import Metadata, ignore_body
from trioha.broker.metadata_ops import MetadataOp
from trioha.broker.metadata_waits import MetadataReplicas, MetadataWaits
from trioha.broker.offset_requests import OffsetProcessor
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pop.acks import AckProcessor
from trioha.broker.pop.assignment import AskRoute, AssignmentProcessor, no_route
from trioha.broker.pop.hold import PopHold
from trioha.broker.pop.queue_reader import QueueReader
from trioha.broker.pop.requests import PopProcessor
from trioha.broker.pop.resources import PopResources
from trioha.broker.pull import Confirm, PullProcessor, certain
from trioha.broker.pull_hold import PullHold
from trioha.broker.put_message import PutPipeline, ReplicaView
from trioha.broker.query import QueryProcessor
from trioha.broker.reply import ReplyProcessor
from trioha.broker.send import SendProcessor
from trioha.broker.send_back import SendBackProcessor
from trioha.broker.slave_tables import SlaveTables
from trioha.broker.timers.listing import PendingTimersProcessor
from trioha.broker.timers.recall import RecallProcessor
from trioha.broker.topics import TopicTable
from trioha.broker.traffic_stats import GROUP_BYTES, SENT_BACK, TOPIC_BYTES
from trioha.broker.transactions.end import EndTransactionProcessor
from trioha.broker.transactions.listing import OpenTransactionsProcessor
from trioha.config import BrokerConfig, BrokerRole
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.fast_failure import WaitLimits
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import MessageStore
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode
from trioha.wire.message_id import pack_host
from trioha.wire.remoting_command import RemotingCommand

_METADATA_CHANGES: Final = (
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.CLEAN_UNUSED_TOPIC,
)
_PROGRESS_MOVES: Final = (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET)


class Processor(Protocol):
    """The handlers of some request codes."""

    def handlers(self) -> dict[int, Handler]: ...


class BrokerReplicas(ReplicaView, MetadataReplicas, Protocol):
    """The state of the slaves that puts and changes depend on."""


class BrokerCore:
    """The decisions of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        replicas: BrokerReplicas,
        events: EventSink,
        rng: Random,
        instant: Instant,
        status: Callable[[Instant], Mapping[str, object]],
        *,
        write_metadata: Callable[[int, bytes], None] = ignore_body,
        on_metadata_body: Callable[[int, bytes], None] = ignore_body,
        delete_queues: Callable[[str], None] | None = None,
        on_topics_changed: Callable[[TopicConfig | None], None] | None = None,
        traffic: TrafficBudget | None = None,
        access: AccessText | None = None,
        ask_route: AskRoute = no_route,
        confirm_master: Confirm = certain,
    ) -> None:
        """`write_metadata` and `on_metadata_body` are `Metadata`'s `write` and `on_body`.

        `delete_queues` removes the queues of a topic that was deleted here: at once by default, but
        a group's log has to carry the deletion first. `on_topics_changed` is `TopicTable`'s.
        `traffic` is the node's budget, which parked pulls count in. `access` are its accounts, with
        access control. `ask_route` asks a name server. `confirm_master` calls back with True once
        it is certain that no other broker is master; `must_confirm` says when it is asked.
        """
        wall_ms = instant.wall_ms
        self.role = config.broker_role
        levels = DelayLevels.parse(config.message_delay_level)
        store_host = pack_host(config.broker_ip1, config.listen_port)
        changed = self._table_changed
        self.topics = TopicTable(
            config, events, wall_ms=wall_ms, on_change=on_topics_changed, on_op=changed
        )
        self._known_topics = self.topics.topics
        self.groups = GroupTable(config, events, wall_ms=wall_ms, on_op=changed)
        self.offsets = ConsumerOffsetTable(is_slave=self.role is BrokerRole.SLAVE, on_op=changed)
        self.consumers = ConsumerManager(config, self.groups)
        self.producers = ProducerManager(config)
        self.pipeline = PutPipeline(store, config, replicas)
        self.deliveries = Deliveries(
            config,
            store,
            levels,
            self.topics,
            self.groups,
            self.offsets,
            self.producers,
            self.pipeline,
            store_host,
            events,
            rng,
            by_quorum=replicas.by_quorum,
        )
        self._timed_topics = self.deliveries.topics
        self.schedule, self.pops = self.deliveries.schedule, self.deliveries.pops
        self.metadata = Metadata(
            self.topics,
            self.groups,
            self.offsets,
            self.schedule,
            store,
            access,
            write=write_metadata,
            on_body=on_metadata_body,
        )
        self.metadata_waits = MetadataWaits(self.metadata, self.pipeline, replicas, config, events)
        self.locks = QueueLocks()
        self.waits = WaitLimits(config)
        """Limits of the time that a request may wait until it is rejected."""
        self.hold = PullHold(traffic)
        self._parked = self.hold.by_queue
        self.cold_reads = ColdReads(config, events, traffic)
        self.pop_hold = PopHold(traffic)
        self._parked_pops = self.pop_hold.by_topic
        self.slave_tables = SlaveTables(self.topics, self.groups, self.offsets, self.schedule)
        self.unknown_topic_seen = False
        """True if a slave's log holds a topic that its table lacks: it has to ask its master."""
        self.schedule_changed = False
        """A delayed message or a transaction came in or ended: the next deadline may be nearer."""
        self._make_consuming(config, store, rng, confirm_master)
        self._make_producing(config, store, levels, store_host, rng)
        self._make_admin(config, store, events, instant, status, delete_queues)
        self.handlers: Final[Mapping[int, Handler]] = MappingProxyType(
            self._make_handlers(config, store, store_host, ask_route)
        )

    def _make_consuming(
        self, config: BrokerConfig, store: MessageStore, rng: Random, confirm_master: Confirm
    ) -> None:
        topics, groups, offsets = self.topics, self.groups, self.offsets
        self._pull = PullProcessor(
            config,
            store,
            topics,
            groups,
            self.consumers,
            offsets,
            self.hold,
            self.cold_reads,
            confirm_master,
        )
        self._pop_resources = PopResources(config, topics, groups, rng)
        self._pop = PopProcessor(
            config,
            self._pop_resources,
            self.pipeline,
            QueueReader(store, offsets, self.pops),
            self.pops,
            self.pop_hold,
            self.cold_reads,
            confirm_master,
        )
        self._query = QueryProcessor(config, store, self.consumers)

    def _make_producing(
        self,
        config: BrokerConfig,
        store: MessageStore,
        levels: DelayLevels,
        store_host: bytes,
        rng: Random,
    ) -> None:
        topics, groups, pipeline = self.topics, self.groups, self.pipeline
        self._send = SendProcessor(
            config, topics, groups, pipeline, levels, self.deliveries.transactions, store_host, rng
        )
        self._send_back = SendBackProcessor(config, topics, groups, store, pipeline, levels, rng)

    def _make_admin(
        self,
        config: BrokerConfig,
        store: MessageStore,
        events: EventSink,
        instant: Instant,
        status: Callable[[Instant], Mapping[str, object]],
        delete_queues: Callable[[str], None] | None,
    ) -> None:
        self._admin = AdminProcessor(
            config,
            store,
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.offsets,
            self.schedule,
            put_times=self.pipeline.put_times,
            is_slave=lambda: self.role is BrokerRole.SLAVE,
            delete_queues=delete_queues or store.delete_topic,
            status=status,
            apply_config=self._apply_config,
            counted={
                TOPIC_BYTES: self.pipeline.put_bytes,
                GROUP_BYTES: self._pull.pulled_bytes,
                SENT_BACK: self._send_back.sent_back,
            },
            instant=instant,
            events=events,
        )
        self._relay = ClientRelay(
            config,
            store,
            self.topics,
            self.consumers,
            self.offsets,
            events,
            lambda topic, group: self.pops.mode_of(topic, group).mode == "POP",
        )

    def _make_handlers(
        self, config: BrokerConfig, store: MessageStore, store_host: bytes, ask_route: AskRoute
    ) -> dict[int, Handler]:
        topics, offsets, pipeline, pops = self.topics, self.offsets, self.pipeline, self.pops
        consumers, producers, deliveries = self.consumers, self.producers, self.deliveries
        transactions, timers = deliveries.transactions, deliveries.timers
        processors: tuple[Processor, ...] = (
            self._send,
            self._send_back,
            EndTransactionProcessor(transactions, pipeline),
            OpenTransactionsProcessor(transactions, deliveries.queues, pipeline, producers),
            PendingTimersProcessor(timers, pipeline),
            RecallProcessor(config, topics, timers, pipeline, store_host),
            ReplyProcessor(self._send, pipeline, producers, store_host),
            self._pull,
            self._pop,
            AckProcessor(topics, offsets, pipeline, pops, self.pop_hold),
            AssignmentProcessor(config, topics, self.groups, consumers, pipeline, pops, ask_route),
            HeartbeatProcessor(consumers, producers, topics, self.groups),
            OffsetProcessor(offsets, store, topics),
            self._query,
            self.locks,
            self._admin,
            self._relay,
        )
        handlers: dict[int, Handler] = {}
        for processor in processors:
            handlers.update(processor.handlers())
        for code in _METADATA_CHANGES:
            handlers[code] = self.metadata_waits.guard(handlers[code])
        for code in _PROGRESS_MOVES:
            handlers[code] = self._noting_moves(handlers[code])
        return handlers

    @property
    def config(self) -> BrokerConfig:
        """The present configuration: some settings can be changed over the wire."""
        return self._admin.config

    def on_dispatch(
        self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]
    ) -> None:
        """Messages became readable. HOT: once per message or batch."""
        if self._parked:
            self.hold.on_dispatch(topic, queue_id, max_offset, tags_codes)
        if self._parked_pops:
            self.pop_hold.on_dispatch(topic, queue_id, tags_codes)
        if topic not in self._known_topics:
            self.unknown_topic_seen = True
        if topic in self._timed_topics:
            self.deliveries.on_dispatch(topic, queue_id, max_offset, tags_codes)
            self.schedule_changed = True

    def after_batch(self, instant: Instant) -> None:
        """Answer the parked pulls and pops that the last batch made due."""
        if self.hold.has_due:
            self._pull.answer_due(instant)
        if self.cold_reads.is_waited_for and self.cold_reads.has_due:
            self.cold_reads.answer_due(instant)
        if self.pop_hold.has_due:
            self._pop.answer_due(instant)

    @property
    def has_due(self) -> bool:
        """`after_batch` has something to answer."""
        cold = self.cold_reads
        return self.hold.has_due or self.pop_hold.has_due or (cold.is_waited_for and cold.has_due)

    def next_parked_deadline_ms(self) -> int | None:
        """Return the time at which `expire_pulls` has something to do, or None."""
        pull_ms, pop_ms = self.hold.next_deadline_ms, self.pop_hold.next_deadline_ms
        if self.cold_reads.is_waited_for:
            cold_ms = self.cold_reads.next_deadline_ms
            if cold_ms is not None and (pull_ms is None or cold_ms < pull_ms):
                pull_ms = cold_ms
        if pull_ms is None or pop_ms is None:
            return pop_ms if pull_ms is None else pull_ms
        return min(pull_ms, pop_ms)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the clients, parked pulls and parked pops of a connection that ended."""
        self.hold.channel_closed(channel)
        self.cold_reads.channel_closed(channel)
        self.pop_hold.channel_closed(channel)
        self.consumers.channel_closed(channel)
        self.producers.channel_closed(channel)

    def on_flushed(self, offset: int, now_ms: int) -> None:
        self.pipeline.on_flushed(offset, now_ms)
        if self.pops.cursors.has_waiting:
            self.pops.cursors.settle()

    def on_acked(self, now_ms: int) -> None:
        """Answer all requests that the acknowledgements counted so far confirm. HOT.

        The only way in which an acknowledgement releases anything: a slave's report, the target's
        word in a planned switch, and a Raft group's commit all end here.
        """
        self.metadata_waits.release_acknowledged()
        self.pipeline.release_acknowledged(now_ms)
        if self.pops.cursors.has_waiting:
            self.pops.cursors.settle()

    def expire_pulls(self, instant: Instant) -> None:
        self._pull.answer_due(instant)
        self.cold_reads.answer_due(instant)
        self._pop.answer_due(instant)

    def next_wait_deadline_ms(self) -> int | None:
        """Return the time at which `expire_waits` has something to do, or None."""
        puts_ms = self.pipeline.next_deadline_ms
        changes_ms = self.metadata_waits.next_deadline_ms
        if puts_ms is None or changes_ms is None:
            return changes_ms if puts_ms is None else puts_ms
        return min(puts_ms, changes_ms)

    def expire_waits(self, instant: Instant) -> None:
        """Answer sends and changes whose timeout has expired."""
        self.pipeline.expire(instant.now_ms)
        self.metadata_waits.expire(instant.now_ms)

    def on_slave_lost(self) -> None:
        """Answer what no slave can confirm any more: a link to a slave has ended or stalled."""
        self.pipeline.on_slave_lost()
        self.metadata_waits.on_slave_lost()

    def give_up_waiting(self) -> None:
        """Answer every waiting send and change as if its timeout had expired."""
        self.pipeline.give_up()
        self.metadata_waits.give_up()

    def expire_clients(self, instant: Instant) -> None:
        self.consumers.expire(instant.now_ms)
        self.producers.expire(instant.now_ms)

    def next_client_deadline_ms(self) -> int | None:
        consumer_ms, producer_ms = self.consumers.next_deadline_ms, self.producers.next_deadline_ms
        if consumer_ms is None or producer_ms is None:
            return producer_ms if consumer_ms is None else consumer_ms
        return min(consumer_ms, producer_ms)

    def sample(self, instant: Instant) -> None:
        """Remember the counters of this moment: tools are shown rates."""
        self._admin.runtime_info.sample(instant)
        self._admin.traffic.sample(instant)

    def _table_changed(self, op: MetadataOp) -> None:
        self.metadata.write_at_once(op)

    @property
    def runtime_settings(self) -> RuntimeSettings:
        """Settings changed over the wire, to be kept in a file."""
        return self._admin.runtime_settings

    def _apply_config(self, config: BrokerConfig) -> None:
        """Give a changed configuration to every part that reads it."""
        self._send.config = config
        self._send_back.config = config
        self._pull.config = self.cold_reads.config = config
        self._pop.config = self._pop_resources.config = config
        self._query.config = config
        self.consumers.config = config
        self.producers.config = config
        self.deliveries.set_config(config)
        self.waits.set(config)

    def become(self, role: BrokerRole, broker_id: int) -> None:
        """Take this role. The caller answers the sends that wait for a promise of the old role."""
        # Changes made so far belong to the old role.
        self.metadata.flush()
        was_slave, self.role = self.role is BrokerRole.SLAVE, role
        self.pipeline.role = self._pull.role = role
        self.pipeline.roles_taken += 1
        self._admin.role_changed(role, broker_id)
        if role is BrokerRole.SLAVE:
            if not was_slave:
                self.offsets.become_slave()
            self.deliveries.forget()
            self.pop_hold.wake_all()
        elif was_slave:
            self.offsets.become_master()
            self.schedule.refresh()
            if not self.offsets.read_only:  # else the leader's tables are not complete yet
                self.deliveries.load()
        else:
            self.deliveries.load_again()

    def _noting_moves(self, handler: Handler) -> Handler:
        """Return a handler that notes in the revive log which groups it has moved."""

        def answer(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            response = handler(channel, request, instant)
            if self.role is not BrokerRole.SLAVE:
                self.pops.note_moves(instant)
            return response

        return answer

    def log_cut(self, topic: str, queue_id: int, offset: int) -> None:
        """Note that a queue was cut and ends at `offset`."""
        self.offsets.cut_back(topic, queue_id, offset)
        self.deliveries.log_cut(topic, queue_id, offset)

    def pause(self) -> None:
        """Take no puts, and deliver nothing delayed, until `become`."""
        self.pipeline.role = BrokerRole.SLAVE
        self.pipeline.roles_taken += 1

    def must_confirm(self, required: bool) -> None:
        """Correct offsets, and hand messages out by POP, only once `confirm_master` has called back
        with True; or at once, if nothing is `required`."""
        self._pull.must_confirm = self._pop.must_confirm = required

    def client_registrations(self, now_ms: int) -> Iterator[tuple[Channel, RemotingCommand]]:
        """Return the registrations by which another master learns of the clients connected here."""
        return client_registrations(self.consumers, self.producers, self.locks, now_ms)
