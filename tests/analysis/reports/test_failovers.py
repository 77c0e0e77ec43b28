"""Periods of mastership, from journals that end in every way there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.stores.journals import Diary, at, engine_over

from trioha.analysis.engine import Window
from trioha.analysis.reports import failovers
from trioha.analysis.reports.lives import journal_labels
from trioha.analysis.reports.witnesses import OWN_END, is_same_address
from trioha.analysis.results import Report, ReportOptions

OPTIONS = ReportOptions(now_ms=at(10_000))


def report_of(*diaries: Diary, window: Window | None = None) -> Report:
    with engine_over(*diaries, window=window) as engine:
        return failovers.run(engine, OPTIONS)


def rows(report: Report, name: str) -> list[dict[str, Any]]:
    table = next(table for table in report.tables if table.name == name)
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


@pytest.fixture
def a(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "a", "broker-a:0")


@pytest.fixture
def b(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "b", "broker-a:1")


def failover(a: Diary, b: Diary) -> None:
    """A is killed at 60 s, B is stopped at 70 s and comes back as the master at 75 s."""
    a.start(0, "SYNC_MASTER", ha_listen="127.0.0.1:20001")
    b.start(2, "SLAVE", ha_listen="127.0.0.1:20005")
    b.tell(4, "ha_connected", peer="127.0.0.1:20001", offset=0)
    a.alive(55, "SYNC_MASTER")
    b.tell(60, "ha_disconnected", peer="127.0.0.1:20001", reason="the master closed the link")
    b.stop(70)
    b.start(74, "SYNC_MASTER", "broker-a:0", ha_listen="127.0.0.1:20005")
    a.start(100, "SLAVE", "broker-a:1", ha_listen="127.0.0.1:20001")
    a.stop(200)
    b.stop(201)


def test_a_failover_by_hand_is_an_outage_from_death_to_the_new_master(a: Diary, b: Diary) -> None:
    failover(a, b)
    report = report_of(a, b)
    first, last = rows(report, "outages")
    assert (first["begin_ms"], first["end_ms"]) == (at(60), at(75))
    assert first["cause"] == "it was killed, or its machine died"
    assert (first["before"], first["after"]) == ("broker-a:0", "broker-a:0")
    assert not first["is_planned"]
    # Both brokers were stopped in the end: no writable master since.
    assert (last["begin_ms"], last["end_ms"]) == (at(200.5), None)
    (broker,) = rows(report, "brokers")
    assert broker["from_ms"] == at(1)
    assert broker["observed_ms"] == 200_000
    assert broker["lost_ms"] == 15_000 + 500
    assert broker["mttr_ms"] == 15_000
    assert broker["availability"] == pytest.approx(1 - 15.5 / 200)
    assert (broker["outages"], broker["unplanned"]) == (2, 1)
    assert report.exit_code == 0


def test_lives_tell_how_each_began_and_ended(a: Diary, b: Diary) -> None:
    failover(a, b)
    lives = rows(report_of(a, b), "lives")
    told = [
        (x["store"], x["node"], x["role"], x["begin_ms"], x["end_ms"], x["ending"]) for x in lives
    ]
    assert told == [
        ("a", "broker-a:0", "SYNC_MASTER", at(0), at(60), "killed"),
        ("a", "broker-a:1", "SLAVE", at(100), at(200), "stopped"),
        ("b", "broker-a:1", "SLAVE", at(2), at(70), "stopped"),
        ("b", "broker-a:0", "SYNC_MASTER", at(74), at(201), "stopped"),
    ]
    assert all(life["start_up_ms"] == 1000 for life in lives)


def test_the_timeline_has_a_lane_per_store_and_one_for_outages(a: Diary, b: Diary) -> None:
    failover(a, b)
    chart = report_of(a, b).charts[0]
    assert [series.label for series in chart.series] == [
        "a (broker-a:0, broker-a:1)",
        "b (broker-a:1, broker-a:0)",
        "broker-a",
    ]
    assert list(chart.series[0].points) == [
        (at(0), at(1), "starting"),
        (at(1), at(60), "SYNC_MASTER"),
        (at(60), at(60), "killed"),
        (at(100), at(101), "starting"),
        (at(101), at(200), "SLAVE"),
    ]


def test_a_name_server_s_journal_dates_a_death(a: Diary, tmp_path: Path) -> None:
    namesrv = Diary(tmp_path / "n", "namesrv")
    namesrv.start(0, "")
    a.start(1, "ASYNC_MASTER")
    gone = {"broker": "broker-a", "id": 0, "address": "127.0.0.1:10911", "cluster": "C"}
    namesrv.tell(30, "broker_unregistered", **gone, reason="connection closed")
    (outage,) = rows(report_of(a, namesrv), "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(30), None)


def test_a_node_that_stopped_in_order_was_not_killed(a: Diary, b: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    a.stop(10)
    a.start(20, "ASYNC_MASTER")
    a.alive(80, "ASYNC_MASTER")
    report = report_of(a)
    (outage,) = rows(report, "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(9.5), at(21))
    assert outage["is_planned"]
    assert outage["cause"] == "it stopped in order at 12:00:10"
    assert [finding.severity for finding in report.findings] == ["warning", "info"]
    assert rows(report, "lives")[-1]["ending"] == "still there"


def test_a_failed_node_says_why(a: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    a.tell(10, "node_stopped", reason="StoreError: no space")
    (outage,) = rows(report_of(a), "outages")
    assert outage["cause"] == "it failed: StoreError: no space"
    assert outage["end_ms"] is None


def test_a_broker_whose_journal_falls_silent_while_others_go_on_is_dead(a: Diary, b: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    a.alive(60, "ASYNC_MASTER")
    b.start(0, "SLAVE")
    b.alive(149, "SLAVE")
    assert rows(report_of(a, b), "outages") == []
    b.alive(151, "SLAVE")
    (outage,) = rows(report_of(a, b), "outages")
    assert outage["begin_ms"] == at(60)


def test_refused_writes_are_an_outage_while_they_last(a: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    a.tell(10, "write_refused", reason="the disk is full")
    a.tell(40, "write_resumed", reason="space has returned")
    a.tell(50, "write_refused", reason="the disk is full")
    a.alive(60, "ASYNC_MASTER", refused=7)
    a.stop(70)
    report = report_of(a)
    told = [(x["begin_ms"], x["end_ms"], x["cause"]) for x in rows(report, "outages")]
    assert told == [
        (at(10), at(40), "writes refused: the disk is full"),
        (at(50), at(69.5), "writes refused: the disk is full"),
        (at(69.5), None, "it stopped in order at 12:01:10"),
    ]
    (broker,) = rows(report, "brokers")
    assert broker["lost_ms"] == 30_000 + 19_500 + 500
    counts = {row["what"]: row["count"] for row in rows(report, "refusals")}
    assert counts == {"sends refused": 7, "writes refused: the disk is full": 2}


def test_mean_times_of_crashes_and_of_planned_stops_are_apart(a: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    a.stop(10)
    a.start(11, "ASYNC_MASTER")  # serves a second later: 2.5 s
    a.tell(50, "node_stopped", reason="StoreError: no space")
    a.start(69, "ASYNC_MASTER")
    a.alive(80, "ASYNC_MASTER")
    (broker,) = rows(report_of(a), "brokers")
    assert (broker["mttr_ms"], broker["planned_mean_ms"]) == (20_000, 2_500)


def test_a_death_lies_between_the_last_word_and_the_moment_it_was_noticed(
    a: Diary, b: Diary
) -> None:
    failover(a, b)
    first, _ = rows(report_of(a, b), "outages")
    assert (first["lasted_min_ms"], first["lasted_ms"], first["lasted_max_ms"]) == (
        *(15_000, 15_000),
        20_000,
    )


def test_a_master_that_died_right_after_it_began_was_one(a: Diary, b: Diary) -> None:
    """Its last event was its first as a master, and no other node noticed its death."""
    a.start(0, "SYNC_MASTER")
    b.start(0, "SLAVE")
    become(b, 8, "SYNC_MASTER", 2)
    a.start(9, "SLAVE", "broker-a:0")
    a.alive(20, "SLAVE")
    report = report_of(a, b)
    (outage,) = rows(report, "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(1), at(8))
    assert (outage["lasted_min_ms"], outage["lasted_max_ms"]) == (0, 7_000)


def test_a_counter_that_is_sampled_gives_bounds_not_moments(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    waits: dict[str, object] = dict.fromkeys(("puts", "waited_ms", "longest_ms", "timeouts"), 0)
    for at_s, unavailable in ((11, 0), (21, 5), (31, 2), (41, 0)):
        a.tell(at_s, "sync_waits", **waits, bins=[0], unavailable=unavailable)
    a.stop(50)
    (row,) = rows(report_of(a), "refusals")
    assert row["count"] == 7
    assert row["what"].startswith("puts answered SLAVE_NOT_AVAILABLE")
    assert (row["first_ms"], row["first_by_ms"]) == (at(11), at(21))
    assert (row["last_from_ms"], row["last_ms"]) == (at(21), at(31))


def test_two_masters_at_a_time_are_an_error(a: Diary, b: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    a.alive(55, "SYNC_MASTER")
    b.start(30, "SYNC_MASTER", "broker-a:0")
    b.alive(60, "SYNC_MASTER")
    a.alive(60, "SYNC_MASTER")
    report = report_of(a, b)
    assert report.exit_code == 1
    assert report.findings[0].severity == "error"
    assert "had two masters" in report.findings[0].text


def become(diary: Diary, at_s: float, role: str, epoch: int | None = None) -> None:
    """The node goes on in another role, as a master in a term of its own."""
    if epoch is not None:
        diary.tell(at_s, "epoch_began", epoch=epoch, start_offset=100 * epoch, sync=True)
    intervals = {"heartbeat_interval_ms": 5000, "heartbeat_limit_ms": 20_000}
    diary.tell(at_s, "role", role=role, broker_id=0 if "MASTER" in role else 1, **intervals)


def labels(report: Report) -> list[str]:
    return [point[2] for series in report.charts[0].series for point in series.points]


def test_a_planned_switch_is_an_outage_from_the_pause_on(a: Diary, b: Diary) -> None:
    a.tell(0, "epoch_began", epoch=1, start_offset=0, sync=True)
    a.start(0, "SYNC_MASTER")
    b.start(0, "SLAVE")
    a.tell(29, "writes_paused", ticket="T", log_end=200)
    a.tell(30, "fenced", epoch=2, reason="handed over to 1 for epoch 2")
    become(a, 30, "SLAVE")
    become(b, 32, "SYNC_MASTER", 2)
    for diary in (a, b):
        diary.tell(33, "failover", ticket="T", operator="eve", result="done", message="1 is master")
    a.alive(60, "SLAVE")
    b.alive(60, "SYNC_MASTER")
    report = report_of(a, b)
    (outage,) = rows(report, "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(29), at(32))
    assert outage["is_planned"]
    assert outage["cause"] == "handed over to 1 for epoch 2"
    assert (outage["before"], outage["after"]) == ("broker-a:0", "broker-a:1")
    assert {"SYNC_MASTER epoch 1", "SYNC_MASTER epoch 2", "SLAVE"} <= set(labels(report))
    (switch,) = rows(report, "switches")
    assert (switch["operator"], switch["result"]) == ("eve", "done")
    assert switch["nodes"] == "broker-a:0, broker-a:1"


def test_a_master_that_is_fenced_by_a_newer_epoch_was_not_relieved_by_plan(
    a: Diary, b: Diary
) -> None:
    a.start(0, "SYNC_MASTER")
    b.start(0, "SLAVE")
    become(b, 30, "SYNC_MASTER", 2)
    a.tell(30.5, "fenced", epoch=2, reason="1 holds epoch 2")
    become(a, 30.6, "SLAVE")
    become(b, 50, "SLAVE")
    become(a, 55, "SYNC_MASTER", 3)
    a.alive(60, "SYNC_MASTER")
    b.alive(60, "SLAVE")
    report = report_of(a, b)
    (outage,) = rows(report, "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(50), at(55))
    assert report.exit_code == 0  # half a second of two masters is what a switch takes to be heard
    roles = {row["node"]: (row["role"], row["epoch"]) for row in rows(report, "lives")}
    assert roles["broker-a:0"] == ("SYNC_MASTER → SLAVE → SYNC_MASTER", 3)
    assert roles["broker-a:1"] == ("SLAVE → SYNC_MASTER → SLAVE", 2)


def test_a_master_that_is_fenced_with_nobody_to_follow_is_an_outage(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    a.tell(30, "fenced", epoch=2, reason="1 holds epoch 2")
    a.alive(60, "SYNC_MASTER")
    (outage,) = rows(report_of(a), "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(30), None)
    assert not outage["is_planned"]
    assert outage["cause"] == "1 holds epoch 2"


def test_a_switch_that_is_given_up_cost_its_pause(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    a.tell(30, "writes_paused", ticket="T", log_end=200)
    a.tell(33, "writes_resumed", ticket="T", reason="its deadline has passed")
    a.alive(60, "SYNC_MASTER")
    (outage,) = rows(report_of(a), "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(30), at(33))
    assert outage["cause"] == "writes refused: a switch: its deadline has passed"


def test_a_master_that_comes_back_goes_on_in_its_term(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    become(a, 5, "SYNC_MASTER", 4)
    a.stop(10)
    a.start(20, "SYNC_MASTER")
    a.alive(60, "SYNC_MASTER")
    assert [row["epoch"] for row in rows(report_of(a), "lives")] == [4, 4]


def test_a_journal_that_has_forgotten_its_beginning_still_tells_the_role(a: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    for minute in range(1, 5):
        a.alive(60 * minute, "ASYNC_MASTER")
    a.stop(250)
    report = report_of(a, window=Window(from_ms=at(70)))
    (broker,) = rows(report, "brokers")
    assert (broker["from_ms"], broker["lost_ms"]) == (at(120), 500)


def test_no_broker_is_said_in_words(tmp_path: Path) -> None:
    namesrv = Diary(tmp_path / "n", "namesrv")
    namesrv.start(0, "")
    report = report_of(namesrv)
    assert [finding.text for finding in report.findings] == ["The journals tell of no broker."]
    assert report.charts == []


def test_labels_are_what_differs() -> None:
    labels = journal_labels(["/x/broker-a-0/store/journal", "/x/broker-a-1/store/journal"])
    assert list(labels.values()) == ["broker-a-0", "broker-a-1"]
    assert journal_labels(["/x/store/journal"]) == {"/x/store/journal": "store"}
    assert journal_labels([]) == {}


def test_a_listener_on_every_address_is_known_by_its_port() -> None:
    assert is_same_address("0.0.0.0:10912", "10.0.0.1:10912")
    assert is_same_address("10.0.0.1:10912", "10.0.0.1:10912")
    assert not is_same_address("10.0.0.2:10912", "10.0.0.1:10912")
    assert not is_same_address("", "10.0.0.1:10912")


def test_a_slave_that_stops_says_nothing_of_its_master(a: Diary, b: Diary) -> None:
    a.start(0, "SYNC_MASTER", ha_listen="127.0.0.1:20001")
    b.start(2, "SLAVE")
    a.tell(30, "ha_disconnected", peer="127.0.0.1:5", reason="the slave closed the link")
    b.tell(30.1, "ha_disconnected", peer="127.0.0.1:20001", reason=OWN_END)
    b.stop(31)
    assert rows(report_of(a, b), "outages") == []


def test_outages_of_one_cause_share_a_finding(a: Diary) -> None:
    for begin_s in (0, 100, 200, 300):
        a.start(begin_s, "ASYNC_MASTER")
        a.stop(begin_s + 50)
    warnings = [x.text for x in report_of(a).findings if x.severity == "warning"]
    assert len(warnings) == 2, "those that are over, and the one that lasts"
    assert "broker-a had no writable master 3 times, 2.6 min in all, first from" in warnings[0]
    assert warnings[0].endswith(
        "the longest lasted 51.5 s from 2025-11-20 12:00:49Z "
        "(broker-a:0 in a: it stopped in order)."
    )
