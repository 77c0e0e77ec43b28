"""Messages that a broker puts by itself, at their time: delayed ones, timers, checks, redeliveries.

Each of the four services has a deadline and a share of each turn. None of them passes the request
gate: on a slave, and in the pause of a planned switch, `PutPipeline` refuses their puts.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from trioha.broker.clients import ProducerManager
from trioha.broker.delay import DelayLevels, DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pop.records import ReviveLogWriter
from trioha.broker.pop.redelivery import Redelivery
from trioha.broker.pop.service import PopService
from trioha.broker.put_message import PutPipeline
from trioha.broker.read_ahead import ReadAhead
from trioha.broker.timers.service import Timers
from trioha.broker.topics import TopicTable
from trioha.broker.transactions.checks import TransactionChecks
from trioha.broker.transactions.progress import TransactionProgress
from trioha.broker.transactions.queues import TransactionQueues
from trioha.broker.transactions.service import Transactions
from trioha.config import BrokerConfig
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.store.interface import DiskBlock, MessageStore
from trioha.wire.names import (
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

_PER_TURN: Final = 256


class Deliveries:
    """Delayed messages, transactions, timer messages and popped messages of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        levels: DelayLevels,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsetTable,
        producers: ProducerManager,
        pipeline: PutPipeline,
        store_host: bytes,
        events: EventSink,
        rng: Random,
        *,
        by_quorum: bool,
    ) -> None:
        self.schedule = DelaySchedule(levels, store, pipeline, events)
        self.queues = TransactionQueues(store, offsets)
        progress = TransactionProgress(store, offsets, self.queues)
        self.transactions = Transactions(
            config, self.queues, progress, pipeline, topics, store_host
        )
        self.transaction_checks = TransactionChecks(
            self.transactions, store, self.queues, pipeline, topics, producers, events
        )
        self.timers = Timers(config, store, pipeline, offsets, events)
        self._read_ahead = ReadAhead(store, self.schedule, self.timers)
        revive_topic = REVIVE_TOPIC_PREFIX + config.broker_cluster_name
        writer = ReviveLogWriter(revive_topic, config.broker_name, store_host)
        redelivery = Redelivery(topics, pipeline, rng, config.enable_retry_topic_v2)
        self.pops = PopService(
            store, offsets, topics, groups, pipeline, writer, redelivery, by_quorum=by_quorum
        )
        self._loaded_topics = frozenset(
            {TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TIMER_TOPIC, revive_topic}
        )
        """Topics that a broker reads when it becomes master."""
        self.topics: Final = self._loaded_topics | {SCHEDULE_TOPIC}
        """Topics in which a message may bring the next deadline nearer."""
        self._is_cut = False

    def set_config(self, config: BrokerConfig) -> None:
        self.transactions.config = self.timers.config = config

    def on_dispatch(
        self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]
    ) -> None:
        """Take in messages of one of the `topics`, which became readable."""
        if topic == SCHEDULE_TOPIC:
            self.schedule.on_scheduled(queue_id)
        elif topic == TIMER_TOPIC:
            self.timers.on_dispatch(max_offset, tags_codes)

    def next_deadline(self, wall_ms: int) -> int | None:
        """Return the wall time at which `run_due` has something to do, or None."""
        nearest = self._read_ahead.next_look_ms(wall_ms)
        for deadline_ms in (
            self.schedule.next_deadline(wall_ms),
            self.timers.next_deadline(wall_ms),
            self.transaction_checks.next_deadline(wall_ms),
            self.pops.next_deadline(wall_ms),
        ):
            if deadline_ms is not None and (nearest is None or deadline_ms < nearest):
                nearest = deadline_ms
        return nearest

    def run_due(self, instant: Instant) -> list[DiskBlock]:
        """Deliver delayed messages, check open transactions, deliver popped messages again.

        Returns what a thread is to read from disk for what is due next.
        """
        self.schedule.run_due(instant, _PER_TURN)
        self.timers.run_due(instant, _PER_TURN)
        self.transaction_checks.run_due(instant, _PER_TURN)
        self.pops.run_due(instant, _PER_TURN)
        return self._read_ahead.look(instant.wall_ms)

    def load(self) -> None:
        """Read open transactions, pending timer messages, and what is popped.

        Tables and queues must be up to the log.
        """
        self._is_cut = False
        self.transactions.load()
        self.pops.load()
        self.transaction_checks.begin()
        self.timers.load()

    def load_again(self) -> None:
        """Do the same as `load`, if one of these queues was cut since."""
        if self._is_cut:
            self.load()

    def forget(self) -> None:
        """Forget what `load` has read: this broker is a slave from now on."""
        self.transactions.forget()
        self.timers.follow()
        self.pops.forget()

    def log_cut(self, topic: str, queue_id: int, offset: int) -> None:
        """Note that a queue was cut and ends at `offset`."""
        if topic == SCHEDULE_TOPIC:
            self.schedule.cut_back(queue_id, offset)
        self._is_cut = self._is_cut or topic in self._loaded_topics
