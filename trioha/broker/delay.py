"""Delayed delivery by levels (ScheduleMessageService.java).

Theory of operation. A message with DELAY > 0 is stored in SCHEDULE_TOPIC_XXXX, queue = level - 1;
its consume queue entry carries the delivery time instead of a tags code. All messages of a level
wait equally long, so a level's queue is in order of delivery and only its head needs a deadline.
When the head is due it is put again, into the topic and queue it was meant for, and the level's
offset moves on.

RocketMQ scans every level ten times a second. Here an idle level is told of its first entry by the
dispatcher (`on_scheduled`), and the shell sleeps until `next_deadline`.

Offsets reach delayOffset.json every 10 s, so after a crash messages of the last seconds may be
delivered twice; none is lost. A slave holds the same queues but delivers nothing: it gets what its
master delivered as ordinary records.
"""

from __future__ import annotations

import attrs

from trioha.broker.message_fields import copied_message
from trioha.broker.metadata_ops import DelaySet
from trioha.broker.put_message import PutPipeline
from trioha.config import BrokerRole
from trioha.errors import ConfigError
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore, PutMessage
from trioha.store.store_config import parse_delay_levels
from trioha.wire import fastjson
from trioha.wire.bodies import delay_offset_table_from_dict, delay_offset_table_to_dict
from trioha.wire.codes import ResponseCode
from trioha.wire.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from trioha.wire.properties import DELAY, REAL_QID, REAL_TOPIC, encode_properties
from trioha.wire.record import Record, RecordError, decode_record

_CLOCK_STEP_MS = 60_000  # steps back up to this only make messages late by as much
_RETRY_PAUSE_MS = 10_000  # DELAY_FOR_A_PERIOD: how long a level rests when the store refuses


@attrs.frozen
class DelayLevels:
    """The delays of levels 1..n in milliseconds."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Read messageDelayLevel. Errors: ConfigError when it is not like ``1s 5m 2h``."""
        delays_ms = parse_delay_levels(text)
        if not delays_ms:
            raise ConfigError("messageDelayLevel is empty; the default has 18 levels")
        return cls(delays_ms)

    def divert(
        self, message: PutMessage, properties: dict[str, str], level: int, wall_ms: int
    ) -> None:
        """Turn a message into a delayed one; too high a level counts as the highest."""
        level = min(level, len(self.delays_ms))
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = message.topic
        properties[REAL_QID] = str(message.queue_id)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1
        message.tags_code = wall_ms + self.delays_ms[level - 1]
        message.properties = encode_properties(properties)


@attrs.define(eq=False)
class _Level:
    """One queue of the schedule topic and the progress of its delivery."""

    queue_id: int
    delay_ms: int
    offset: int = 0
    head_ms: int | None = None
    """Time at which the entry at `offset` is due; None without an entry."""
    paused_until_ms: int = 0

    def due_ms(self, wall_ms: int) -> int | None:
        head_ms = self.head_ms
        if head_ms is None:
            return None
        if head_ms > wall_ms + self.delay_ms + _CLOCK_STEP_MS:
            # The clock was set back a long way. RocketMQ delivers at once rather than wait for it
            # to catch up; it does so for a single millisecond, too, which would make a message of
            # an hour's delay arrive at once whenever NTP corrects the clock.
            head_ms = wall_ms
        if wall_ms < self.paused_until_ms <= wall_ms + _RETRY_PAUSE_MS:
            return max(head_ms, self.paused_until_ms)
        return head_ms


