"""Ten million waiting messages: how much of them is in memory, and how long a turn takes."""

from __future__ import annotations

import struct

import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.timers import delivered, timer

from trioha.broker.timers.service import PIECE
from trioha.broker.timers.window import CAPACITY, due_of
from trioha.wire.names import TIMER_TOPIC

COUNT = 10_000_000
SPREAD_MS = 86_400_000


def test_memory_holds_a_window_of_ten_million(monkeypatch: pytest.MonkeyPatch) -> None:
    side = ProduceSide(timer_capacity=CAPACITY)
    timer(side, TIMER_DELAY_MS=1)
    store, timers = side.store, side.timers
    phy_offset, size, _ = store.entries[TIMER_TOPIC, 0][0]
    # One piece of the queue, over and over. 7919 has no divisor in common with the number of times.
    times = [WALL_MS + 1 + number * 7919 % SPREAD_MS for number in range(PIECE)]
    piece = b"".join(struct.pack(">qiq", phy_offset, size, time) for time in times) * 2

    def entries(topic: str, queue_id: int, offset: int, count_max: int) -> memoryview:
        begin, count = offset % PIECE, min(count_max, COUNT - offset)
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
    timers.load()
    while not timers.is_loaded:
        timers.run_due(at(0), 256)
    assert timers.pending_count == COUNT
    window = timers._window
    assert len(window) <= 2 * CAPACITY
    # What is there is what comes first.
    assert window.limit is not None
    within = sum(time <= due_of(window.limit) for time in times) * (COUNT // PIECE)
    assert abs(within - len(window)) <= COUNT // PIECE
    last_ms = sorted(times)[2]
    timers.run_due(at(last_ms - WALL_MS), 1_000)
    rest = sum(time <= last_ms for time in times[: COUNT % PIECE])
    assert len(delivered(side)) == 3 * (COUNT // PIECE) + rest
    assert timers.pending_count == COUNT - len(delivered(side))
