"""Readers see what is committed, and are woken when it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.small import bodies, crashing, message, open_store, small_config

from trioha.broker.visibility import Visibility
from trioha.store.interface import GetStatus
from trioha.store.lookup import UNBOUNDED
from trioha.store.message_store import FileMessageStore


class Woken:
    """Queue and end of each call that wakes waiting pulls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def __call__(self, topic: str, queue_id: int, end: int, codes: Sequence[int]) -> None:
        self.calls.append((topic, queue_id, end))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileMessageStore]:
    with crashing(open_store(small_config(tmp_path))) as store:
        yield store


def put(store: FileMessageStore, body: bytes = b"x", **where: object) -> int:
    return store.put_message(message(body, **where), 1000).end_offset  # type: ignore[arg-type]


def test_a_message_is_seen_and_told_once_it_is_committed(store: FileMessageStore) -> None:
    woken = Woken()
    visibility = Visibility(store, 0, woken)
    store.tell_dispatches(visibility.on_dispatch)
    first, second = put(store, b"1"), put(store, b"2")
    assert store.get_message("T", 0, 0, 32, None).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert woken.calls == []
    visibility.set_limit(first)
    assert woken.calls == [("T", 0, 1)]
    assert bodies(store) == [b"1"]
    assert store.get_message("T", 0, 1, 32, None).status is GetStatus.OFFSET_OVERFLOW_ONE
    visibility.set_limit(second)
    assert woken.calls == [("T", 0, 1), ("T", 0, 2)]
    assert bodies(store) == [b"1", b"2"]
    assert visibility.waiting_count == 0


def test_what_is_dispatched_below_the_commit_is_told_at_once(store: FileMessageStore) -> None:
    woken = Woken()
    visibility = Visibility(store, 1 << 20, woken)
    store.tell_dispatches(visibility.on_dispatch)
    put(store)
    assert woken.calls == [("T", 0, 1)]


def test_a_follower_tells_of_what_is_committed_though_more_has_come(
    tmp_path: Path, store: FileMessageStore
) -> None:
    first = put(store, b"1")
    end = put(store, b"2", queue_id=1)
    woken = Woken()
    with crashing(open_store(small_config(tmp_path / "follower"))) as follower:
        visibility = Visibility(follower, first, woken)
        follower.tell_dispatches(visibility.on_dispatch)
        follower.append_log(0, bytes(store.read_log(0, end)))
        follower.dispatch(1 << 20)
        assert woken.calls == [("T", 0, 1)]
        visibility.set_limit(end)
        assert woken.calls == [("T", 0, 1), ("T", 1, 1)]


def test_a_cut_delays_nobody(store: FileMessageStore) -> None:
    woken = Woken()
    visibility = Visibility(store, 0, woken)
    store.tell_dispatches(visibility.on_dispatch)
    first = put(store, b"1")
    put(store, b"gone" * 100)
    store.truncate_log(first)
    visibility.cut(first)
    visibility.set_limit(first)
    assert woken.calls[0] == ("T", 0, 1)
    second = put(store, b"2")
    visibility.set_limit(second)
    assert woken.calls[-1] == ("T", 0, 2)
    assert bodies(store) == [b"1", b"2"]


@settings(max_examples=80, deadline=None)
@given(
    queues=st.lists(st.integers(0, 2), max_size=60),
    commits=st.lists(st.integers(0, 60), min_size=1, max_size=6),
)
def test_no_read_passes_the_readable_offset(
    tmp_path_factory: pytest.TempPathFactory, queues: list[int], commits: list[int]
) -> None:
    """Against a plain list of what lies where."""
    config = small_config(tmp_path_factory.mktemp("store"))
    with crashing(open_store(config)) as store:
        records = []
        next_index = dict.fromkeys(range(3), 0)
        for number, queue_id in enumerate(queues):
            result = store.put_message(
                message(b"%d" % number, queue_id=queue_id, keys=("K",)), 1000 + number
            )
            records.append((queue_id, result.queue_offset, result.phy_offset, result.end_offset))
            next_index[queue_id] += 1
        store.dispatch(1 << 30)
        for commit in commits:
            ends = [0] + [record[3] for record in records]
            readable = store.readable_offset = ends[min(commit, len(records))]
            seen = [record for record in records if record[3] <= readable]
            for queue_id in range(3):
                mine = [record for record in seen if record[0] == queue_id]
                assert store.max_offset_in_queue("T", queue_id) == len(mine)
                assert store.appended_max_offset("T", queue_id) == next_index[queue_id]
                assert len(bodies(store, "T", queue_id)) == len(mine)
                for offset in range(next_index[queue_id] + 2):
                    got = store.get_message("T", queue_id, offset, 32, None)
                    filtered = store.get_message("T", queue_id, offset, 5, lambda code: True)
                    assert got.max_offset == filtered.max_offset == len(mine)
                    assert got.message_count <= max(0, len(mine) - offset)
                    assert filtered.message_count <= max(0, len(mine) - offset)
                    go_on = {got.next_begin_offset, filtered.next_begin_offset}
                    if len(mine) < offset <= next_index[queue_id]:
                        # A reader of what is held back waits, and is not sent back.
                        assert go_on == {offset}
                        assert got.status is GetStatus.OFFSET_OVERFLOW_ONE
                    else:
                        assert max(go_on) <= len(mine)
                    assert (got.message_count > 0) == (offset < len(mine))
                    entry = store.consume_queue_entry("T", queue_id, offset)
                    assert (entry is not None) == (offset < len(mine))
                assert store.offset_by_time("T", queue_id, 1 << 40) == max(0, len(mine) - 1)
            for _, _, phy_offset, end in records:
                assert (store.look_message(phy_offset) is not None) == (end <= readable)
                assert store.appended_record(phy_offset) is not None
            found, _, _ = store.query_message("T", "K", 100, 0, 1 << 60)
            assert len(found) == len(seen)


def test_delayed_messages_that_are_hidden_are_told_when_they_are_shown(
    store: FileMessageStore,
) -> None:
    """A broker that starts learns only later that its slaves hold them."""
    end = put(store, topic="rmq_sys_wheel_timer", properties=b"TIMER_OUT_MS\x015")
    put(store)
    woken = Woken()
    visibility = Visibility(store, UNBOUNDED, woken)
    visibility.set_limit(0)
    assert (woken.calls, visibility.waiting_count) == ([], 1)
    visibility.set_limit(end - 1)
    assert woken.calls == []
    visibility.set_limit(end)
    assert woken.calls == [("rmq_sys_wheel_timer", 0, 1)]
