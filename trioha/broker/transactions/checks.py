"""Checks open transactions: asks their producers, and discards those that get no answer.

Theory of operation. A check appends a copy of the half message, with one check more in its count,
to the half queue, and sends request 39 to one producer of its group, each in turn. The producer
answers with request 37 for the copy, or not at all. A half message that was checked
`transactionCheckMax` times goes to TRANS_CHECK_MAX_TIME_TOPIC instead. A check counts whether or
not a producer of the group is connected, as in RocketMQ: otherwise a group that is gone would keep
its messages for ever.

The oldest transaction holds the progress back. When the half queue behind it gets too long, it is
copied to the end without a check.
"""

from __future__ import annotations

from typing import Final

from trioha.broker.clients import ProducerManager
from trioha.broker.put_message import PutOutcome, PutPipeline
from trioha.broker.retry_pause import RetryPause
from trioha.broker.topics import TopicTable
from trioha.broker.transactions.pending import CheckAction, HalfCopy, action_of
from trioha.broker.transactions.queues import TransactionQueues
from trioha.broker.transactions.records import (
    check_request,
    discarded_message,
    next_copy,
    producer_group,
)
from trioha.broker.transactions.service import Transactions
from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore, PutMessage, PutResult
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.names import TRANS_CHECK_MAX_TIME_TOPIC
from trioha.wire.properties import REAL_TOPIC, Property
from trioha.wire.record import Record

SPAN_MAX: Final = 32_768
"""Records between the oldest open transaction and the end of the half queue. A broker that takes
over reads the op messages of that many first: 0.3 s."""
GRACE_MS: Final = 30_000
"""Producers send heartbeats this often: after a switch they need as long to be known here."""
WAIT_MS: Final = 1_000
"""Pause until a half message that readers may not see yet is looked at again."""


