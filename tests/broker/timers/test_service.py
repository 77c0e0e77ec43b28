from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.timers import delivered, properties_of, run_until, timer
from support.memory.store import MemoryStore

from trioha.broker.timers.service import SPAN_MIN
from trioha.config import BrokerConfig, BrokerRole
from trioha.store.interface import PutMessage
from trioha.wire.names import TIMER_GROUP, TIMER_TOPIC
from trioha.wire.timers import TimerCheckpoint

HOUR_MS = 3_600_000
LONG = attrs.evolve(BrokerConfig(), timer_max_delay_sec=366 * 86_400)


def take_over(side: ProduceSide) -> None:
    """Begin anew, as a broker that becomes master."""
    side.timers.forget()
    side.timers.load()


def keys(side: ProduceSide) -> list[str]:
    return [key for key, _ in delivered(side)]


def test_messages_come_in_the_order_of_their_times() -> None:
    side = ProduceSide()
    for key, delay_ms in (("c", 3000), ("a", 1000), ("b", 2000), ("b2", 2000)):
        timer(side, key, TIMER_DELAY_MS=delay_ms)
    assert side.timers.pending_count == 4
    run_until(side, 10_000)
    assert delivered(side) == [("a", 1000), ("b", 2000), ("b2", 2000), ("c", 3000)]
    assert side.timers.pending_count == 0
    assert side.timers.begin == side.timers.end == 4
    run_until(side, 20_000, 10_000)
    assert side.timers.next_deadline(WALL_MS + 20_000) is None


def test_many_more_than_fit_come_all_and_in_order() -> None:
    side = ProduceSide(timer_capacity=4)
    for number in range(100):
        timer(side, f"{number}", TIMER_DELAY_MS=1000 + number * 37 % 100)
    assert side.timers.pending_count == 100
    run_until(side, 5_000)
    times = [when for _, when in delivered(side)]
    assert times == sorted(times) == [1000 + number for number in range(100)]


def test_budget_bounds_one_turn() -> None:
    side = ProduceSide()
    for number in range(5):
        timer(side, f"{number}", TIMER_DELAY_MS=1)
    side.timers.run_due(at(5), 2)
    assert len(delivered(side)) == 2
    assert side.timers.next_deadline(WALL_MS + 5) == WALL_MS + 1


def test_slave_never_delivers_and_a_promoted_one_does() -> None:
    side = ProduceSide()
    side.pipeline.role = BrokerRole.SLAVE
    side.timers.forget()
    message = timer_record(side, 1000)
    side.store.put_message(message, WALL_MS)
    assert side.timers.next_deadline(WALL_MS + 9_000) is None
    side.timers.run_due(at(9_000), 9)
    assert delivered(side) == []
    side.pipeline.role = BrokerRole.ASYNC_MASTER
    side.timers.load()
    run_until(side, 9_000, 9_000)
    assert delivered(side) == [("K1", 9_000)]


def timer_record(side: ProduceSide, delay_ms: int) -> PutMessage:
    """The stored self of a message, as a slave's log gets it."""
    other = ProduceSide()
    timer(other, TIMER_DELAY_MS=delay_ms)
    return other.store.messages[0][0]


def test_restart_goes_on_where_it_was() -> None:
    side = ProduceSide()
    for number in range(10):
        timer(side, f"{number}", TIMER_DELAY_MS=1000 * (10 - number))
    run_until(side, 4_000)
    take_over(side)
    assert side.timers.pending_count == 6
    run_until(side, 20_000, 4_000)
    assert keys(side) == [str(number) for number in range(9, -1, -1)]


