"""The newest events in memory, by sequence number."""

from __future__ import annotations

from pathlib import Path

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.journal.file import JournalFile
from trioha.journal.tail import JournalTail

EVERYTHING = {"count_max": 1000, "bytes_max": 1 << 20}


def filled(count: int, bytes_max: int = 1 << 20) -> JournalTail:
    tail = JournalTail(bytes_max)
    for number in range(count):
        tail.add(number, "even" if number % 2 == 0 else "odd", b"%08d" % number)
    return tail


def test_events_come_back_in_order_from_any_number() -> None:
    stretch = filled(10).since(7, set(), **EVERYTHING)
    assert stretch is not None
    assert stretch.payloads == (b"00000007", b"00000008", b"00000009")
    assert stretch.next_sequence == 10


def test_names_choose_and_the_rest_is_passed_over() -> None:
    stretch = filled(10).since(0, {"odd"}, count_max=2, bytes_max=1 << 20)
    assert stretch is not None
    assert stretch.payloads == (b"00000001", b"00000003")
    assert stretch.next_sequence == 5


def test_an_answer_ends_before_it_is_too_large_but_is_never_empty_for_that() -> None:
    tail = filled(10)
    stretch = tail.since(0, set(), count_max=1000, bytes_max=20)
    assert stretch is not None
    assert len(stretch.payloads) == 2
    assert stretch.next_sequence == 2
    stretch = tail.since(0, set(), count_max=1000, bytes_max=1)
    assert stretch is not None
    assert len(stretch.payloads) == 1


def test_what_left_the_memory_is_not_answered_for() -> None:
    tail = filled(100, bytes_max=80)
    assert tail.first_sequence == 90
    assert tail.since(89, set(), **EVERYTHING) is None
    assert tail.since(90, set(), **EVERYTHING) is not None


def test_after_a_gap_only_what_follows_is_in_memory() -> None:
    tail = filled(3)
    tail.add(7, "odd", b"7")
    assert (tail.first_sequence, tail.next_sequence) == (7, 8)
    tail.skip_to(20)
    assert (tail.first_sequence, tail.next_sequence) == (20, 20)


def test_the_last_events_of_a_name_begin_where_the_first_of_them_is() -> None:
    tail = filled(10)
    assert tail.sequence_of_last(0, set()) == 10
    assert tail.sequence_of_last(3, set()) == 7
    assert tail.sequence_of_last(2, {"even"}) == 6
    assert tail.sequence_of_last(100, set()) == 0


@settings(deadline=None)
@given(
    st.integers(0, 60),
    st.integers(8, 400),
    st.sets(st.sampled_from(["even", "odd"])),
    st.integers(1, 7),
    st.integers(1, 100),
)
def test_a_follower_sees_each_event_once_however_answers_are_cut(
    count: int, bytes_max: int, names: set[str], count_max: int, answer_bytes: int
) -> None:
    tail = filled(count, bytes_max)
    place, seen = tail.first_sequence, list[bytes]()
    while place < tail.next_sequence:
        stretch = tail.since(place, names, count_max=count_max, bytes_max=answer_bytes)
        assert stretch is not None
        assert stretch.next_sequence > place
        seen += stretch.payloads
        place = stretch.next_sequence
    wanted = [
        b"%08d" % number
        for number in range(tail.first_sequence, count)
        if not names or ("odd" if number % 2 else "even") in names
    ]
    assert seen == wanted


def test_a_journal_that_is_opened_again_remembers_the_run_before(tmp_path: Path) -> None:
    first = JournalFile(tmp_path, "n", lambda: 5, bytes_max=1 << 20)
    first.event("node_started", pid=1)
    first.event("node_stopped", reason="asked to")
    first.close()
    second = JournalFile(tmp_path, "n", lambda: 6, bytes_max=1 << 20)
    second.event("node_started", pid=2)
    stretch = second.tail.since(0, set(), **EVERYTHING)
    assert stretch is not None
    assert [msgpack.unpackb(payload)[:3] for payload in stretch.payloads] == [
        [0, 5, "node_started"],
        [1, 5, "node_stopped"],
        [2, 6, "node_started"],
    ]
    second.close()
