"""Links as both ends tell of them: sessions, gaps, silences, waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.journals import Diary, at, engine_over
from support.stores.told import ToldStore

from trioha.analysis.reports import replication
from trioha.analysis.reports.log_clock import Behind, LogClock
from trioha.analysis.results import Report, ReportOptions

OPTIONS = ReportOptions(now_ms=at(10_000))
SLAVE_PORT = "127.0.0.1:40001"
HA = "127.0.0.1:20001"


def report_of(*diaries: Diary) -> Report:
    with engine_over(*diaries) as engine:
        return replication.run(engine, OPTIONS)


def rows(report: Report, name: str) -> list[dict[str, Any]]:
    table = next(table for table in report.tables if table.name == name)
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


@pytest.fixture
def master(tmp_path: Path) -> Diary:
    diary = Diary(tmp_path / "a", "broker-a:0")
    diary.start(0, "SYNC_MASTER", ha_listen=HA)
    return diary


@pytest.fixture
def slave(tmp_path: Path) -> Diary:
    diary = Diary(tmp_path / "b", "broker-a:1")
    diary.start(1, "SLAVE", ha_listen="127.0.0.1:20005")
    return diary


def connect(
    master: Diary,
    slave: Diary,
    at_s: float,
    peer: str = SLAVE_PORT,
    offset: int = 0,
    gap_bytes: int = 0,
) -> None:
    """Write what nodes write: the first ack puts a slave in sync before `ha_connected`."""
    master.tell(at_s, "ha_in_sync", peer=peer, in_sync=True, gap_bytes=gap_bytes)
    master.tell(at_s, "ha_connected", peer=peer, offset=offset)
    slave.tell(at_s + 0.1, "ha_connected", peer=HA, offset=offset)


def disconnect(master: Diary, at_s: float, peer: str = SLAVE_PORT) -> None:
    master.tell(at_s, "ha_in_sync", peer=peer, in_sync=False, gap_bytes=0)
    master.tell(at_s, "ha_disconnected", peer=peer, reason="the slave closed the link")


def test_both_ends_of_a_link_are_one_session(master: Diary, slave: Diary) -> None:
    connect(master, slave, 10)
    master.progress(20, SLAVE_PORT, 900, 1000)
    slave.progress(20, HA, 900, 1000)
    disconnect(master, 30)
    master.stop(50)
    slave.stop(50)
    report = report_of(master, slave)
    (session,) = rows(report, "sessions")
    assert session["link"] == "broker-a:0 → broker-a:1"
    assert (session["begin_ms"], session["end_ms"]) == (at(10), at(30))
    assert session["reason"] == "the slave closed the link"
    assert session["transferred_bytes"] == 900
    (link,) = rows(report, "links")
    assert (link["connected_ms"], link["in_sync"]) == (20_000, 1.0)
    assert link["gap_max_bytes"] == 100


def test_a_slave_s_own_word_is_used_where_its_master_is_silent(slave: Diary) -> None:
    slave.tell(10, "ha_connected", peer=HA, offset=500)
    slave.progress(12, HA, 800, 900)
    slave.tell(15, "ha_disconnected", peer=HA, reason="the master closed the link")
    (session,) = rows(report_of(slave), "sessions")
    assert session["link"] == f"{HA} → broker-a:1"
    assert (session["lasted_ms"], session["transferred_bytes"]) == (5000, 300)


def test_a_killed_master_s_session_has_what_its_slave_still_took(
    master: Diary, slave: Diary
) -> None:
    connect(master, slave, 10)
    master.progress(20, SLAVE_PORT, 900, 1000)
    slave.progress(20.7, HA, 1400, 1400)
    slave.tell(20.7, "ha_disconnected", peer=HA, reason="the master closed the link")
    slave.stop(50)
    (session,) = rows(report_of(master, slave), "sessions")
    assert session["transferred_bytes"] == 1400


def test_without_a_slave_s_journal_it_has_its_host_s_name(master: Diary) -> None:
    for number in range(3):
        peer = f"10.0.0.2:{4000 + number}"
        master.tell(10 + number, "ha_connected", peer=peer, offset=0)
        master.tell(10.5 + number, "ha_disconnected", peer=peer, reason="gone")
    (link,) = rows(report_of(master), "links")
    assert (link["link"], link["sessions"]) == ("broker-a:0 → 10.0.0.2", 3)
    assert link["connected_ms"] == 1500


def test_sessions_end_with_the_node_that_tells_of_them(master: Diary, slave: Diary) -> None:
    connect(master, slave, 10)
    slave.tell(40, "ha_disconnected", peer=HA, reason="the master closed the link")
    master.start(60, "SYNC_MASTER", ha_listen=HA)
    master.stop(70)
    (session,) = rows(report_of(master, slave), "sessions")
    assert (session["end_ms"], session["reason"]) == (at(40), "this node was killed")


def test_seconds_behind_are_the_age_of_the_oldest_byte_that_lacks(
    master: Diary, slave: Diary
) -> None:
    connect(master, slave, 10)
    for second in range(11, 21):
        end = (second - 10) * 1000
        master.progress(second, SLAVE_PORT, min(end, 4000), end)
    master.progress(21, SLAVE_PORT, 10_000, 10_000)
    report = report_of(master, slave)
    (link,) = rows(report, "links")
    # At 20 s the log ended at 10000; the slave's 4000 had been its end at 14 s.
    assert (link["gap_max_bytes"], link["behind_max_ms"]) == (6000, 6000)
    behind = next(chart for chart in report.charts if chart.title.startswith("Time behind"))
    points = dict(behind.series[0].points)
    assert points[at(14)] == 0
    assert points[at(17)] == 3000
    assert points[at(20)] == 6000


def test_a_gap_lasts_until_the_next_sample_and_ends_with_the_link(
    master: Diary, slave: Diary
) -> None:
    connect(master, slave, 10)
    master.progress(11, SLAVE_PORT, 0, 700)
    disconnect(master, 15)
    connect(master, slave, 20, "127.0.0.1:40002")
    master.progress(21, "127.0.0.1:40002", 700, 700)
    master.stop(25)
    report = report_of(master, slave)
    gaps = next(chart for chart in report.charts if chart.title.startswith("Bytes behind"))
    points = dict(gaps.series[0].points)
    assert [points[at(second)] for second in (10, 11, 14, 15, 16, 20, 21, 24)] == [
        *(None, 700, 700, 700, None),
        *(None, 0, 0),
    ]


def test_catching_up_is_timed_until_the_slave_is_within_a_second(
    master: Diary, slave: Diary
) -> None:
    master.alive(5, "SYNC_MASTER", 1)
    for second in range(6, 10):
        master.alive(second, "SYNC_MASTER", (second - 5) * 10_000)
    connect(master, slave, 10, gap_bytes=40_000)
    master.progress(11, SLAVE_PORT, 15_000, 40_000)
    master.progress(12, SLAVE_PORT, 30_000, 40_000)
    master.progress(13, SLAVE_PORT, 40_000, 40_000)
    (session,) = rows(report_of(master, slave), "sessions")
    assert session["catch_up_ms"] == 3000
    assert session["catch_up_rate"] == pytest.approx(40_000 / 3)


def test_a_slave_that_came_level_has_nothing_to_catch_up(master: Diary, slave: Diary) -> None:
    connect(master, slave, 10)
    master.progress(11, SLAVE_PORT, 15_000, 40_000)
    master.progress(12, SLAVE_PORT, 40_000, 40_000)
    (session,) = rows(report_of(master, slave), "sessions")
    assert session["catch_up_ms"] is None


def test_silences_are_told_with_how_they_ended(master: Diary, slave: Diary) -> None:
    connect(master, slave, 10)
    master.tell(20, "ha_heartbeat_late", peer=SLAVE_PORT, age_ms=10_000)
    master.tell(23, "ha_heartbeat_resumed", peer=SLAVE_PORT, gap_ms=13_000)
    master.tell(40, "ha_heartbeat_late", peer=SLAVE_PORT, age_ms=10_000)
    disconnect(master, 50.5)
    report = report_of(master, slave)
    told = [(x["begin_ms"], x["gap_ms"], x["beyond"], x["end"]) for x in rows(report, "silences")]
    assert told == [
        (at(10), 13_000, "interval", "it spoke again"),
        (at(30), 20_500, "limit", "the link ended"),
    ]
    texts = [finding.text for finding in report.findings]
    assert any("1 link fell silent" in text and "20.5 s" in text for text in texts)
    assert any("1 heartbeat came late" in text for text in texts)


def test_waits_of_puts_are_added_up_by_node(master: Diary, slave: Diary) -> None:
    zeros = [0] * 16
    for at_s, longest, bins, timeouts in ((10, 3, [90, 0, 9, 0], 0), (20, 900, [0] * 10 + [1], 2)):
        master.tell(
            at_s,
            "sync_waits",
            puts=sum(bins),
            waited_ms=longest,
            longest_ms=longest,
            bins=(bins + zeros)[:16],
            timeouts=timeouts,
            unavailable=1,
        )
    report = report_of(master)
    (waits,) = rows(report, "sync_waits")
    assert waits == {
        "node": "broker-a:0",
        "puts": 100,
        "average_ms": 9.03,
        "p50_below_ms": 1,
        "p99_below_ms": 4,
        "longest_ms": 900,
        "timeouts": 2,
        "unavailable": 2,
    }
    histogram = next(chart for chart in report.charts if chart.kind == "histogram")
    assert list(histogram.series[0].points)[:3] == [(0, 1, 90), (1, 2, 0), (2, 4, 9)]
    assert sum(point[2] for point in histogram.series[0].points) == 100
    bars = next(chart for chart in report.charts if chart.kind == "bar")
    assert dict(bars.series[0].points) == {at(10): 0, at(20): 2}


def test_the_share_in_sync_is_of_the_time_under_a_master(master: Diary, slave: Diary) -> None:
    connect(master, slave, 11)
    disconnect(master, 41)
    # A second slave, at times beside the first.
    master.tell(31, "ha_in_sync", peer="127.0.0.1:5", in_sync=True, gap_bytes=0)
    master.tell(31, "ha_connected", peer="127.0.0.1:5", offset=0)
    master.tell(51, "ha_in_sync", peer="127.0.0.1:5", in_sync=False, gap_bytes=0)
    master.tell(51, "ha_disconnected", peer="127.0.0.1:5", reason="gone")
    master.stop(101.5)
    (broker,) = rows(report_of(master, slave), "in_sync")
    assert (broker["served_ms"], broker["in_sync_ms"]) == (100_000, 40_000)
    assert broker["share"] == 0.4


def test_refused_links_are_counted_by_reason(master: Diary) -> None:
    for number in range(5):
        master.tell(number + 5, "ha_refused", peer=f"10.0.0.9:{number}", reason="no proof")
    (refusal,) = rows(report_of(master), "refusals")
    assert (refusal["peer_host"], refusal["count"]) == ("10.0.0.9", 5)


def test_no_link_is_said_in_words(tmp_path: Path) -> None:
    namesrv = Diary(tmp_path / "n", "namesrv")
    namesrv.start(0, "")
    texts = [finding.text for finding in report_of(namesrv).findings]
    assert texts == ["The journals tell of no replication link."]


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), min_size=1, max_size=20),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
)
def test_who_is_further_is_never_further_behind(
    steps: list[tuple[int, int]], ack: int, further: int
) -> None:
    clock = LogClock()
    at_ms = end = 0
    clock.add(0, 0)
    for elapsed, grown in steps:
        at_ms, end = at_ms + elapsed, end + grown
        clock.add(at_ms, end)
    ack, further = sorted((min(ack, end), min(further, end)))
    near, far = clock.behind(at_ms, further, end), clock.behind(at_ms, ack, end)
    assert near.most_ms is not None
    assert far.most_ms is not None
    assert 0 <= near.least_ms <= far.least_ms <= at_ms
    assert near.least_ms <= near.most_ms <= far.most_ms <= at_ms
    assert clock.behind(at_ms, end, end) == Behind(0, 0)


@given(st.data())
def test_the_age_of_the_oldest_missing_byte_is_within_its_bounds(data: st.DataObject) -> None:
    """Records with known times, hours of idleness between them, and samples of the log's end."""
    clock, at_ms, end = LogClock(), 0, 0
    written: list[tuple[int, int]] = []
    """(store time, offset) of each record."""
    clock.add(0, 0)
    pause = st.sampled_from([1, 10, 300, 1000, 60_000, 3_600_000])
    for _ in range(data.draw(st.integers(1, 12))):
        at_ms += data.draw(pause)
        if data.draw(st.booleans()):
            size = data.draw(st.integers(1, 500))
            written.append((at_ms, end))
            end += size
        if data.draw(st.booleans()):
            clock.add(at_ms, end)
    at_ms += data.draw(pause)
    ack = data.draw(st.sampled_from([offset for _, offset in written] or [0]))
    behind = clock.behind(at_ms, ack, end)
    truth = at_ms - next(stored_ms for stored_ms, offset in written if offset == ack) if end else 0
    assert behind.most_ms is not None
    assert behind.least_ms <= truth <= behind.most_ms


