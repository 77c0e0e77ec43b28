"""Counts events on their way to the journal: what happened how often, for /metrics."""

from __future__ import annotations

import threading
from collections import Counter

from trioha.journal import EVENTS, EventSink


class EventCounts:
    """An `EventSink` that hands every event on. Events come from any thread."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._mutex = threading.Lock()
        self._counts: Counter[str] = Counter()

    def event(self, name: str, **fields: object) -> None:
        with self._mutex:
            left_out = fields.get("left_out", 0)
            self._counts[name] += 1 + (left_out if isinstance(left_out, int) else 0)
        self._events.event(name, **fields)

    def __getitem__(self, name: str) -> int:
        """Return how often an event was reported, also without a line; 0 for never."""
        return self._counts[name]

    def all(self) -> dict[str, int]:
        """Return the counts of all events; 0 for those yet to come, so that the first one shows."""
        with self._mutex:
            return dict.fromkeys(EVENTS, 0) | self._counts
