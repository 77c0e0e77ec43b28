"""Shares: the same at every member, complete, contiguous."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.client.allocation import allocate_averagely, sort_queues
from trioha.client.message import MessageQueue


def queues(count: int, broker: str = "a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, index) for index in range(count)]


def share_sizes(count: int, members: list[str]) -> list[int]:
    return [len(allocate_averagely(member, members, queues(count))) for member in members]


def test_the_first_members_get_what_the_division_leaves() -> None:
    assert share_sizes(8, ["c1", "c2", "c3"]) == [3, 3, 2]


def test_members_beyond_the_queues_get_nothing() -> None:
    assert share_sizes(2, ["c1", "c2", "c3"]) == [1, 1, 0]


def test_a_member_the_broker_does_not_list_gets_nothing() -> None:
    assert allocate_averagely("c9", ["c1"], queues(4)) == []


def test_a_member_listed_twice_counts_once() -> None:
    assert len(allocate_averagely("c1", ["c1", "c1", "c2"], queues(4))) == 2


def test_queue_ids_sort_as_numbers_and_names_as_java_strings() -> None:
    # U+FF5E is below U+1F600 as a code point, above its first UTF-16 unit.
    mixed = [
        MessageQueue("T", name, index) for name in ("\uff5e", "\U0001f600") for index in (10, 9)
    ]
    assert [(queue.broker_name, queue.queue_id) for queue in sort_queues(mixed)] == [
        ("\U0001f600", 9),
        ("\U0001f600", 10),
        ("\uff5e", 9),
        ("\uff5e", 10),
    ]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 40), st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=12))
def test_shares_cover_every_queue_once_and_differ_by_one_at_most(
    count: int, members: set[str]
) -> None:
    shares = [allocate_averagely(member, members, queues(count)) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues(count)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
