"""The journal: the events that a node reports, and the files that keep them."""

from trioha.journal.events import EVENTS, EventKind, EventLevel, EventSink, NullSink

__all__ = ["EVENTS", "EventKind", "EventLevel", "EventSink", "NullSink"]