def test_restart_waits_until_it_sees_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that comes back shows no reader its log before its slaves hold it."""
    side = ProduceSide()
    for number in range(10):
        timer(side, f"{number}", TIMER_DELAY_MS=1000 * (10 - number))
    run_until(side, 4_000)
    with monkeypatch.context() as hidden:
        hidden.setattr(side.store, "max_offset_in_queue", lambda topic, queue_id: 3)
        hidden.setattr(side.store, "appended_max_offset", lambda topic, queue_id: 10)
        take_over(side)
        run_until(side, 6_000, 4_000)
        assert not side.timers.is_loaded
        assert len(keys(side)) == 4
    assert not side.timers.is_loaded
    run_until(side, 20_000, 6_000)
    assert keys(side) == [str(number) for number in range(9, -1, -1)]
    assert side.timers.pending_count == 0


def test_progress_beyond_the_log_is_not_believed() -> None:
    """A power loss took the delivery, and left the table of offsets."""
    side = ProduceSide()
    timer(side, TIMER_DELAY_MS=1000)
    side.store.flush()
    side.timers.run_due(at(500), 9)
    kept = side.store.messages[:1]
    run_until(side, 1_000)
    assert keys(side) == ["K1"]
    new = ProduceSide()
    for message, result in kept:
        new.store.put_message(message, result.store_timestamp)
    for queue_id, offset in side.offsets.queues(TIMER_GROUP, TIMER_TOPIC).items():
        new.offsets.commit(TIMER_GROUP, TIMER_TOPIC, queue_id, offset)
    take_over(new)
    run_until(new, 2_000)
    assert keys(new) == ["K1"]


def test_progress_becomes_safe_and_then_rests() -> None:
    side = ProduceSide()
    timer(side, TIMER_DELAY_MS=1000)
    run_until(side, 1_000, is_flushed=False)
    numbers = side.offsets.queues(TIMER_GROUP, TIMER_TOPIC)
    assert set(numbers) == {0, 1, 2, 3, 4}
    assert numbers[0] == 1
    run_until(side, 9_000, 1_000, is_flushed=False)
    assert set(numbers) == {0, 1, 2, 3, 4}  # not on disk yet
    side.store.flush()
    run_until(side, 20_000, 9_000)
    assert {number: numbers[number + 8] for number in range(5)} == {
        number: numbers[number] for number in range(5)
    }
    assert side.timers.next_deadline(WALL_MS + 20_000) is None


def test_full_disk_pauses_for_ten_seconds_and_loses_nothing() -> None:
    side = ProduceSide()
    timer(side, "a", TIMER_DELAY_MS=1000)
    timer(side, "b", TIMER_DELAY_MS=1000)
    side.store.writable = False
    side.timers.run_due(at(1000), 9)
    assert side.timers.next_deadline(WALL_MS + 1000) == WALL_MS + 11_000
    side.store.writable = True
    run_until(side, 11_000, 1000)
    assert delivered(side) == [("a", 11_000), ("b", 11_000)]


def test_pause_does_not_outlast_a_clock_set_back() -> None:
    side = ProduceSide()
    timer(side, now_ms=100_000, TIMER_DELAY_MS=1)
    side.store.writable = False
    side.timers.run_due(at(101_000), 9)
    side.store.writable = True
    assert side.timers.next_deadline(WALL_MS) == WALL_MS + 100_001


def test_record_that_is_gone_or_odd_is_skipped_with_an_event() -> None:
    side = ProduceSide()
    for key in "abc":
        timer(side, key, TIMER_DELAY_MS=1000)
    del side.store.records[side.store.messages[0][1].phy_offset]
    run_until(side, 1000)
    assert keys(side) == ["b", "c"]
    assert side.events.names().count("timer_skipped") == 1


def test_message_that_waits_long_is_rolled_before_the_log_forgets_it() -> None:
    side = ProduceSide(LONG)
    timer(side, TIMER_DELAY_SEC=100 * 3600)
    run_until(side, 48 * HOUR_MS)
    assert side.timers.rolled_count == 1
    assert side.timers.begin == 1
    assert side.timers.pending_count == 1
    copy, result = side.store.messages[-1]
    assert copy.topic == TIMER_TOPIC
    assert result.store_timestamp == WALL_MS + 48 * HOUR_MS
    assert properties_of(copy)["TIMER_ROLL_TIMES"] == "1"
    take_over(side)
    run_until(side, 101 * HOUR_MS, 48 * HOUR_MS)
    assert delivered(side) == [("K1", 100 * HOUR_MS)]
    assert side.timers.rolled_count == 2


def test_year_is_waited_for() -> None:
    side = ProduceSide(LONG)
    timer(side, TIMER_DELAY_SEC=365 * 86_400)
    run_until(side, 366 * 24 * HOUR_MS)
    assert delivered(side) == [("K1", 365 * 24 * HOUR_MS)]
    assert side.timers.rolled_count == 365 // 2


def test_short_retention_rolls_sooner() -> None:
    side = ProduceSide(attrs.evolve(LONG, file_reserved_time=3))
    timer(side, TIMER_DELAY_SEC=5 * 3600)
    run_until(side, 2 * HOUR_MS)
    assert side.timers.rolled_count == 1


def test_one_old_message_does_not_keep_the_queue_long() -> None:
    side = ProduceSide(timer_capacity=1024)
    timer(side, "old", TIMER_DELAY_SEC=86_400)
    due = timer_record(side, 1000)
    for _ in range(SPAN_MIN):
        side.store.entries[TIMER_TOPIC, 0].append((0, 100, due.tags_code))
    side.store._next_index[TIMER_TOPIC, 0] = SPAN_MIN + 1
    timer(side, "new", TIMER_DELAY_MS=500)
    side.timers.begin = 0
    # The ones between are done.
    side.timers._window._heap = [key for key in side.timers._window._heap if key & 1 << 43]
    take_over_done(side)
    side.timers.run_due(at(2_000), 9)
    assert side.timers.rolled_count == 1


def take_over_done(side: ProduceSide) -> None:
    """Begin with progress that says that everything due within two seconds is done."""
    side.timers.forget()
    numbers = (0, WALL_MS + 2_000, 0, SPAN_MIN + 2, 0)
    for index, number in enumerate(numbers):
        side.offsets.commit(TIMER_GROUP, TIMER_TOPIC, index, number)
    side.timers.load()
    while not side.timers.is_loaded:
        side.timers.run_due(at(1_500), 9)


def test_retention_that_went_ahead_is_reported() -> None:
    side = ProduceSide()
    for key in "abcd":
        timer(side, key, TIMER_DELAY_MS=1000 if key < "d" else 2000)
    side.store.queue_minimum[TIMER_TOPIC, 0] = 2
    run_until(side, 1000)
    assert keys(side) == ["c"]
    assert side.events.names().count("timers_lost") == 1


def test_messages_that_readers_may_not_see_are_not_delivered() -> None:
    side = ProduceSide()
    side.store.dispatching = False
    timer(side, TIMER_DELAY_MS=1000)
    side.timers.run_due(at(2000), 9)
    assert delivered(side) == []
    side.store.dispatch(1 << 30)
    side.store.dispatching = True
    run_until(side, 2000, 2000)
    assert delivered(side) == [("K1", 2000)]


def test_entries_without_notice_are_found() -> None:
    side = ProduceSide()
    side.store.tell_dispatches(None)
    timer(side, "a", TIMER_DELAY_MS=1000)
    side.store.tell_dispatches(side.dispatched)
    timer(side, "b", TIMER_DELAY_MS=1000)
    run_until(side, 1000)
    assert keys(side) == ["a", "b"]
    assert side.timers.pending_count == 0


def test_entries_of_javas_broker_are_read_from_their_records() -> None:
    side = ProduceSide()
    timer(side, TIMER_DELAY_MS=1000)
    store: MemoryStore = side.store
    phy_offset, size, _ = store.entries[TIMER_TOPIC, 0][0]
    store.entries[TIMER_TOPIC, 0][0] = (phy_offset, size, 2598919)
    take_over(side)
    assert side.timers.pending_count == 1
    run_until(side, 1000)
    assert delivered(side) == [("K1", 1000)]


def test_broker_begins_where_rocketmqs_has_stopped() -> None:
    side = ProduceSide()
    for key, delay_ms in (("done", 1_000), ("waits", 5_000), ("new", 900)):
        timer(side, key, TIMER_DELAY_MS=delay_ms)
    # Java's broker has queued two of them, and delivered the slots up to two seconds.
    side.timers.adopt(TimerCheckpoint(WALL_MS + 2_000, 2))
    take_over(side)
    assert side.timers.pending_count == 2
    run_until(side, 9_000, 3_000)
    assert keys(side) == ["new", "waits"]
    # Progress of its own is stronger than an older file.
    side.timers.adopt(TimerCheckpoint(WALL_MS, 0))
    take_over(side)
    assert side.timers.pending_count == 0
    # Another master may not have done what this store's last one did.
    timer(side, "more", TIMER_DELAY_MS=20_000)
    side.timers.adopt(TimerCheckpoint(WALL_MS + 30_000, 9))
    side.timers.follow()
    side.timers.load()
    assert side.timers.pending_count == 1


def test_checkpoint_for_rocketmq_is_the_first_that_waits() -> None:
    side = ProduceSide()
    assert side.timers.checkpoint(WALL_MS) is None
    for key, delay_ms in (("a", 1_000), ("b", 5_000), ("c", 2_000)):
        timer(side, key, TIMER_DELAY_MS=delay_ms)
    run_until(side, 3_000)
    assert side.timers.checkpoint(WALL_MS + 3_456) == TimerCheckpoint(WALL_MS + 3_000, 1)
    side.timers.forget()
    assert side.timers.checkpoint(WALL_MS) is None
