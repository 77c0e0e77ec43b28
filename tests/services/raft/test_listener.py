"""Peers that a member rejects: the status has a few of them, the journal a line now and then."""

from __future__ import annotations

from trioha.journal.line_limits import LINES_MAX
from trioha.services.loop.clock import Clock
from trioha.services.raft.listener import Refusals
from trioha.testing.recorded_events import RecordedEvents


async def test_a_stranger_with_ever_new_reasons_fills_neither_journal_nor_status() -> None:
    events = RecordedEvents()
    refusals = Refusals(Clock.virtual(), events)
    for number in range(1000):
        refusals.add("10.0.0.1", f"no group {number} here")
    assert len(events.of("raft_refused")) == LINES_MAX
    assert len(refusals.plain()) == 32
    refusals.add("n2", "it wants another secret")
    assert events.of("raft_refused")[-1]["peer"] == "n2"
