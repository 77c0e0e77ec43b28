"""Finds delayed messages that have to be read from disk before they are due.

Theory of operation. A message that waited for hours has left the page cache, and its delivery would
make the event loop wait for the disk. So `look` names, some time before, the bytes that a thread is
to read. It looks once a second while messages are due within `AHEAD_MS`, at `COUNT_MAX` of them;
and looks again sooner if there are more. A message that is due before it was read is read on the
loop: to deliver it in time counts more than latency.
"""

from __future__ import annotations

from typing import Final

from trioha.broker.delay import DelaySchedule
from trioha.broker.timers.service import Timers
from trioha.store.interface import DiskBlock, MessageStore

AHEAD_MS: Final = 2_000
COUNT_MAX: Final = 2_048
"""Records that one look finds, 2 ms; at 1,000 deliveries a second, all of `AHEAD_MS`."""
_LOOK_MS: Final = 1_000
_LOOK_AGAIN_MS: Final = 50


class ReadAhead:
    """Looks ahead for the deliveries of one broker."""

    def __init__(self, store: MessageStore, schedule: DelaySchedule, timers: Timers) -> None:
        self._store = store
        self._schedule = schedule
        self._timers = timers
        self._next_ms = 0

    def next_look_ms(self, wall_ms: int) -> int | None:
        """Return the wall time at which `look` may find something, possibly past; or None."""
        nearest = [
            due_ms
            for due_ms in (self._schedule.next_deadline(wall_ms), self._timers.next_due_ms)
            if due_ms is not None
        ]
        if not nearest:
            return None
        if self._next_ms > wall_ms + _LOOK_MS:
            self._next_ms = 0  # the clock was set back
        return max(min(nearest) - AHEAD_MS, self._next_ms)

    def look(self, wall_ms: int) -> list[DiskBlock]:
        """Return what has to be read from disk for what is due soon."""
        look_ms = self.next_look_ms(wall_ms)
        if look_ms is None or look_ms > wall_ms:
            return []
        until_ms = wall_ms + AHEAD_MS
        places = self._schedule.soon(until_ms, COUNT_MAX) + self._timers.soon(until_ms, COUNT_MAX)
        self._next_ms = wall_ms + (_LOOK_MS if len(places) < COUNT_MAX else _LOOK_AGAIN_MS)
        return self._store.blocks_on_disk(places)
