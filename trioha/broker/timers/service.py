"""Delivers timer messages when they are due, and keeps them until then.

Theory of operation. The queue `rmq_sys_wheel_timer`, which the store keeps and recovers with the
log, is the only state: `TimerWindow` holds its nearest entries, and `TimerProgress` the progress
in it. A master delivers; a slave holds the same queue, and begins from the same progress when
it is promoted.

`begin` is the first entry that may still be pending. A message that waits there for long is
*rolled*: a copy goes to the end of the queue, and the entry is done. That happens before the log's
retention gets to it, and whenever the entries behind it are many and most of them done. So any
delay may be longer than the log is kept, and a refill reads at most `SPAN_FACTOR` entries for one
that is pending.

A cancellation comes first in its slot. Its key is remembered until the slot is over, and neither
`begin` nor the progress of a new master leaves it behind before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.put_message import PutPipeline
from trioha.broker.retry_pause import RetryPause
from trioha.broker.timers.progress import TimerPlace, TimerProgress
from trioha.broker.timers.records import delivered_message, rolled_message
from trioha.broker.timers.window import (
    CAPACITY,
    ENTRY_BYTES,
    EntryReader,
    Refill,
    TimerWindow,
    due_of,
    key_of,
    offset_of,
)
from trioha.config import BrokerConfig, BrokerRole
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore
from trioha.wire.codes import ResponseCode
from trioha.wire.names import TIMER_TOPIC
from trioha.wire.properties import REAL_TOPIC, UNIQ_KEY, Property
from trioha.wire.record import Record, RecordError, decode_record
from trioha.wire.timers import (
    CANCEL_BIT,
    CODE_MIN,
    SLOT_MS,
    TimerCheckpoint,
    delete_key,
    timer_code,
)

PIECE: Final = 32_768
"""Entries that are read at a time, some 3 ms."""
SPAN_MIN: Final = 262_144
SPAN_FACTOR: Final = 4
LOOK_MS: Final = 60_000
"""Time until the beginning of the queue is looked at again, unless it is known when to roll it."""
_ALL: Final = 1 << 119
_UNSEEN_MS: Final = 200


class Timers:
    """The timer messages of one broker; `next_deadline` says when to call `run_due`.

    Call `load` once tables and queues are up to the log and this broker is master.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        pipeline: PutPipeline,
        offsets: ConsumerOffsetTable,
        events: EventSink,
        capacity: int = CAPACITY,
    ) -> None:
        self.config = config
        self.pending_count = 0
        """Messages and cancellations that are not due yet; exact once `is_loaded`."""
        # Counted since the start.
        self.delivered_count = self.cancelled_count = self.rolled_count = 0
        self.begin = self.end = 0
        """Offsets of the first entry that may be pending, and behind the last one seen."""
        self.progress = TimerProgress(store, offsets)
        self._store = store
        self._pipeline = pipeline
        self._events = events
        self._capacity = capacity
        self._reader = EntryReader(self._code_at)
        self._window = TimerWindow(capacity)
        self._refill: Refill | None = None
        self._position = self._found_end = 0
        self._place = TimerPlace()
        self._cancelled: dict[str, tuple[int, int]] = {}  # key -> slot, queue offset
        self._active = False
        self._roll_ms: int | None = None
        self._pause = RetryPause()

    @property
    def is_loaded(self) -> bool:
        """This broker delivers, and has read all that is pending."""
        return self._active and (self._refill is None or not self._refill.is_first)

    @property
    def next_due_ms(self) -> int | None:
        """Time of the next delivery, or None."""
        key = self._window.next_key
        return None if key is None else due_of(key)

    def nearest(self, count: int) -> list[tuple[int, int, Record]]:
        """Return time, queue offset and record of the messages that are due next."""
        found = []
        for key in self._window.nearest(count):
            record = self._record_at(offset_of(key))
            if record is not None and offset_of(key) >= self.begin:
                found.append((due_of(key), offset_of(key), record))
        return found

    def soon(self, until_ms: int, count: int) -> list[tuple[int, int]]:
        """Return offsets in the log and sizes of some messages that are due until then."""
        found = []
        for key in self._window.until(key_of(until_ms + 1, 0) - 1, count):
            entry = self._store.consume_queue_entry(TIMER_TOPIC, 0, offset_of(key))
            if entry is not None and offset_of(key) >= self.begin:
                found.append(entry[:2])
        return found

    # Taking over.

    def adopt(self, checkpoint: TimerCheckpoint) -> None:
        """Begin where RocketMQ's broker has stopped, unless this broker was further."""
        next_key = key_of(checkpoint.read_time_ms + 1, 0)
        self.progress.foreign = TimerPlace(0, next_key, checkpoint.queue_offset)

    def checkpoint(self, wall_ms: int) -> TimerCheckpoint | None:
        """Return where RocketMQ's broker would have to begin; None if that is not known here.

        Messages that were delivered since the first that waits would come again.
        """
        if not self.is_loaded or not self.end:
            return None
        return TimerCheckpoint(wall_ms // SLOT_MS * SLOT_MS, self.begin)

    def follow(self) -> None:
        """Forget everything: another broker is master."""
        self.forget()
        self.progress.follow()

    def forget(self) -> None:
        """Forget what was read of the queue."""
        self._active = False
        self._window = TimerWindow(self._capacity)
        self._refill = self._roll_ms = None
        self._cancelled.clear()
        self.pending_count = self.begin = self.end = 0
        self.progress.forget()

    def load(self) -> None:
        """Begin to read what is pending. `run_due` goes on if there is much."""
        self.forget()
        if self._pipeline.role is BrokerRole.SLAVE:
            self.progress.follow()
            return
        self._active = True
        place = self.progress.load()
        self._found_end = self._store.appended_max_offset(TIMER_TOPIC, 0)
        self.begin = max(
            min(place.begin, self._found_end), self._store.min_offset_in_queue(TIMER_TOPIC, 0)
        )
        self.end = self._position = self.begin
        self._place = place
        self._refill = Refill(self._reader, self._capacity, place.next_key, place.end)
        self._read_on()

    def on_dispatch(self, max_offset: int, codes: Sequence[int]) -> None:
        """Note that timer messages became readable."""
        first = max_offset - len(codes)
        if not self.is_loaded or first != self.end:
            return  # `run_due` reads them from the queue
        for offset, code in enumerate(codes, first):
            self._take(offset, code)
        self.end = max_offset

    def cancel_soon(self, key: str, slot_ms: int, offset: int, wall_ms: int) -> None:
        """Note a cancellation that was appended: readers may see it only after its message."""
        if self.is_loaded and slot_ms <= wall_ms + SLOT_MS:
            self._cancelled[key] = slot_ms, offset

    # On time.

    def next_deadline(self, wall_ms: int) -> int | None:
        """Return the wall time at which `run_due` has something to do, possibly past; or None."""
        if not self._active or self._pipeline.role is BrokerRole.SLAVE:
            return None
        found = [
            time_ms
            for time_ms in (self.next_due_ms, self._roll_ms, self.progress.due_ms)
            if time_ms is not None
        ]
        if self._is_hidden:
            found.append(wall_ms + _UNSEEN_MS)
        elif (
            self._refill is not None
            or self._window.needs_refill
            or self._is_behind
            or (self.pending_count and self._roll_ms is None)
        ):
            found.append(wall_ms)
        elif self._store.appended_max_offset(TIMER_TOPIC, 0) > self.end:
            found.append(wall_ms + _UNSEEN_MS)  # readers see it later, perhaps without notice
        return self._pause.after(min(found, default=None), wall_ms)

    def run_due(self, instant: Instant, budget: int) -> None:
        """Deliver what is due, `budget` messages at most, and do what else there is to do."""
        wall_ms = instant.wall_ms
        due_ms = self.next_deadline(wall_ms)
        if due_ms is None or due_ms > wall_ms:
            return
        if self.is_loaded:
            self._catch_up()
            left = self._deliver(instant, budget)
            self._forget_cancellations()
            self._advance(instant, left)
            if self._refill is None and self._window.needs_refill:
                self._begin_refill()
        if self._refill is not None:
            self._read_on()
        if self.is_loaded:
            next_key = self._window.done_below
            self.progress.commit(self.begin, next_key, self.end, wall_ms)
            self.progress.advance(wall_ms)

    # Reading the queue.

    @property
    def _is_behind(self) -> bool:
        return self.is_loaded and self._store.max_offset_in_queue(TIMER_TOPIC, 0) > self.end

    @property
    def _is_hidden(self) -> bool:
        """Entries that this broker found when it became master are not shown to readers yet."""
        refill = self._refill
        if refill is None or not refill.is_first:
            return False
        # A queue that was cut since does not come back.
        found = min(self._found_end, self._store.appended_max_offset(TIMER_TOPIC, 0))
        return self._store.max_offset_in_queue(TIMER_TOPIC, 0) < found

    def _entries(self, offset: int, count: int = PIECE) -> memoryview:
        return self._store.queue_entries(TIMER_TOPIC, 0, offset, count)

    def _take(self, offset: int, code: int) -> None:
        if not CODE_MIN <= code < 2 * CANCEL_BIT:
            code = self._code_at(offset)
        if code:
            self.pending_count += 1
            self._window.add(key_of(code & ~CANCEL_BIT, offset))

    def _catch_up(self) -> None:
        """Read entries that came without a notice."""
        self.end = max(self.end, self._store.min_offset_in_queue(TIMER_TOPIC, 0))
        while self._is_behind and (entries := self._entries(self.end)):
            for key in self._reader.keys(entries, self.end, 0, _ALL):
                self.pending_count += 1
                self._window.add(key)
            self.end += len(entries) // ENTRY_BYTES

    def _begin_refill(self) -> None:
        place, limit = self._place, self._window.limit
        assert limit is not None
        self._refill = Refill(self._reader, self._capacity, place.next_key, place.end, limit)
        self._position = self.begin

    def _read_on(self) -> None:
        """Go on with the refill by one piece of the queue."""
        refill = self._refill
        assert refill is not None
        if self._window.limit != refill.limit:
            self._refill = None  # so many new messages came in that the window became smaller
            return
        queue_begin = self._store.min_offset_in_queue(TIMER_TOPIC, 0)
        self._position = max(self._position, self.begin, queue_begin)
        # A window in use takes in new entries by itself: none may come to it twice.
        stop = self._store.max_offset_in_queue(TIMER_TOPIC, 0) if refill.is_first else self.end
        entries = self._entries(self._position, min(PIECE, max(0, stop - self._position)))
        refill.take(entries, self._position)
        self._position += len(entries) // ENTRY_BYTES
        if refill.is_first:
            self.end = self._position
            self.pending_count = refill.pending_count
        if (not entries or self._position >= stop) and not self._is_hidden:
            refill.finish(self._window)
            self._refill = None

    def _code_at(self, offset: int) -> int:
        record = self._record_at(offset)
        return 0 if record is None else timer_code(record.properties)

    def _record_at(self, offset: int) -> Record | None:
        entry = self._store.consume_queue_entry(TIMER_TOPIC, 0, offset)
        view = None if entry is None else self._store.appended_record(entry[0])
        try:
            return None if view is None else decode_record(view)
        except RecordError:
            return None

    # Delivering.

    def _deliver(self, instant: Instant, budget: int) -> int:
        """Deliver what is due; return what is left of the budget."""
        window = self._window
        while budget > 0:
            key = window.next_key
            if key is None or due_of(key) > instant.wall_ms:
                break
            offset = offset_of(key)
            if offset >= self.begin:
                budget -= 1
                if not self._finish(key, offset, instant):
                    self._pause.begin(instant.wall_ms)
                    return 0
                self.pending_count -= 1
            window.pop()
        return budget

    def _finish(self, key: int, offset: int, instant: Instant) -> bool:
        """Deliver a message, or do what its cancellation says; False: try again later."""
        record = self._record_at(offset)
        if record is None:
            self._skip(offset, "its record is gone from the log")
            return True
        properties = record.properties
        cancels = properties.get(Property.TIMER_DEL_UNIQKEY)
        if cancels is not None:
            self._cancelled[cancels] = due_of(key), offset
            return True
        name = delete_key(properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, ""))
        if name in self._cancelled:
            self.cancelled_count += 1
            return True
        try:
            message = delivered_message(record, instant.wall_ms)
        except ValueError as error:
            self._skip(offset, str(error))
            return True
        outcome = self._pipeline.put(message, wait=False, instant=instant)
        if outcome.is_stored:
            self.delivered_count += 1
        elif outcome.code is ResponseCode.MESSAGE_ILLEGAL:
            self._skip(offset, outcome.remark or "refused")
            return True
        return outcome.is_stored

    def _forget_cancellations(self) -> None:
        if not self._cancelled:
            return
        key = self._window.next_key
        limit = self._window.limit
        if key is None:
            key = _ALL if limit is None else limit
        over_ms = due_of(key) - 2 * SLOT_MS
        self._cancelled = {
            name: place for name, place in self._cancelled.items() if place[0] >= over_ms
        }

    def _skip(self, offset: int, reason: str) -> None:
        self._events.event("timer_skipped", index=offset, reason=reason)

    # The beginning of the queue.

    def _advance(self, instant: Instant, budget: int) -> None:
        """Move `begin` over what is done, and roll what waits there for too long."""
        self._roll_ms = instant.wall_ms + LOOK_MS if self.pending_count else None
        next_key = self._window.done_below
        stop = min((place[1] for place in self._cancelled.values()), default=self.end)
        if not next_key:
            self.begin = max(self.begin, min(stop, self.end))
            return
        size = 1
        while self.begin < stop:
            entries = self._entries(self.begin, min(size, stop - self.begin))
            if not entries:
                if self._jump():
                    continue
                return
            following = self.begin + len(entries) // ENTRY_BYTES
            for key in self._reader.keys(entries, self.begin, next_key, _ALL):
                self.begin = offset_of(key)
                if not self._is_roll_due(instant.wall_ms):
                    return
                if budget <= 0:
                    self._roll_ms = instant.wall_ms
                    return
                budget -= 1
                if not self._roll(instant):
                    self._pause.begin(instant.wall_ms)
                    return
            self.begin = following
            size = min(PIECE, 8 * size)

    def _jump(self) -> bool:
        """Move `begin` to the queue's beginning, if retention has deleted the entries before it."""
        minimum = self._store.min_offset_in_queue(TIMER_TOPIC, 0)
        if minimum <= self.begin:
            return False
        self._events.event("timers_lost", index=self.begin, count=minimum - self.begin)
        self.begin = minimum
        return True

    def _is_roll_due(self, wall_ms: int) -> bool:
        span = self.end - self.begin
        if span > max(SPAN_MIN, SPAN_FACTOR * self.pending_count):
            return True
        stored_ms = self._store.store_time(TIMER_TOPIC, 0, self.begin)
        config = self.config
        window_ms = min(
            config.timer_roll_window_slot * config.timer_precision_ms,
            config.file_reserved_time * 3_600_000 * 2 // 3,
        )
        self._roll_ms = stored_ms + window_ms
        return self._roll_ms <= wall_ms

    def _roll(self, instant: Instant) -> bool:
        """Copy the first message to the end of the queue; False: try again later."""
        record = self._record_at(self.begin)
        if record is None:
            self._skip(self.begin, "its record is gone from the log")
        else:
            outcome = self._pipeline.put(rolled_message(record), wait=False, instant=instant)
            if outcome.code is ResponseCode.MESSAGE_ILLEGAL:
                self._skip(self.begin, outcome.remark or "refused")
            elif not outcome.is_stored:
                return False
            else:
                self.rolled_count += 1
        self.begin += 1
        self.pending_count -= 1
        return True
