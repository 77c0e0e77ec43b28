"""Progress never passes a message in progress."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fakes.client_messages import received

from trioha.client.message import MessageQueue, ReceivedMessage
from trioha.client.process_queue import FlowLimits, ProcessQueue

QUEUE = MessageQueue("T", "a", 0)


def messages(*offsets: int) -> list[ReceivedMessage]:
    return [received(queue_offset=offset) for offset in offsets]


def test_progress_stays_at_the_lowest_message_under_way() -> None:
    held = ProcessQueue(QUEUE, 5, FlowLimits())
    first, second, third = messages(5, 6, 7)
    held.put([first, second, third], 8)
    assert held.commit_offset == 5
    held.remove(second)
    assert held.commit_offset == 5
    held.remove(first)
    assert held.commit_offset == 7
    held.remove(third)
    assert held.commit_offset == 8


def test_filtered_messages_at_the_end_count_as_handled() -> None:
    held = ProcessQueue(QUEUE, 0, FlowLimits())
    held.put([], 40)
    assert held.commit_offset == held.next_offset == 40


def test_removing_twice_changes_nothing() -> None:
    held = ProcessQueue(QUEUE, 0, FlowLimits(messages_max=2))
    (message,) = messages(0)
    held.put([message], 1)
    held.remove(message)
    held.remove(message)
    assert held.message_count == 0
    assert held.has_room


def test_room_ends_by_count_and_by_bytes() -> None:
    by_count = ProcessQueue(QUEUE, 0, FlowLimits(messages_max=2))
    rooms = []
    for offset in range(2):
        by_count.put(messages(offset), offset + 1)
        rooms.append(by_count.has_room)
    assert rooms == [True, False]
    by_bytes = ProcessQueue(QUEUE, 0, FlowLimits(bytes_max=1))
    by_bytes.put(messages(0), 1)
    assert not by_bytes.has_room


def test_an_offset_is_committed_once() -> None:
    held = ProcessQueue(QUEUE, 3, FlowLimits())
    assert held.uncommitted() == 3
    held.committed(3)
    assert held.uncommitted() is None
    held.put([], 4)
    assert held.uncommitted() == 4


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(10)))
def test_progress_is_the_lowest_offset_left_in_any_order_of_handling(order: list[int]) -> None:
    held = ProcessQueue(QUEUE, 0, FlowLimits())
    batch = messages(*range(10))
    held.put(batch, 10)
    left = set(range(10))
    for offset in order:
        held.remove(batch[offset])
        left.discard(offset)
        assert held.commit_offset == min(left, default=10)
