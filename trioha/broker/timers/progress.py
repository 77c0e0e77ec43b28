"""Progress in the queue of timer messages, as offsets of the group CID_RMQ_SYS_TIMER.

A table of offsets travels to slaves and through a group's log behind the records that it rests on,
and to disk. Five of its numbers, "queues" 0 to 4, make a *place*. The present place says where the
log ended, and counts only for a log that reaches there: a power loss may take the end of the log
and leave the table. Then the last place that was on disk and readable counts, numbers 8 to 12. If
that is missing too, the broker delivers again all that the queue still lists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.timers.window import due_of, key_of, offset_of
from trioha.errors import CommandError
from trioha.store.interface import MessageStore
from trioha.wire.names import TIMER_GROUP, TIMER_TOPIC

INTERVAL_MS: Final = 2_000
"""Time between looks at whether a place has become safe."""
_NEWEST: Final = 0
_SAFE: Final = 8


@attrs.frozen
class TimerPlace:
    """Progress of the delivery: all entries before `begin` are done, and those before `end` whose
    key is below `next_key`."""

    begin: int = 0
    next_key: int = 0
    end: int = 0
    log_end: int = 0


class TimerProgress:
    """Progress of one master; `due_ms` says when to call `advance`."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetTable) -> None:
        self.due_ms: int | None = None
        self.foreign = TimerPlace()
        """Progress of RocketMQ's broker in this node's store when it was stopped."""
        self._store = store
        self._offsets = offsets
        self._noted: TimerPlace | None = None
        self._committed: TimerPlace | None = None

    def forget(self) -> None:
        self.due_ms = self._noted = self._committed = None

    def follow(self) -> None:
        """Forget the progress of this node: another broker is master, and its progress counts."""
        self.forget()
        self.foreign = TimerPlace()

    def load(self) -> TimerPlace:
        """Return the newest place that this log supports, for a broker that becomes master."""
        log_end = self._store.max_phy_offset
        newest, safe = self._read(_NEWEST), self._read(_SAFE)
        if newest is None or newest.log_end <= log_end:
            place = newest or TimerPlace()
            foreign = self.foreign
            if foreign.end >= place.end and foreign.next_key >= place.next_key:
                return attrs.evolve(place, next_key=foreign.next_key, end=foreign.end)
            return place
        place = TimerPlace() if safe is None or safe.log_end > log_end else safe
        # The log will grow beyond the other one's end, and then it would count.
        self._write(_NEWEST, attrs.evolve(place, log_end=log_end))
        return place

    def commit(self, begin: int, next_key: int, end: int, wall_ms: int) -> None:
        """Note the present progress."""
        last = self._committed
        if last is not None and (last.begin, last.next_key, last.end) == (begin, next_key, end):
            return
        self._committed = TimerPlace(begin, next_key, end, self._store.max_phy_offset)
        self._write(_NEWEST, self._committed)
        if self.due_ms is None:
            self.due_ms = wall_ms + INTERVAL_MS

    def advance(self, wall_ms: int) -> None:
        """Mark the place noted a while ago as safe, if it is, and note the present one."""
        if self.due_ms is None or wall_ms < self.due_ms:
            return
        self.due_ms = wall_ms + INTERVAL_MS
        noted, store = self._noted, self._store
        if noted is None:
            self._noted = self._committed
        elif min(store.flushed_offset, store.readable_offset) >= noted.log_end:
            self._write(_SAFE, noted)
            self._noted = None if noted is self._committed else self._committed
            if self._noted is None:
                self.due_ms = None

    def _read(self, first: int) -> TimerPlace | None:
        numbers = self._offsets.queues(TIMER_GROUP, TIMER_TOPIC)
        if any(first + index not in numbers for index in range(5)):
            return None
        begin, due_ms, offset, end, log_end = (numbers[first + index] for index in range(5))
        return TimerPlace(begin, key_of(due_ms, offset), end, log_end)

    def _write(self, first: int, place: TimerPlace) -> None:
        numbers = (
            place.begin,
            due_of(place.next_key),
            offset_of(place.next_key),
            place.end,
            place.log_end,
        )
        # Refused if the table of offsets is full: then the next master delivers more again.
        with suppress(CommandError):
            for index, number in enumerate(numbers, first):
                self._offsets.commit(TIMER_GROUP, TIMER_TOPIC, index, number)