class TransactionChecks:
    """The checks of one master; `next_deadline` says when to call `run_due`."""

    def __init__(
        self,
        transactions: Transactions,
        store: MessageStore,
        queues: TransactionQueues,
        pipeline: PutPipeline,
        topics: TopicTable,
        producers: ProducerManager,
        events: EventSink,
    ) -> None:
        self.checked_count = 0
        self.unasked_count = 0
        """Checks for which no producer of the group was connected."""
        self.discarded_count = 0
        self._table = transactions
        self._store = store
        self._queues = queues
        self._pipeline = pipeline
        self._topics = topics
        self._producers = producers
        self._events = events
        self._from_ms: int | None = None
        """No check before this time; None: it is set when the first deadline is asked for."""
        self._pause = RetryPause()

    def begin(self) -> None:
        """Start anew, for a broker that has become master."""
        self._from_ms = None

    def next_deadline(self, wall_ms: int) -> int | None:
        """Return the wall time at which `run_due` has something to do, possibly past; or None."""
        if self._pipeline.role is BrokerRole.SLAVE:
            return None
        if self._from_ms is None:
            self._from_ms = wall_ms + min(GRACE_MS, self._table.config.transaction_check_interval)
        due_ms = self._table.pending.next_due_ms
        found = [] if due_ms is None else [max(due_ms, self._from_ms)]
        if self._table.progress.due_ms is not None:
            found.append(self._table.progress.due_ms)
        if self._table.owes or self._is_too_long:
            found.append(wall_ms)
        return self._pause.after(min(found, default=None), wall_ms)

    def run_due(self, instant: Instant, budget: int) -> None:
        """Check, discard and copy what is due, `budget` half messages at most; commit progress."""
        wall_ms = instant.wall_ms
        due_ms = self.next_deadline(wall_ms)
        if due_ms is None or due_ms > wall_ms:
            return
        from_ms = self._from_ms or 0
        is_stored = self._table.pay(instant) is None
        for _ in range(budget):
            if not is_stored or not self._is_too_long:
                break
            is_stored = self._copy_oldest(instant)
        for _ in range(budget if wall_ms >= from_ms else 0):
            copy = self._table.pending.take_due(wall_ms) if is_stored else None
            if copy is None:
                break
            is_stored = self._look_at(copy, instant)
            if not is_stored:
                self._table.pending.postpone(copy, wall_ms)
        if not is_stored:
            self._pause.begin(wall_ms)
        self._table.progress.advance(self._table.pending.progress, wall_ms)

    @property
    def _is_too_long(self) -> bool:
        pending = self._table.pending
        # With many open ones most of the queue is theirs: copies would not make it shorter.
        return pending.end - pending.progress > max(SPAN_MAX, 2 * len(pending))

    def _look_at(self, copy: HalfCopy, instant: Instant) -> bool:
        """Do what is due for a half message; return False if the store rejects it for now."""
        wall_ms = instant.wall_ms
        record = self._queues.record_at(copy.phy_offset)
        if record is None:
            self._give_up(copy, "its record is gone from the log")
            return True
        config = self._table.config
        decision = action_of(
            copy,
            wall_ms,
            self._store.readable_offset,
            config.transaction_check_max,
            self._table.reserved_ms,
        )
        if decision is CheckAction.WAIT:
            self._table.pending.postpone(copy, wall_ms + WAIT_MS)
            return True
        if decision is CheckAction.DISCARD:
            return self._discard(copy, record, instant)
        outcome = self._put(next_copy(record, copy.check_times + 1), instant)
        if outcome.result is not None:
            copy = self._copied(outcome.result, instant)
            self._table.pay(instant)
        elif outcome.code is ResponseCode.MESSAGE_ILLEGAL:
            # A half message of another broker with no room for the properties of a copy.
            self._table.pending.postpone(copy, wall_ms + config.transaction_check_interval)
        else:
            return False
        self.checked_count += 1
        self._ask(copy, record)
        return True

    def _copied(self, result: PutResult, instant: Instant) -> HalfCopy:
        record = self._queues.record_at(result.phy_offset)
        assert record is not None, result.phy_offset
        self._table.progress.changed(instant.wall_ms)
        return self._table.take_in(record)

    def _copy_oldest(self, instant: Instant) -> bool:
        """Move the oldest half message to the end of the queue, without a check."""
        copy = self._table.pending.oldest
        assert copy is not None
        record = self._queues.record_at(copy.phy_offset)
        if record is None:
            self._give_up(copy, "its record is gone from the log")
            return True
        outcome = self._put(next_copy(record, copy.check_times), instant)
        if outcome.result is None:
            if outcome.code is ResponseCode.MESSAGE_ILLEGAL:
                self._give_up(copy, outcome.remark or "it cannot be copied")
                return True
            return False
        later = self._copied(outcome.result, instant)
        if later.due_ms > copy.due_ms:
            self._table.pending.postpone(later, copy.due_ms)
        if Property.CHECK_IMMUNITY_TIME_IN_SECONDS in record.properties:
            # Until its first check Java's broker takes an op message of the half message for the
            # end of the copy.
            self._table.forgive()
        return self._table.pay(instant) is None

    def _discard(self, copy: HalfCopy, record: Record, instant: Instant) -> bool:
        try:
            self._topics.create_internal(
                TRANS_CHECK_MAX_TIME_TOPIC, 1, Perm.READ | Perm.WRITE, instant.wall_ms
            )
        except CommandError:
            return False  # there is no room for another topic
        outcome = self._put(discarded_message(record), instant)
        if not outcome.is_stored and outcome.code is not ResponseCode.MESSAGE_ILLEGAL:
            return False
        self.discarded_count += 1
        self._events.event(
            "transaction_discarded",
            topic=record.properties.get(REAL_TOPIC, ""),
            group=producer_group(record),
            index=copy.origin,
            checks=copy.check_times,
        )
        self._table.finish(copy, instant)
        return True

    def _give_up(self, copy: HalfCopy, reason: str) -> None:
        self._table.pending.finish(copy.origin)
        self._events.event("transaction_lost", index=copy.origin, reason=reason)

    def _ask(self, copy: HalfCopy, record: Record) -> None:
        """Ask one producer of the group, at each check of a transaction another one."""
        group = producer_group(record)
        channels = [one for one, _ in self._producers.members(group) if not one.closed]
        if not channels:
            self.unasked_count += 1
            return
        newest = self._queues.record_at(copy.phy_offset) or record
        try:
            request = check_request(newest, copy)
        except ValueError:
            return  # it does not name its topic: no producer could help
        channels[(copy.origin + copy.check_times) % len(channels)].send_nowait(request)

    def _put(self, message: PutMessage, instant: Instant) -> PutOutcome:
        return self._pipeline.put(message, wait=False, instant=instant)
