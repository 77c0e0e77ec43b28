"""Requests that nodes refused or did not keep: sends, waits for slaves, connections.

Nodes sample their counters, so a sampled count came between two moments.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from trioha.analysis.engine import Engine
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.reports.lives import Lives, journal_of, number

SAMPLE_MS = 10_500
"""Time between two samples of a node's waits: ten seconds, and the lateness of a loop."""
_SYNC_WAITS = {
    "timeouts": "puts answered FLUSH_SLAVE_TIMEOUT (stored, not acknowledged in time)",
    "unavailable": "puts answered SLAVE_NOT_AVAILABLE (stored on one machine)",
}
_EVENTS = (
    *("sync_waits", "connection_refused", "ha_refused"),
    *("node_started", "node_ready", "broker_progress"),
)


@attrs.frozen
class RefusedCount:
    """`count` events of one kind between two moments (milliseconds since 1970)."""

    journal: str
    node: str
    what: str
    count: int
    since_ms: int
    at_ms: int


def refusals_of(engine: Engine, lives: Lives) -> Iterator[RefusedCount]:
    """Yield refusals, journal by journal in the order written; writes that a node refused as a
    whole (`Life.refusals`) come first."""
    for life in lives.lives:
        for begin_ms, _, reason in life.refusals:
            what = f"writes refused: {reason}"
            yield RefusedCount(life.journal, life.node, what, 1, begin_ms, begin_ms)
    samples: dict[str, _Samples] = {}
    for event in engine.journal(_EVENTS):
        journal = journal_of(event)
        found = samples.setdefault(journal, _Samples(journal, event.wall_ms))
        yield from found.take(event)


@attrs.define(eq=False)
class _Samples:
    """Counters of one journal, as its node last sampled them."""

    journal: str
    sampled_ms: int
    """Moment of the last `broker_progress`, or since when the node counts."""
    waited_ms: int = 0
    """Moment of the last `sync_waits`; 0 before the first."""
    refused: int = 0

    def take(self, event: JournalRow) -> Iterator[RefusedCount]:
        at_ms = event.wall_ms
        if event.name in ("node_started", "node_ready"):
            self.sampled_ms, self.waited_ms, self.refused = at_ms, at_ms, 0
        elif event.name == "broker_progress":
            refused = number(event, "refused_total")
            if refused > self.refused:
                yield self._refusal(event, "sends refused", refused - self.refused, self.sampled_ms)
            self.sampled_ms, self.refused = at_ms, refused
        elif event.name == "sync_waits":
            since_ms = max(self.waited_ms, at_ms - SAMPLE_MS)
            self.waited_ms = at_ms
            for field, what in _SYNC_WAITS.items():
                if count := number(event, field):
                    yield self._refusal(event, what, count, since_ms)
        else:
            what = "slave refused" if event.name == "ha_refused" else "connection refused"
            said = f"{what}: {event.fields.get('reason', '')}"
            yield self._refusal(event, said, 1, at_ms)

    def _refusal(self, event: JournalRow, what: str, count: int, since_ms: int) -> RefusedCount:
        return RefusedCount(self.journal, event.node, what, count, since_ms, event.wall_ms)