def test_an_idle_hour_before_a_burst_is_not_time_behind(master: Diary, slave: Diary) -> None:
    connect(master, slave, 10)
    master.progress(11, SLAVE_PORT, 1000, 1000)
    for minute in range(1, 60):
        master.alive(11 + 60 * minute, "SYNC_MASTER", 1000)
    master.progress(3600, SLAVE_PORT, 1000, 500_000)
    master.progress(3601, SLAVE_PORT, 500_000, 500_000)
    report = report_of(master, slave)
    (link,) = rows(report, "links")
    assert (link["behind_least_ms"], link["behind_max_ms"]) == (0, 49_000)
    (finding, *_) = [finding.text for finding in report.findings]
    assert "between 0 ms and 49.0 s behind: no sample while the log was idle" in finding


def test_a_store_that_is_there_makes_the_time_behind_exact(tmp_path: Path) -> None:
    begin_ms = at(0)
    with ToldStore(tmp_path / "a") as store:
        told = [store.put(at_ms=begin_ms + 20_000, body=bytes(300))]
        # After an idle hour: the slave has half of the second burst's first record.
        told += [store.put(at_ms=at(3620) + each, body=bytes(300)) for each in range(400)]
    end = told[-1].phy_offset + told[-1].size
    diary = Diary(tmp_path / "a", "broker-a:0")
    diary.start(0, "SYNC_MASTER", ha_listen=HA)
    diary.tell(10, "ha_connected", peer=SLAVE_PORT, offset=0)
    diary.progress(21, SLAVE_PORT, told[0].size, told[0].size)
    diary.progress(3620.45, SLAVE_PORT, told[0].size + 100, end)
    diary.progress(3622, SLAVE_PORT, end, end)
    with engine_over(diary, stores=(tmp_path / "a",)) as engine:
        report = replication.run(engine, OPTIONS)
    (link,) = rows(report, "links")
    assert (link["behind_least_ms"], link["behind_max_ms"]) == (450, 450)


def test_a_slave_may_name_its_master_by_its_host_name(slave: Diary) -> None:
    slave.tell(10, "ha_connected", peer=HA, offset=500)
    slave.tell(15, "ha_disconnected", peer="master.example:20001", reason="gone")
    (session,) = rows(report_of(slave), "sessions")
    assert (session["lasted_ms"], session["reason"]) == (5000, "gone")
