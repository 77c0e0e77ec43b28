"""POP on one master: takes messages, keeps checkpoints, delivers again what is not acknowledged.

Theory of operation. All state is in the revive log (`records`), in the offsets of the groups, and
in the offset of CID_RMQ_SYS_REVIVE_GROUP: the progress in the revive log. `load` reads from there
when this broker becomes master. From then on this broker appends every record of the log itself, so
the tables are exact, and a handle that they do not know is rejected.

* A pop appends a checkpoint, then the cursor moves (`cursors`). No crash can come between the two:
  one pass changes memory and the mapped log.
* An acknowledgement is appended, and answered when it is as safe as a message would be.
* When the invisible time is over, the messages without an acknowledgement are put into the retry
  topic of the group with one delivery more in their count, and the checkpoint is acknowledged in
  the log, in one pass. A crash between the two delivers messages twice and loses none. After
  `retryMaxTimes` redeliveries a message goes to the group's dead letter topic.

RocketMQ has a timer between: it scans the log every second and compares acknowledgements with
checkpoints when they are due. Here the table knows the next due time and nothing is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pop.cursors import Cursor, PopCursors, QueueKey
from trioha.broker.pop.handles import normal_topic
from trioha.broker.pop.in_flight import AckOutcome, CheckpointKey, InFlight, PopCheckpoint
from trioha.broker.pop.live_records import LiveRecords
from trioha.broker.pop.order import OrderBatch, OrderKey
from trioha.broker.pop.records import (
    REVIVE_QUEUES,
    Acked,
    RequestMode,
    ReviveLogWriter,
    read_entry,
)
from trioha.broker.pop.redelivery import Redelivery
from trioha.broker.put_message import PutOutcome, PutPipeline
from trioha.broker.retry_pause import RETRY_MS, RetryPause
from trioha.broker.topics import TopicTable
from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore, PutMessage
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.names import REVIVE_GROUP
from trioha.wire.record import Record, RecordError, decode_record

SPAN_MAX: Final = 32_768
"""Records between the oldest one that is needed and the end of the revive log. A broker that takes
over reads that many first: 0.5 s."""
PROGRESS_MS: Final = 5_000
"""Interval in which consumers commit, too."""
MODES_MAX: Final = 10_000


class PopService:
    """Messages that the groups of one broker have popped and not acknowledged."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        topics: TopicTable,
        groups: GroupTable,
        pipeline: PutPipeline,
        writer: ReviveLogWriter,
        redelivery: Redelivery,
        *,
        by_quorum: bool,
    ) -> None:
        self.in_flight = InFlight()
        self.orders: dict[OrderKey, OrderBatch] = {}
        self.modes: dict[tuple[str, str], RequestMode] = {}
        self.cursors = PopCursors(store, offsets, by_quorum=by_quorum)
        self.live = LiveRecords()
        self.writer = writer
        self.redelivery = redelivery
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._pipeline = pipeline
        self._noted: tuple[int, int] | None = None
        """Progress in the revive log, and the end of the log that must be safe before it counts."""
        self._progress_due_ms: int | None = None
        self._pause = RetryPause()
        self._foreign: list[PopCheckpoint] = []
        """Live checkpoints that a Java broker has written into other queues: to be copied."""

    # Taking over.

    def forget(self) -> None:
        """Forget everything: another broker is master."""
        self.in_flight = InFlight()
        self.orders.clear()
        self.modes.clear()
        self.cursors.clear()
        self.live = LiveRecords()
        self._foreign.clear()
        self._noted = self._progress_due_ms = None

    def load(self) -> None:
        """Read what is in flight. The queues must be up to the log; blocks for up to a second."""
        self.forget()
        if self._pipeline.role is BrokerRole.SLAVE:
            return
        cursors: dict[QueueKey, int] = {}
        for queue_id in range(REVIVE_QUEUES):
            for record in self._records(queue_id):
                self._load_entry(record, queue_id, cursors)
        self.live.end = self._store.appended_max_offset(self.writer.topic, 0)
        for key, next_offset in cursors.items():
            if next_offset != self._offsets.query(key.group, key.topic, key.queue_id):
                self.cursors.resume(key, next_offset)
        for batch in list(self.orders.values()):
            self._resume_order(batch)

    def _records(self, queue_id: int) -> Iterator[Record]:
        topic = self.writer.topic
        end = self._store.appended_max_offset(topic, queue_id)
        begin = max(0, self._offsets.query(REVIVE_GROUP, topic, queue_id))
        if begin > end:
            begin = 0  # the progress belongs to another log
        for offset in range(max(begin, self._store.min_offset_in_queue(topic, queue_id)), end):
            record = self.record_at(topic, queue_id, offset)
            if record is not None:
                yield record

    def _load_entry(self, record: Record, queue_id: int, cursors: dict[QueueKey, int]) -> None:
        entry = read_entry(record)
        match entry:
            case PopCheckpoint(key=key):
                queue = QueueKey(key.topic, key.group, key.queue_id)
                if queue not in cursors:
                    cursors[queue] = self._offsets.query(key.group, key.topic, key.queue_id)
                if not entry.offsets or cursors[queue] == entry.cursor_before:
                    cursors[queue] = entry.next_offset
                if entry.offsets:
                    older = self.in_flight.find(key)
                    if older is not None and older.offsets == entry.offsets:
                        entry.acked |= older.acked
                    self.in_flight.add(entry)
                    if queue_id:
                        self._foreign.append(entry)
                    elif not entry.is_done:
                        self.live.put(key, record.queue_offset)
            case Acked(key=key):
                for offset in entry.offsets:
                    self.in_flight.ack(key, offset)
                if self.in_flight.find(key) is None:
                    self.live.drop(key)
            case OrderBatch(key=key):
                self.orders[key] = entry
                self.live.put(key, record.queue_offset)
            case RequestMode(key=key):
                self.modes[key] = entry
                self.live.put(key, record.queue_offset)

    def _resume_order(self, batch: OrderBatch) -> None:
        key = batch.key
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        if committed in batch.offsets and not batch.is_done:
            # The acknowledgement may be in the log, and the offset not.
            with suppress(CommandError):
                self._offsets.advance(key.group, key.topic, key.queue_id, batch.next_offset)
        else:
            self.forget_order(batch)

    # The log.

    def record_at(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """Return the record at an offset of a queue, whether or not readers may see it yet."""
        entry = self._store.appended_entry(topic, queue_id, offset)
        view = None if entry is None else self._store.appended_record(entry[0])
        try:
            return None if view is None else decode_record(view)
        except RecordError:
            return None

    def _append(self, message: PutMessage, wait: bool, instant: Instant) -> PutOutcome:
        """Append to the revive log.

        Errors: CommandError when the store takes nothing: nothing has changed then.
        """
        self._topics.create_internal(
            self.writer.topic, REVIVE_QUEUES, Perm.READ | Perm.WRITE, instant.wall_ms
        )
        outcome = self._pipeline.put(message, wait=wait, instant=instant)
        if outcome.result is None:
            raise CommandError(outcome.code, outcome.remark or outcome.code.name)
        self.live.appended(outcome.result.queue_offset)
        if self._progress_due_ms is None:
            self._progress_due_ms = instant.wall_ms + PROGRESS_MS
        return outcome

    # Cursors.

    def cursor(self, key: QueueKey, begin: int, instant: Instant) -> Cursor:
        """Return the cursor of a queue; `begin` is where a group without an offset begins.

        Errors: CommandError when the store or the table of offsets takes nothing new.
        """
        cursor = self.cursors.get(key)
        if cursor is not None:
            return cursor
        if self.cursors.is_moved(key):
            committed = self._offsets.query(key.group, key.topic, key.queue_id)
            if committed < 0:
                for gone in self.in_flight.forget_queues(key.topic, key.group):
                    self.live.drop(gone.key)
            self.moved(key, begin if committed < 0 else committed, instant)
        return self.cursors.begin(key, begin)

    def moved(self, key: QueueKey, offset: int, instant: Instant) -> None:
        """Note in the log that an operator has set a group's offset.

        Errors: CommandError when the store takes nothing.
        """
        mark = PopCheckpoint(
            CheckpointKey(*key, offset, instant.wall_ms), 0, (), next_offset=offset
        )
        self._append(self.writer.checkpoint(mark, instant.wall_ms), False, instant)

    def note_moves(self, instant: Instant) -> None:
        """Note in the log which groups an operator has moved just now.

        Errors: CommandError when the store takes nothing.
        """
        for key in self.cursors.moved_keys():
            committed = self._offsets.query(key.group, key.topic, key.queue_id)
            if committed >= 0:
                self.cursor(key, committed, instant)

    def pass_over(self, key: QueueKey, next_offset: int) -> None:
        """Move the cursor over messages that the group does not want, or that are gone."""
        self.cursors.move(key, next_offset, is_logged=False)

    # Checkpoints.

    def take(
        self,
        key: QueueKey,
        offsets: tuple[int, ...],
        next_offset: int,
        invisible_ms: int,
        instant: Instant,
    ) -> bool:
        """Append a checkpoint for these messages and move the cursor behind them.

        Returns False, and changes nothing, if a checkpoint has the same identity.
        Errors: CommandError when the store takes nothing: nothing has changed then.
        """
        cursor = self.cursors.get(key)
        assert cursor is not None, key
        checkpoint = PopCheckpoint(
            CheckpointKey(*key, offsets[0], instant.wall_ms),
            invisible_ms,
            offsets,
            cursor_before=cursor.logged,
            next_offset=next_offset,
        )
        if self.in_flight.is_known(checkpoint.key):
            return False
        self._add(checkpoint, False, instant)
        self.cursors.move(key, next_offset, is_logged=True)
        return True

    def ack(
        self, key: CheckpointKey, offsets: list[int], wait: bool, instant: Instant
    ) -> PutOutcome | None:
        """Acknowledge messages of one checkpoint; None if each of them already was.

        Errors: CommandError(NO_MESSAGE) when the handle is stale or forged; the store's codes.
        """
        outcomes = {offset: self.in_flight.look_up(key, offset) for offset in offsets}
        taken = [offset for offset, outcome in outcomes.items() if outcome is AckOutcome.TAKEN]
        if not taken:
            if AckOutcome.REPEATED in outcomes.values():
                return None
            raise stale_handle(key)
        checkpoint = self.in_flight.find(key)
        assert checkpoint is not None, key
        message = self.writer.acked(Acked(key, tuple(taken)), checkpoint.due_ms, instant.wall_ms)
        outcome = self._append(message, wait, instant)
        for offset in taken:
            self.in_flight.ack(key, offset)
        if checkpoint.is_done:
            self.live.drop(key)
        return outcome

    def change_invisible(
        self, key: CheckpointKey, offset: int, invisible_ms: int, instant: Instant
    ) -> tuple[CheckpointKey, PutOutcome]:
        """Give one message a checkpoint of its own, from now on; return its key.

        Errors: CommandError(NO_MESSAGE) when the handle is stale, forged, or acknowledged.
        """
        if self.in_flight.look_up(key, offset) is not AckOutcome.TAKEN:
            raise stale_handle(key)
        queue = QueueKey(key.topic, key.group, key.queue_id)
        checkpoint = PopCheckpoint(
            self._free_key(queue, offset, instant.wall_ms), invisible_ms, (offset,)
        )
        self._add(checkpoint, False, instant)
        outcome = self.ack(key, [offset], True, instant)
        assert outcome is not None, key
        self.in_flight.moved(key, offset)
        return checkpoint.key, outcome

    def _free_key(self, queue: QueueKey, start_offset: int, wall_ms: int) -> CheckpointKey:
        key = CheckpointKey(*queue, start_offset, wall_ms)
        while self.in_flight.is_known(key):
            key = key._replace(pop_time=key.pop_time + 1)
        return key

    def _add(self, checkpoint: PopCheckpoint, wait: bool, instant: Instant) -> None:
        message = self.writer.checkpoint(checkpoint, instant.wall_ms)
        outcome = self._append(message, wait, instant)
        self._live_at(checkpoint.key, outcome)
        self.in_flight.add(checkpoint)

    def _live_at(self, key: object, outcome: PutOutcome) -> None:
        assert outcome.result is not None
        self.live.put(key, outcome.result.queue_offset)

    # Ordered queues.

    def keep_order(self, batch: OrderBatch, wait: bool, instant: Instant) -> PutOutcome:
        """Append the batch of an ordered queue as it is now.

        Errors: CommandError when the store takes nothing.
        """
        outcome = self._append(self.writer.order(batch, instant.wall_ms), wait, instant)
        self._live_at(batch.key, outcome)
        self.orders[batch.key] = batch
        return outcome

    def order_of(self, key: OrderKey) -> OrderBatch | None:
        """Return the batch of an ordered queue; None if an operator has moved the group since."""
        batch = self.orders.get(key)
        if batch is None:
            return None
        if self._offsets.query(key.group, key.topic, key.queue_id) != batch.next_offset:
            self.forget_order(batch)
            return None
        return batch

    def forget_order(self, batch: OrderBatch) -> None:
        if self.orders.get(batch.key) is batch:
            del self.orders[batch.key]
            self.live.drop(batch.key)

    # Modes.

    def mode_of(self, topic: str, group: str) -> RequestMode:
        """Return how the members of a group receive a topic."""
        return self.modes.get((topic, group)) or RequestMode(topic, group)

    def set_mode(self, mode: RequestMode, instant: Instant) -> PutOutcome:
        """Keep how the members of a group receive a topic.

        Errors: CommandError when the store takes nothing, or there are too many.
        """
        if mode.key not in self.modes and len(self.modes) >= MODES_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"the broker keeps {MODES_MAX} request modes"
            )
        outcome = self._append(self.writer.mode(mode, instant.wall_ms), True, instant)
        self._live_at(mode.key, outcome)
        self.modes[mode.key] = mode
        return outcome

    # Time.

    def next_deadline(self, wall_ms: int) -> int | None:
        """Return the wall time at which `run_due` has something to do, possibly past; or None."""
        if self._pipeline.role is BrokerRole.SLAVE:
            return None
        found = [
            due_ms
            for due_ms in (self.in_flight.next_due_ms, self._progress_due_ms)
            if due_ms is not None
        ]
        if self._foreign or self._is_too_long:
            found.append(wall_ms)
        return self._pause.after(min(found, default=None), wall_ms)

    def run_due(self, instant: Instant, budget: int) -> None:
        """Deliver again what is due, `budget` checkpoints at most; keep the log short."""
        due_ms = self.next_deadline(instant.wall_ms)
        if due_ms is None or due_ms > instant.wall_ms:
            return
        try:
            self._copy_needed(instant, budget)
            for _ in range(budget):
                checkpoint = self.in_flight.take_due(instant.wall_ms)
                if checkpoint is None:
                    break
                try:
                    self._revive(checkpoint, instant)
                except CommandError:
                    self.in_flight.postpone(checkpoint, instant.wall_ms + RETRY_MS)
                    raise
        except CommandError:
            self._pause.begin(instant.wall_ms)
        self._advance(instant.wall_ms)

    def _revive(self, checkpoint: PopCheckpoint, instant: Instant) -> None:
        key = checkpoint.key
        topic = normal_topic(key.topic, key.group)
        group = self._groups.get(key.group)
        open_offsets = checkpoint.open_offsets
        if group is not None and self._topics.get(topic) is not None:
            for offset in open_offsets:
                record = self.record_at(key.topic, key.queue_id, offset)
                if record is not None and offset not in checkpoint.revived:
                    self.redelivery.redeliver(record, topic, group, key.pop_time, instant)
                    checkpoint.revived.add(offset)
        acked = Acked(key, tuple(open_offsets))
        self._append(self.writer.acked(acked, checkpoint.due_ms, instant.wall_ms), False, instant)
        # From here on a handle of the checkpoint is stale.
        checkpoint.acked = 0
        self.in_flight.finish(checkpoint)
        self.live.drop(key)

    @property
    def _is_too_long(self) -> bool:
        # With many needed records most of the log is theirs: copies would not make it shorter.
        return self.live.span > max(SPAN_MAX, 2 * len(self.live))

    def _copy_needed(self, instant: Instant, budget: int) -> None:
        """Append copies of the oldest records that are needed; they take the place of the old."""
        while self._foreign and budget:
            checkpoint = self._foreign.pop()
            if self.in_flight.find(checkpoint.key) is checkpoint:
                self._copy(checkpoint, instant)
            budget -= 1
        while self._is_too_long and budget:
            first = self.live.first()
            assert first is not None
            key: object = first[1]
            if isinstance(key, CheckpointKey):
                live = self.in_flight.find(key)
                assert live is not None, key
                self._copy(live, instant)
            elif isinstance(key, OrderKey):
                self.keep_order(self.orders[key], False, instant)
            else:
                assert isinstance(key, tuple)
                message = self.writer.mode(self.modes[key], instant.wall_ms)
                self._live_at(key, self._append(message, False, instant))
            budget -= 1

    def _copy(self, checkpoint: PopCheckpoint, instant: Instant) -> None:
        checkpoint.cursor_before = -1
        message = self.writer.checkpoint(checkpoint, instant.wall_ms)
        self._live_at(checkpoint.key, self._append(message, False, instant))

    def _advance(self, wall_ms: int) -> None:
        """Commit the progress that was noted a while ago, if the log is safe up to there."""
        if self._progress_due_ms is None or wall_ms < self._progress_due_ms:
            return
        self._progress_due_ms = None
        if self._noted is not None:
            progress, log_end = self._noted
            if self.cursors.safe_offset < log_end or self.cursors.has_waiting:
                self._progress_due_ms = wall_ms + PROGRESS_MS
                return
            self._noted = None
            self._commit_progress(0, progress)
        if self.live.progress > self._offsets.query(REVIVE_GROUP, self.writer.topic, 0) + 1:
            self._noted = self.live.progress, self._store.max_phy_offset
            self._progress_due_ms = wall_ms + PROGRESS_MS
        if not self._foreign:
            for queue_id in range(1, REVIVE_QUEUES):
                end = self._store.appended_max_offset(self.writer.topic, queue_id)
                if end > 0:
                    self._commit_progress(queue_id, end)

    def _commit_progress(self, queue_id: int, progress: int) -> None:
        # Java's broker reads on behind the offset. Rejected if the table of offsets is full: then
        # the next master reads more.
        with suppress(CommandError):
            self._offsets.commit(REVIVE_GROUP, self.writer.topic, queue_id, max(0, progress - 1))


def stale_handle(key: CheckpointKey) -> CommandError:
    """Return the answer to a handle that names no message in flight."""
    return CommandError(
        ResponseCode.NO_MESSAGE,
        f"no message of {key.topic:.127} queue {key.queue_id} is in flight for group "
        f"{key.group:.80} by this receipt handle: its invisible time is over, or the handle is not "
        "of this group and topic",
    )
