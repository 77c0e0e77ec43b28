"""Waits by offset and deadline, whatever the order they come in."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from trioha.ha.group_commit import GroupCommit

MIB = 1024 * 1024
STEP = st.tuples(
    st.sampled_from(["add", "advance", "expire"]), st.integers(0, 30), st.integers(0, 30)
)


def test_releases_everyone_up_to_the_offset_in_order() -> None:
    waits: GroupCommit[str] = GroupCommit()
    for offset in (100, 200, 200, 300):
        waits.add(offset, 3000, f"needs {offset}")
    assert waits.advance(99) == []
    assert waits.advance(200) == ["needs 100", "needs 200", "needs 200"]
    assert len(waits) == 1
    assert waits.advance(1000) == ["needs 300"]
    assert waits.next_deadline_ms is None


def test_a_deadline_is_kept_to_the_millisecond() -> None:
    waits: GroupCommit[str] = GroupCommit()
    waits.add(100, 3000, "a")
    assert waits.next_deadline_ms == 3000
    assert waits.expire(2999) == []
    assert waits.expire(3000) == ["a"]
    assert waits.advance(100) == []


def test_a_shorter_deadline_behind_a_longer_one_is_not_overslept() -> None:
    waits: GroupCommit[str] = GroupCommit()
    waits.add(100, 9000, "patient")
    waits.add(200, 1000, "hasty")
    assert waits.next_deadline_ms == 1000
    assert waits.expire(1000) == ["hasty"]
    assert waits.next_deadline_ms == 9000
    assert waits.advance(100) == ["patient"]


def test_an_offset_that_falls_back_is_released_in_its_place() -> None:
    waits: GroupCommit[int] = GroupCommit()
    for offset in (300, 100, 200, 100):
        waits.add(offset, 3000, offset)
    assert waits.advance(150) == [100, 100]
    assert waits.advance(300) == [200, 300]


def test_drain_releases_all_and_leaves_nothing() -> None:
    waits: GroupCommit[str] = GroupCommit()
    waits.add(200, 3000, "a")
    waits.add(100, 2000, "b")
    assert waits.drain() == ["b", "a"]
    assert len(waits) == 0
    assert waits.next_deadline_ms is None


def test_acks_in_small_steps_use_up_no_large_message_s_patience() -> None:
    """Fault C6: RocketMQ gave up after five wake-ups, whatever the clock said."""
    waits: GroupCommit[int] = GroupCommit()
    batch = 32 * 1024
    for number in range(1, 9):
        waits.add(number * MIB, 3000, number)
    released: list[int] = []
    now_ms = 0
    for ack in range(batch, 8 * MIB + 1, batch):  # 256 wake-ups, 32 for each message
        now_ms += 11
        released += waits.advance(ack)
        assert waits.expire(now_ms) == []
    assert now_ms < 3000
    assert released == list(range(1, 9))


def test_ten_thousand_small_puts_beside_a_busy_log_all_make_it() -> None:
    """Fault C6."""
    waits: GroupCommit[int] = GroupCommit()
    end, released = 0, 0
    for number in range(10_000):
        end += 180
        waits.add(end, number // 10 + 3000, number)
        end += 64 * 1024  # a neighbour that does not wait fills the log
        for ack in range(end - 64 * 1024, end, 16 * 1024):
            released += len(waits.advance(ack))
        assert waits.expire(number // 10) == []
    assert released == 10_000


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_it_agrees_with_a_plain_list(steps: list[tuple[str, int, int]]) -> None:
    waits: GroupCommit[int] = GroupCommit()
    model: list[tuple[int, int, int]] = []
    for serial, (action, first, second) in enumerate(steps):
        if action == "add":
            waits.add(first, second, serial)
            model.append((first, second, serial))
            model.sort(key=lambda entry: entry[0])
        elif action == "advance":
            assert waits.advance(first) == [entry[2] for entry in model if entry[0] <= first]
            model = [entry for entry in model if entry[0] > first]
        else:
            assert waits.expire(first) == [entry[2] for entry in model if entry[1] <= first]
            model = [entry for entry in model if entry[1] > first]
        assert len(waits) == len(model)
        assert waits.next_deadline_ms == min((entry[1] for entry in model), default=None)
