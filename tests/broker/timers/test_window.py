"""The window against a sorted list, however small it is and whenever messages come."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.broker.timers.window import (
    KEY_MAX,
    EntryReader,
    Refill,
    TimerWindow,
    due_of,
    halves_of,
    key_of,
    offset_of,
)
from trioha.wire.timers import CANCEL_BIT

BASE_MS = 1_700_000_000_000


def entries_of(codes: list[int]) -> memoryview:
    return memoryview(b"".join(struct.pack(">qiq", 7, 9, code) for code in codes))


def reader(foreign: dict[int, int] | None = None) -> EntryReader:
    return EntryReader((foreign or {}).__getitem__)


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_codes_are_read_from_entries(codes: list[int]) -> None:
    uppers, lowers = halves_of(entries_of(codes))
    assert [upper << 32 | lower for upper, lower in zip(uppers, lowers, strict=True)] == codes


EDGE_MS = (BASE_MS >> 32) + 1 << 32
"""A moment at which the upper half of a time changes."""


@given(
    st.lists(st.integers(EDGE_MS - 3, EDGE_MS + 3), max_size=9),
    st.integers(EDGE_MS - 4, EDGE_MS + 4),
    st.integers(EDGE_MS - 4, EDGE_MS + 4),
    st.integers(0, 9),
)
def test_keys_within_bounds_are_read(codes: list[int], low: int, high: int, at: int) -> None:
    bounds = key_of(low, at), key_of(high, at)
    expected = [
        key
        for index, code in enumerate(codes)
        if bounds[0] <= (key := key_of(code, index)) <= bounds[1]
    ]
    assert reader().keys(entries_of(codes), 0, *bounds) == expected


@given(st.integers(0, 1 << 46), st.integers(0, 1 << 40))
def test_keys_are_time_and_offset(due_ms: int, offset: int) -> None:
    key = key_of(due_ms, offset)
    assert (due_of(key), offset_of(key)) == (due_ms, offset)
    assert key < KEY_MAX


def test_reader_knows_cancellations_and_asks_for_what_java_wrote() -> None:
    codes = [BASE_MS + 5, (BASE_MS + 4) | CANCEL_BIT, 2598919, 0]
    found = reader({102: BASE_MS + 9, 103: 0}).keys(entries_of(codes), 100, 0, KEY_MAX)
    assert found == [
        key_of(BASE_MS + 5, 100),
        key_of(BASE_MS + 4, 101),
        key_of(BASE_MS + 9, 102),
    ]


def test_negative_hash_of_tags_is_no_time() -> None:
    code = -5 & (1 << 64) - 1
    entries = memoryview(struct.pack(">qiQ", 7, 9, code))
    assert reader({0: BASE_MS}).keys(entries, 0, 0, KEY_MAX) == [key_of(BASE_MS, 0)]


def test_cancellations_of_the_running_slot_are_taken_up_again() -> None:
    codes = [(BASE_MS + 1000) | CANCEL_BIT, BASE_MS + 1000, BASE_MS | CANCEL_BIT]
    low = key_of(BASE_MS + 1900, 0)
    found = reader().keys(entries_of(codes), 0, low, KEY_MAX, key_of(BASE_MS + 900, 0))
    assert found == [key_of(BASE_MS + 1000, 0)]


@settings(max_examples=200)
@given(
    times=st.lists(st.integers(0, 30), max_size=60),
    more=st.lists(st.integers(0, 30), max_size=60),
    capacity=st.integers(1, 6),
    piece=st.integers(1, 7),
    done=st.integers(0, 20),
)
def test_everything_comes_once_and_in_order(
    times: list[int], more: list[int], capacity: int, piece: int, done: int
) -> None:
    """A first window, then pops, refills and new messages in turn."""
    codes = [BASE_MS + time for time in times]
    end = len(codes) // 2
    floor = key_of(BASE_MS + done, 0)
    first = Refill(reader(), capacity, floor, end)
    window = TimerWindow(capacity)
    for offset in range(0, len(codes), piece):
        first.take(entries_of(codes[offset : offset + piece]), offset)
    first.finish(window)
    expected = [
        key
        for offset, code in enumerate(codes)
        if (key := key_of(code, offset)) >= floor or offset >= end
    ]
    assert first.pending_count == len(expected)
    popped: list[int] = []
    waiting = list(more)
    while expected or waiting:
        if waiting:
            code = BASE_MS + waiting.pop()
            key = key_of(code, len(codes))
            codes.append(code)
            expected.append(key)
            window.add(key)
        if window.needs_refill:
            assert window.limit is not None
            refill = Refill(reader(), capacity, floor, end, window.limit)
            for offset in range(0, len(codes), piece):
                refill.take(entries_of(codes[offset : offset + piece]), offset)
            refill.finish(window)
        if expected:
            least = min(expected)
            assert window.next_key == least
            assert window.done_below == least
            popped.append(window.pop())
            expected.remove(least)
    assert len(popped) == len(set(popped))
    if window.needs_refill:
        refill = Refill(reader(), capacity, floor, end, window.limit)
        refill.take(entries_of(codes), 0)
        refill.finish(window)
    assert window.next_key is None


@given(st.lists(st.integers(0, 50), max_size=80), st.integers(0, 50), st.integers(1, 100))
def test_keys_until_a_time_are_found_without_a_look_at_the_others(
    times: list[int], until: int, count: int
) -> None:
    window = TimerWindow()
    keys = [key_of(BASE_MS + due_ms, offset) for offset, due_ms in enumerate(times)]
    for key in keys:
        window.add(key)
    found = window.until(key_of(BASE_MS + until, 0), count)
    wanted = {key for key in keys if key <= key_of(BASE_MS + until, 0)}
    assert len(found) == len(set(found)) == min(count, len(wanted))
    assert set(found) <= wanted
