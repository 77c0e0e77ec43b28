"""The registry of links: acks, in-sync set, what is said about them and when."""

from __future__ import annotations

from trioha.ha.replicas import (
    HOSTS_KEPT,
    LEVEL_BYTES,
    REFUSALS_KEPT,
    AbsentHost,
    Replicas,
    SlaveReplica,
)
from trioha.journal.line_limits import LINES_MAX
from trioha.testing.recorded_events import RecordedEvents


def registry(events: RecordedEvents | None = None) -> Replicas:
    return Replicas(
        events or RecordedEvents(),
        fallbehind_max=1000,
        heartbeat_interval_ms=5000,
        housekeeping_ms=20_000,
        stall_ms_max=3000,
    )


def linked(replicas: Replicas, offset: int, most: int, now_ms: int = 0) -> SlaveReplica:
    replica = replicas.connect("10.0.0.2:4000", now_ms)
    replicas.acknowledge(replica, offset, most, now_ms)
    return replica


def test_the_high_water_mark_is_the_best_slave_s_and_never_falls() -> None:
    replicas = registry()
    best = linked(replicas, 500, 800)
    linked(replicas, 300, 800)
    assert replicas.push2slave_max_offset == 500
    replicas.disconnect(best, 800)
    assert replicas.push2slave_max_offset == 500


def test_the_word_of_the_target_of_a_switch_counts_as_an_ack_and_takes_nothing_back() -> None:
    replicas = registry()
    linked(replicas, 500, 800)
    replicas.count_acknowledged(700, 3)
    replicas.count_acknowledged(600, 2)
    assert (replicas.push2slave_max_offset, replicas.push2slave_max_metadata) == (700, 3)
    replicas.begin_term()
    assert (replicas.push2slave_max_offset, replicas.push2slave_max_metadata) == (0, -1)


def test_a_slave_is_available_only_while_connected_reported_and_near() -> None:
    replicas = registry()
    assert not replicas.slave_available(0)
    replica = replicas.connect("10.0.0.2:4000", 0)
    assert not replicas.slave_available(0), "connected, but holds nothing that we know of"
    replicas.acknowledge(replica, 500, 500, 0)
    assert replicas.slave_available(1499)
    assert not replicas.slave_available(1500)
    replicas.disconnect(replica, 500)
    assert not replicas.slave_available(500)


def test_the_journal_has_the_last_ack_before_a_link_ends() -> None:
    """Else the bytes that a slave took since its last sample are in no journal."""
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 500, 800)
    replicas.acknowledge(replica, 700, 800, 10)
    replicas.disconnect(replica, 900)
    last = events.of("ha_progress")[-1]
    assert (last["ack_offset"], last["max_phy_offset"], last["gap_bytes"]) == (700, 900, 200)
    unreported = replicas.connect("10.0.0.3:4000", 20)
    told = len(events.of("ha_progress"))
    replicas.disconnect(unreported, 900)
    assert len(events.of("ha_progress")) == told


def test_an_unreported_link_hides_no_slave_that_is_there() -> None:
    replicas = registry()
    replicas.connect("10.0.0.3:4000", 0)
    linked(replicas, 500, 500)
    assert replicas.slave_available(600)


def test_changes_of_the_in_sync_set_are_told_once() -> None:
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 500, 5000)
    assert events.of("ha_in_sync") == []
    replicas.acknowledge(replica, 4900, 5000, 10)
    replicas.acknowledge(replica, 4950, 5000, 20)
    replicas.on_time(9000, 1010)
    replicas.disconnect(replica, 9000)
    assert [(e["in_sync"], e["gap_bytes"]) for e in events.of("ha_in_sync")] == [
        (True, 100),
        (False, 4050),
    ]


def test_progress_is_told_once_a_second_and_only_when_there_is_some() -> None:
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 0, 0)
    for now_ms in range(10, 3000, 10):
        replicas.transferred(replica, 1, now_ms, now_ms)
        replicas.acknowledge(replica, now_ms, now_ms, now_ms)
        if now_ms >= (replicas.next_deadline_ms() or now_ms):
            replicas.on_time(now_ms, now_ms)
    assert [e["ack_offset"] for e in events.of("ha_progress")] == [1000, 2000]
    replicas.on_time(2990, 3000)
    assert len(events.of("ha_progress")) == 3
    replicas.on_time(2990, 4500)
    assert len(events.of("ha_progress")) == 3


def test_an_idle_link_has_only_its_late_report_to_wait_for() -> None:
    replicas = registry()
    linked(replicas, 100, 100)
    replicas.on_time(100, 1000)
    replicas.on_time(100, 1001)
    assert replicas.next_deadline_ms() == 10_000


