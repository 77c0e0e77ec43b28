from __future__ import annotations

import pytest
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import GROUP, TOPIC, add_topics

from trioha.watch.history import History, TimeSeries
from trioha.watch.snapshot import ClusterSnapshot


def test_a_rate_is_between_points_of_the_window() -> None:
    series = TimeSeries()
    for second in range(10):
        series.add(second * 1000, second * second)
    assert series.per_second(2000) == pytest.approx((81 - 49) / 2)


def test_steps_without_a_point_are_holes() -> None:
    series = TimeSeries()
    series.add(1000, 1)
    series.add(4000, 4)
    assert series.last(4, 1000, 4000) == [1, None, None, 4]


def test_a_point_no_later_than_the_last_is_left_out() -> None:
    series = TimeSeries()
    series.add(1000, 1)
    series.add(1000, 2)
    series.add(2000, None)
    assert list(series.points) == [(1000, 1)]
    assert series.per_second() is None


def test_a_gap_that_closes_has_a_time_to_catch_up_and_one_that_grows_has_none() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    history = History()
    for gap in (4000, 3000, 2000):
        cluster.link(master)["gap_bytes"] = gap
        cluster.tick()
        history.add(ClusterSnapshot.of(cluster.raw()))
    assert history.of(slave).eta_s == pytest.approx(2.0)
    cluster.link(master)["gap_bytes"] = 9000
    cluster.tick()
    history.add(ClusterSnapshot.of(cluster.raw()))
    assert history.of(slave).eta_s is None


def test_a_lag_that_shrinks_has_a_time_to_catch_up_at_the_pace_of_the_last_minute() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    history = History()

    def look(lag: int) -> tuple[float | None, float | None]:
        cluster.tick(20_000)
        cluster.say(master, "progress", {GROUP: {TOPIC: [[0, 9000, 9000 - lag, 1]]}})
        history.add_groups(ClusterSnapshot.of(cluster.raw()))
        return history.lag_growth(GROUP), history.group_eta_s(GROUP)

    assert history.group_eta_s(GROUP) is None
    assert look(8000) == (None, None)
    assert look(7000) == (-50.0, 140.0)
    assert look(6000) == (-50.0, 120.0)
    assert look(5000) == (-50.0, 100.0)
    # Three steps make a minute: the first look is out of it from here on.
    assert look(7000) == (0.0, None)
    assert look(7200) == (20.0, None)
    assert look(0)[1] == 0.0


def test_the_rate_of_puts_is_that_of_its_counter_and_a_restart_is_no_rate() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    history = History()
    history.add(ClusterSnapshot.of(cluster.raw()))
    for total in (1500, 10, 30):
        cluster.statuses[master]["put_total"] = total
        cluster.tick()
        history.add(ClusterSnapshot.of(cluster.raw()))
    rates = [value for _, value in history.of(master).put_rate.points]
    assert rates == [500.0, 20.0]


def test_a_change_of_state_is_dated_only_if_it_was_seen() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    history = History()
    history.add(ClusterSnapshot.of(cluster.raw()))
    assert not history.of(slave).since_is_known
    cluster.silent[slave] = "gone"
    cluster.tick()
    history.add(ClusterSnapshot.of(cluster.raw()))
    assert (history.of(slave).state, history.of(slave).since_ms) == ("unreachable", cluster.wall_ms)
    assert history.of(slave).since_is_known
    assert not history.of(master).since_is_known


def test_a_rate_is_not_known_until_every_broker_has_answered_twice() -> None:
    cluster = RawCluster()
    masters = [cluster.add_set(name)[0] for name in ("broker-a", "broker-b")]
    history = History()

    def look() -> tuple[float | None, float | None]:
        snapshot = ClusterSnapshot.of(cluster.raw())
        history.add_topics(snapshot)
        history.add_groups(snapshot)
        return history.topic(TOPIC).per_second(), history.lag(GROUP).per_second()

    add_topics(cluster, masters[0])
    assert look() == (None, None)
    cluster.tick(300)
    add_topics(cluster, *masters)  # the second broker answers: its queues are no growth
    assert look() == (None, None)
    cluster.tick()
    add_topics(cluster, *masters)
    assert look() == (0, 0)