class DelaySchedule:
    """Delivers what is due.

    Call `refresh` once the store is open and caught up, and when a slave has become master.
    """

    def __init__(
        self,
        levels: DelayLevels,
        store: MessageStore,
        pipeline: PutPipeline,
        events: EventSink,
    ) -> None:
        self._levels = [_Level(index, delay) for index, delay in enumerate(levels.delays_ms)]
        self._store = store
        self._pipeline = pipeline
        self._events = events
        self.changed: dict[int, int] = {}
        """Level -> offset, of those moved by us since the owner last took them."""
        self.dirty = False
        """Offsets have moved since they were saved; `ConfigPersist` resets it."""
        # Master's progress, until our log holds the messages that it counts as delivered.
        self._ahead: DelaySet | None = None

    def refresh(self) -> None:
        """Look at the head of every level."""
        if self._pipeline.role is BrokerRole.SLAVE:
            # The master's offsets may be ahead of our log, so a slave must not correct them.
            return
        self._catch_up()
        # Messages that another master delivered and this node never got are delivered again.
        self._ahead = None
        for level in self._levels:
            maximum = self._store.max_offset_in_queue(SCHEDULE_TOPIC, level.queue_id)
            if level.offset > maximum:
                # A crash took the queue's end, or the file is another store's.
                self._move(level, maximum)
            self._look(level)

    def cut_back(self, level_queue_id: int, offset: int) -> None:
        """Note that the level's queue was cut: no message beyond its new end was delivered."""
        for level in self._levels:
            if level.queue_id == level_queue_id and level.offset > offset:
                level.offset, level.head_ms = offset, None
                self.dirty = True

    def deliveries_cut(self, since_wall_ms: int) -> None:
        """Note that the log was cut, and with it all deliveries from that time on.

        Its entries are due again, and a few more that were delivered late. If this node is promoted
        before its new master has told its progress, some messages are delivered twice.
        """
        for level in self._levels:
            while level.offset > 0:
                entry = self._store.consume_queue_entry(
                    SCHEDULE_TOPIC, level.queue_id, level.offset - 1
                )
                if entry is None or entry[2] < since_wall_ms - _RETRY_PAUSE_MS:
                    break
                level.offset, level.head_ms = level.offset - 1, None
                self.dirty = True

    def on_scheduled(self, level_queue_id: int) -> None:
        """Note that a delayed message became readable; only an idle level looks at its queue."""
        if 0 <= level_queue_id < len(self._levels):
            level = self._levels[level_queue_id]
            if level.head_ms is None and self._pipeline.role is not BrokerRole.SLAVE:
                self._look(level)

    def next_deadline(self, wall_ms: int) -> int | None:
        """Wall clock milliseconds of the next delivery, possibly past; None: nothing waits."""
        if self._pipeline.role is BrokerRole.SLAVE:
            return None
        nearest: int | None = None
        for level in self._levels:
            due_ms = level.due_ms(wall_ms)
            if due_ms is not None and (nearest is None or due_ms < nearest):
                nearest = due_ms
        return nearest

    def run_due(self, instant: Instant, budget: int) -> bool:
        """Deliver what is due, about `budget` messages at most; True when more is due already.

        The budget is shared by the levels that have something due, so that a flood in one of
        them does not hold up the others.
        """
        if self._pipeline.role is BrokerRole.SLAVE:
            return False
        due = [level for level in self._levels if self._is_due(level, instant)]
        for level in due:
            self._deliver(level, instant, max(1, budget // len(due)))
        return any(self._is_due(level, instant) for level in due)

    def soon(self, until_ms: int, count: int) -> list[tuple[int, int]]:
        """Return offsets in the log and sizes of the messages that are due until then.

        They are at most `count` of each level.
        """
        found = []
        for level in self._levels:
            if level.head_ms is None or level.head_ms > until_ms:
                continue
            for offset in range(level.offset, level.offset + count):
                entry = self._store.consume_queue_entry(SCHEDULE_TOPIC, level.queue_id, offset)
                if entry is None or entry[2] > until_ms:
                    break
                found.append(entry[:2])
        return found

    def backlog(self) -> dict[int, tuple[int, int]]:
        """Per level: offset delivered up to, offset of the queue's end."""
        return {
            level.queue_id + 1: (
                level.offset,
                self._store.max_offset_in_queue(SCHEDULE_TOPIC, level.queue_id),
            )
            for level in self._levels
        }

    def encode(self) -> bytes:
        """The offsets as delayOffset.json holds them and request 45 answers them."""
        return fastjson.dumps(delay_offset_table_to_dict(self.offsets()))

    def offsets(self) -> dict[int, int]:
        """Return the progress by level, of levels that have delivered anything."""
        self._catch_up()
        return {level.queue_id + 1: level.offset for level in self._levels if level.offset}

    def take_changed(self) -> DelaySet:
        """Return the deliveries since the last call; all of them lie below the log's end."""
        changed, self.changed = self.changed, {}
        return DelaySet(changed, self._store.max_phy_offset)

    def follow(self, op: DelaySet) -> None:
        """Take over the master's progress, once our log holds the messages that it delivered."""
        self._catch_up()
        if op.log_end > self._store.max_phy_offset:
            # A link has begun, and its log is on the way; or a power loss took the log's end.
            before = self._ahead.offsets if self._ahead is not None else {}
            self._ahead = DelaySet({**before, **op.offsets}, op.log_end)
        else:
            self._take(op)

    def follow_all(self, op: DelaySet) -> None:
        """Do as `follow`, with every level that is not mentioned at its beginning."""
        every = {level.queue_id + 1: 0 for level in self._levels}
        self.follow(DelaySet({**every, **op.offsets}, op.log_end))

    def load(self, data: bytes) -> None:
        """Take over delayOffset.json, the master's included; levels we lack are ignored.

        Errors: RemoteProtocolError when it is not such a table.
        """
        offsets = delay_offset_table_from_dict(fastjson.loads(data))
        for level in self._levels:
            offset = offsets.get(level.queue_id + 1)
            if offset is not None and offset >= 0:
                level.offset = offset
                level.head_ms = None

    def _catch_up(self) -> None:
        ahead = self._ahead
        if ahead is not None and ahead.log_end <= self._store.max_phy_offset:
            self._ahead = None
            self._take(ahead)

    def _take(self, op: DelaySet) -> None:
        for level in self._levels:
            offset = op.offsets.get(level.queue_id + 1)
            if offset is not None:
                level.offset = offset
                level.head_ms = None
                self.dirty = True

    def _is_due(self, level: _Level, instant: Instant) -> bool:
        due_ms = level.due_ms(instant.wall_ms)
        return due_ms is not None and due_ms <= instant.wall_ms

    def _look(self, level: _Level) -> None:
        """Learn when the level's head is due."""
        store = self._store
        queue_id = level.queue_id
        entry = store.consume_queue_entry(SCHEDULE_TOPIC, queue_id, level.offset)
        if entry is None:
            minimum = store.min_offset_in_queue(SCHEDULE_TOPIC, queue_id)
            if level.offset < minimum:
                # Retention has deleted the head.
                self._move(level, minimum)
                entry = store.consume_queue_entry(SCHEDULE_TOPIC, queue_id, minimum)
        level.head_ms = None if entry is None else entry[2]

    def _deliver(self, level: _Level, instant: Instant, count: int) -> None:
        while count > 0 and self._is_due(level, instant):
            entry = self._store.consume_queue_entry(SCHEDULE_TOPIC, level.queue_id, level.offset)
            if entry is not None and not self._put_again(level, entry[0], instant):
                level.paused_until_ms = instant.wall_ms + _RETRY_PAUSE_MS
                return
            self._move(level, level.offset + 1)
            count -= 1
            self._look(level)

    def _move(self, level: _Level, offset: int) -> None:
        level.offset = offset
        self.changed[level.queue_id + 1] = offset
        self.dirty = True

    def _put_again(self, level: _Level, phy_offset: int, instant: Instant) -> bool:
        """Deliver the record at `phy_offset`, or give it up for good; False: try again later."""
        view = self._store.appended_record(phy_offset)
        if view is None:
            self._skip(level, "its record is gone from the log")
            return True
        try:
            record = decode_record(view)
            message = delivered_message(record)
        except (RecordError, ValueError) as error:
            self._skip(level, str(error))
            return True
        outcome = self._pipeline.put(message, wait=False, instant=instant)
        if outcome.code is ResponseCode.MESSAGE_ILLEGAL:
            self._skip(level, outcome.remark or "refused")
            return True
        return outcome.is_stored

    def _skip(self, level: _Level, reason: str) -> None:
        self._events.event(
            "delivery_skipped", level=level.queue_id + 1, index=level.offset, reason=reason
        )


def delivered_message(record: Record) -> PutMessage:
    """Return the message for consumers of a delayed record; its property string stays.

    Errors: ValueError when the record does not say where it belongs.
    """
    properties = record.properties
    topic = properties.get(REAL_TOPIC, "")
    if not topic or topic == TRANS_HALF_TOPIC:
        raise ValueError(f"REAL_TOPIC is {topic!r}")
    queue_id = int(properties.get(REAL_QID, ""))
    if not 0 <= queue_id <= 0x7FFFFFFF:
        raise ValueError(f"REAL_QID is {queue_id}")
    return copied_message(record, topic, queue_id, properties, encoded=record.raw_properties)