def test_a_late_report_is_told_once_until_it_comes() -> None:
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 100, 100)
    replicas.on_time(100, 1000)
    replicas.on_time(100, 9_999)
    assert events.of("ha_heartbeat_late") == []
    replicas.on_time(100, 10_000)
    replicas.on_time(100, 11_000)
    assert [e["age_ms"] for e in events.of("ha_heartbeat_late")] == [10_000]
    assert replicas.next_deadline_ms() in (None,)  # said all there is to say
    replicas.acknowledge(replica, 100, 100, 12_000)
    assert [e["gap_ms"] for e in events.of("ha_heartbeat_resumed")] == [12_000]
    assert replicas.next_deadline_ms() == 22_000


def test_the_gap_of_a_slave_that_takes_nothing_is_told_as_it_grows() -> None:
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 100, 100)
    replicas.transferred(replica, 50, 150, 1000)
    for now_ms in range(1000, 5000, 1000):
        replicas.on_time(100 + now_ms, now_ms)
        assert (replicas.next_deadline_ms() or 1 << 62) <= now_ms + 1000
    assert [e["gap_bytes"] for e in events.of("ha_progress")] == [1000, 2000, 3000, 4000]


def test_a_slave_that_takes_bytes_and_acknowledges_none_leaves_the_in_sync_set() -> None:
    """Fault C8: its disk is read-only, it stays connected, and every put times out."""
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 100, 100)
    replicas.transferred(replica, 50, 150, 1000)
    assert (replicas.next_deadline_ms() or 0) <= 1900
    replicas.on_time(150, 1899)
    assert replicas.slave_available(150)
    replicas.acknowledge(replica, 100, 150, 1899)  # its five-second report: no progress
    replicas.on_time(150, 1900)
    assert not replicas.slave_available(150)
    assert events.of("ha_in_sync")[-1]["in_sync"] is False
    replicas.acknowledge(replica, 150, 150, 9000)
    assert replicas.slave_available(160)
    assert events.of("ha_in_sync")[-1]["in_sync"] is True


def answer_after(replicas: Replicas, replica: SlaveReplica, waited_ms: int, now_ms: int) -> int:
    """Make one transfer and its ack; return the time of the ack."""
    end = replica.slave_ack_offset + 10
    replicas.transferred(replica, 10, end, now_ms)
    replicas.acknowledge(replica, end, end, now_ms + waited_ms)
    return now_ms + waited_ms


def stalls_after_ms(replicas: Replicas, replica: SlaveReplica, now_ms: int) -> int:
    """Return how long the slave may answer nothing until puts no longer wait for it."""
    end = replica.slave_ack_offset + 10
    replicas.transferred(replica, 10, end, now_ms)
    at_ms = now_ms
    while not replica.stalled:
        due_ms = replicas.next_deadline_ms()
        assert due_ms is not None
        at_ms = due_ms
        replicas.on_time(end, at_ms)
    return at_ms - now_ms


def test_a_slave_known_to_be_slow_gets_its_time_but_not_beyond_slave_timeout() -> None:
    """A merely slow one is not given up on: it has shown how long it takes."""
    replicas = registry()
    quick, slow, slower = (linked(replicas, 100, 100) for _ in range(3))
    answer_after(replicas, quick, 5, 1000)
    answer_after(replicas, slow, 250, 1000)
    answer_after(replicas, slower, 800, 1000)
    assert stalls_after_ms(replicas, quick, 10_000) == 900
    assert stalls_after_ms(replicas, slow, 20_000) == 2000
    assert stalls_after_ms(replicas, slower, 30_000) == 3000


def test_slowness_is_forgotten_after_two_minutes() -> None:
    replicas = registry()
    replica = linked(replicas, 100, 100)
    now_ms = answer_after(replicas, replica, 2500, 1000)
    for second in range(1, 130):
        now_ms = answer_after(replicas, replica, 1, 10_000 + 1000 * second)
        replicas.on_time(replica.slave_ack_offset, now_ms)
        assert replica.stall_ms == (3000 if second < 110 else 900)


def test_a_slave_timeout_below_the_least_patience_is_obeyed() -> None:
    replicas = Replicas(
        RecordedEvents(),
        fallbehind_max=1000,
        heartbeat_interval_ms=5000,
        housekeeping_ms=20_000,
        stall_ms_max=200,
    )
    replica = linked(replicas, 100, 100)
    answer_after(replicas, replica, 150, 1000)
    assert stalls_after_ms(replicas, replica, 2000) == 200


