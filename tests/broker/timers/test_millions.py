"""Millions of waiting messages: how much of them is in memory, and how long a turn takes."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.timers import delivered, timer
from support.suite.sizes import WAITING_TIMERS

from trioha.broker.timers.service import PIECE
from trioha.broker.timers.window import CAPACITY, due_of
from trioha.wire.names import TIMER_TOPIC

COUNT = WAITING_TIMERS
SPREAD_MS = 86_400_000
MEMORY_BYTES_MAX = 20 << 20
"""Peak while the first window is made: heap, refill and the sample of its middle."""
BUDGET = 256


def test_memory_holds_a_window_of_millions(monkeypatch: pytest.MonkeyPatch) -> None:
    side = ProduceSide(timer_capacity=CAPACITY)
    timer(side, TIMER_DELAY_MS=1)
    store, timers = side.store, side.timers
    phy_offset, size, _ = store.entries[TIMER_TOPIC, 0][0]
    # One piece of the queue, over and over. 7919 has no divisor in common with the number of times.
    times = [WALL_MS + 1 + number * 7919 % SPREAD_MS for number in range(PIECE)]
    piece = b"".join(struct.pack(">qiq", phy_offset, size, time) for time in times) * 2

    looked_at = 0

    def entries(topic: str, queue_id: int, offset: int, count_max: int) -> memoryview:
        nonlocal looked_at
        begin, count = offset % PIECE, min(count_max, COUNT - offset)
        looked_at += count
        return memoryview(piece)[begin * 20 : (begin + max(0, count)) * 20]

    def ends(topic: str, queue_id: int) -> int:
        return COUNT if topic == TIMER_TOPIC else 0

    monkeypatch.setattr(store, "queue_entries", entries)
    monkeypatch.setattr(store, "max_offset_in_queue", ends)
    monkeypatch.setattr(store, "appended_max_offset", ends)
    monkeypatch.setattr(store, "store_time", lambda topic, queue_id, offset: WALL_MS)
    monkeypatch.setattr(
        store, "consume_queue_entry", lambda topic, queue_id, offset: (phy_offset, size, 0)
    )
    tracemalloc.start()
    timers.load()
    turns = [looked_at]
    while not timers.is_loaded:
        looked_at = 0
        timers.run_due(at(0), BUDGET)
        turns.append(looked_at)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes <= MEMORY_BYTES_MAX
    # A turn is a piece of the queue, 3 ms, and no more.
    assert max(turns[:-1]) <= PIECE
    assert len(turns) >= COUNT // PIECE
    assert timers.pending_count == COUNT
    window = timers._window
    assert len(window) <= 2 * CAPACITY
    # The window holds the timers that are due first.
    assert window.limit is not None
    limit_ms = due_of(window.limit)
    within = sum(time <= limit_ms for time in times) * (COUNT // PIECE)
    within += sum(time <= limit_ms for time in times[: COUNT % PIECE])
    assert abs(within - len(window)) <= COUNT // PIECE
    last_ms = sorted(times)[2]
    looked_at = 0
    timers.run_due(at(last_ms - WALL_MS), BUDGET)
    assert len(delivered(side)) == BUDGET
    assert looked_at <= 2 * PIECE
    timers.run_due(at(last_ms - WALL_MS), 1_000)
    rest = sum(time <= last_ms for time in times[: COUNT % PIECE])
    assert len(delivered(side)) == 3 * (COUNT // PIECE) + rest
    assert timers.pending_count == COUNT - len(delivered(side))