def test_a_slave_that_comes_back_is_waited_for_only_once_it_is_level() -> None:
    """RocketMQ lets sends wait for one that has only just connected: 5 s without an OK."""
    replicas = Replicas(
        RecordedEvents(),
        fallbehind_max=256 << 20,
        heartbeat_interval_ms=5000,
        housekeeping_ms=20_000,
        stall_ms_max=3000,
    )
    end = 100 << 20
    replica = replicas.connect("10.0.0.2:4000", 0)
    assert not replicas.slave_available(end)
    for offset in (50 << 20, end - LEVEL_BYTES):
        replicas.acknowledge(replica, offset, end, 0)
        assert not replicas.slave_available(end)
    replicas.acknowledge(replica, end - LEVEL_BYTES + 1, end, 0)
    assert replicas.slave_available(end)
    # Once in, it stays while it is less than haSlaveFallbehindMax behind.
    replicas.on_time(end + (200 << 20), 1000)
    assert replicas.slave_available(end + (200 << 20))


def test_a_slave_that_is_far_behind_but_moves_is_not_stalled() -> None:
    replicas = registry()
    replica = linked(replicas, 0, 100_000)
    for now_ms in range(1000, 20_000, 1000):
        replicas.transferred(replica, 100, now_ms, now_ms)
        replicas.acknowledge(replica, now_ms // 10, 100_000, now_ms)
        replicas.on_time(100_000, now_ms)
        assert not replica.stalled


def test_statistics_have_every_number_of_ha_status() -> None:
    replicas = registry()
    replica = linked(replicas, 400, 500)
    replicas.transferred(replica, 1_000_000, 500, 500)
    (row,) = replicas.statistics(600, 2000)
    assert (row.peer, row.slave_ack_offset, row.gap_bytes, row.in_sync) == (
        "10.0.0.2:4000",
        400,
        200,
        True,
    )
    assert (row.last_ack_age_s, row.connected_s) == (2.0, 2.0)
    assert (row.heartbeat_interval_s, row.housekeeping_s) == (5.0, 20.0)
    assert row.transferred_bytes_per_s == 500_000


def test_the_rate_of_a_link_that_has_gone_quiet_falls() -> None:
    replicas = registry()
    replica = linked(replicas, 0, 0)
    for now_ms in range(100, 1600, 100):
        replicas.transferred(replica, 1000, now_ms, now_ms)
    assert replicas.statistics(0, 1600)[0].transferred_bytes_per_s == 10_000
    assert replicas.statistics(0, 60_000)[0].transferred_bytes_per_s < 100


def test_refusals_are_told_kept_and_bounded() -> None:
    events = RecordedEvents()
    replicas = registry(events)
    for number in range(20):
        replicas.refuse(f"10.0.0.{number}:1", "why", number)
    assert len(events.of("ha_refused")) == 20
    assert len(replicas.refusals) == REFUSALS_KEPT
    assert replicas.refusals[-1].peer == "10.0.0.19:1"
    for number in range(1000):
        replicas.refuse(f"10.0.1.1:{number}", f"not {number}", 0)
    assert len(events.of("ha_refused")) == 20 + LINES_MAX


def test_a_slave_that_comes_back_brings_the_story_of_its_host() -> None:
    replicas = registry()
    first = linked(replicas, 0, 0)
    (row,) = replicas.statistics(0, 0)
    assert (row.reconnects, row.last_error, row.last_error_age_s) == (0, "", None)
    replicas.disconnect(first, 0)
    replicas.lose(first.peer, "connection reset", 1000)
    assert replicas.absent(3000) == (AbsentHost("10.0.0.2", 1, "connection reset", 2.0),)
    again = replicas.connect("10.0.0.2:4711", 3000)
    (row,) = replicas.statistics(0, 3000)
    assert (row.reconnects, row.last_error, row.last_error_age_s) == (0, "connection reset", 2.0)
    replicas.acknowledge(again, 0, 0, 3000)
    assert replicas.statistics(0, 3000)[0].reconnects == 1
    assert replicas.absent(3000) == ()


def test_hosts_are_remembered_up_to_a_limit_and_slaves_longer_than_strangers() -> None:
    replicas = registry()
    replica = linked(replicas, 0, 0)
    for number in range(2 * HOSTS_KEPT):
        replicas.refuse(f"10.0.1.{number}:1", "why", number)
        replicas.lose(replica.peer, "again", number)
    assert len(replicas._hosts) == HOSTS_KEPT
    assert replicas.statistics(0, 0)[0].last_error == "again"


def test_a_doubt_is_told_and_stays_with_the_link() -> None:
    events = RecordedEvents()
    replicas = registry(events)
    replica = linked(replicas, 10, 0)
    replicas.doubt(replica, "its log may differ")
    assert replicas.statistics(10, 0)[0].doubt == "its log may differ"
    assert len(events.of("ha_doubtful")) == 1
