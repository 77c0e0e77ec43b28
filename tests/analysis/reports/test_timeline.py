"""One axis for all nodes: what the journals of an incident become, side by side."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from support.fakes.sample_reports import meta
from support.stores.journals import Diary, at, engine_over
from support.stores.told import ToldStore, rows_of

from trioha.analysis.page import render_page
from trioha.analysis.reports import failovers, timeline
from trioha.analysis.results import Report, ReportOptions

OPTIONS = ReportOptions(now_ms=at(10_000))
PEER = "10.0.0.2:40001"


def report_of(*diaries: Diary) -> Report:
    with engine_over(*diaries) as engine:
        return timeline.run(engine, OPTIONS)


@pytest.fixture
def a(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "a", "broker-a:0")


@pytest.fixture
def b(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "b", "broker-a:1")


def incident(a: Diary, b: Diary, begin_s: float) -> None:
    """The master is silent, loses its slave, refuses sends and is killed; it comes back."""
    a.start(begin_s, "SYNC_MASTER", ha_listen="127.0.0.1:20001")
    a.tell(begin_s + 2, "ha_connected", peer=PEER, offset=0)
    a.alive(begin_s + 10, "SYNC_MASTER", refused=0)
    a.tell(begin_s + 20, "ha_heartbeat_late", peer=PEER, age_ms=6000)
    a.tell(begin_s + 25, "ha_disconnected", peer=PEER, reason="no heartbeat")
    a.alive(begin_s + 30, "SYNC_MASTER", refused=7)
    b.tell(begin_s + 40, "ha_disconnected", peer="127.0.0.1:20001", reason="reset")


def test_everything_of_an_incident_is_on_one_axis(a: Diary, b: Diary) -> None:
    b.start(0, "SLAVE", ha_listen="127.0.0.1:20005")
    incident(a, b, 1)
    a.start(61, "SYNC_MASTER", ha_listen="127.0.0.1:20001")
    report = report_of(a, b)
    told = [
        (row["begin_ms"], row["end_ms"], row["kind"], row["of"], row["what"])
        for row in rows_of(report, "timeline")
    ]
    assert told == [
        (at(0), at(1), "role", "b (broker-a:1)", "broker-a:1 starting"),
        (at(1), at(2), "role", "a (broker-a:0)", "broker-a:0 starting"),
        (at(1), None, "role", "b (broker-a:1)", "broker-a:1 SLAVE"),
        (at(2), at(41), "role", "a (broker-a:0)", "broker-a:0 SYNC_MASTER"),
        (at(3), at(26), "link", "broker-a:0 → 10.0.0.2", "connected"),
        (at(11), at(31), "refusal", "broker-a:0", "sends refused"),
        (at(15), at(26), "stall", "broker-a:0", f"no heartbeat from {PEER}"),
        (at(41), at(62), "outage", "broker-a", "no writable master"),
        (at(41), at(41), "role", "a (broker-a:0)", "broker-a:0 killed"),
        (at(61), at(62), "role", "a (broker-a:0)", "broker-a:0 starting"),
        (at(62), None, "role", "a (broker-a:0)", "broker-a:0 SYNC_MASTER"),
    ]
    (chart,) = report.charts
    assert [series.label for series in chart.series] == [
        *("broker-a", "a (broker-a:0)", "b (broker-a:1)", "broker-a:0 → 10.0.0.2"),
        *("stalls of broker-a:0", "refused by broker-a:0"),
    ]
    drawn = {point[3] for series in chart.series for point in series.points}
    assert drawn <= set(chart.kinds)


def test_a_cause_that_comes_again_is_told_once_and_findings_are_few(a: Diary, b: Diary) -> None:
    b.start(0, "SLAVE", ha_listen="127.0.0.1:20005")
    for begin_s in range(1, 301, 60):
        incident(a, b, begin_s)
    a.start(301, "SYNC_MASTER")
    report = report_of(a, b)
    assert len(report.findings) <= 5
    first = report.findings[0].text
    assert "5 times, 1.8 min in all, the longest for 21.0 s" in first
    assert "(broker-a:0: it was killed, or its machine died)" in first
    # The master may have died right after its last sample, which counted refusals.
    assert first.endswith("; meanwhile sends refused 35 times.")
    assert report.findings[1].text == "Apart from outages: 5 links ended, 5 stalls."


def test_an_unplanned_outage_is_an_error_and_a_planned_one_a_warning(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    a.alive(10, "SYNC_MASTER")
    a.start(40, "SYNC_MASTER")
    a.stop(60)
    a.start(100, "SYNC_MASTER")
    report = report_of(a)
    assert [finding.severity for finding in report.findings[:2]] == ["warning", "error"]
    assert "shut down" in report.findings[0].text or "stopped" in report.findings[0].text
    assert "it was killed, or its machine died" in report.findings[1].text
    page = render_page([report], meta())
    assert "Nothing to worry about" not in page
    assert "had no writable master" in page.partition("</header>")[0]


def test_two_masters_are_an_error(a: Diary, b: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    b.start(30, "SYNC_MASTER", "broker-a:0")
    b.alive(60, "SYNC_MASTER")
    a.alive(60, "SYNC_MASTER")
    report = report_of(a, b)
    assert report.exit_code == 1
    assert report.findings[0].severity == "error"
    assert report.findings[0].text.startswith("broker-a had two masters")


def test_the_head_of_a_page_tells_an_outage_once(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    a.alive(10, "SYNC_MASTER")
    a.start(40, "SYNC_MASTER")
    with engine_over(a) as engine:
        reports = [each.run(engine, OPTIONS) for each in (timeline, failovers)]
    head, _, rest = render_page(reports, meta()).partition("</header>")
    assert head.count("had no writable master") == 1
    assert "1 error," in head
    assert rest.count("had no writable master") == 2


def test_a_silence_ends_with_its_node(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    a.tell(10, "ha_connected", peer=PEER, offset=0)
    a.tell(20, "ha_heartbeat_late", peer=PEER, age_ms=6000)
    a.stop(30)
    a.start(100, "SYNC_MASTER")
    (stall,) = [row for row in rows_of(report_of(a), "timeline") if row["kind"] == "stall"]
    assert (stall["begin_ms"], stall["end_ms"]) == (at(14), at(30))


def test_links_between_members_end_with_their_node(tmp_path: Path) -> None:
    a = Diary(tmp_path / "n0", "broker-a:n0")
    a.tell(0, "node_started", node="broker-a:n0", version="0", pid=1)
    a.tell(1, "raft_connected", peer="n1", address="127.0.0.1:1")
    a.tell(2, "raft_connected", peer="n2", address="127.0.0.1:2")
    a.tell(5, "raft_disconnected", peer="n2", reason="reset")
    a.tell(9, "scheduling_delay", seconds=2, worst_ms=700, waited_ms=0, stolen_ms=0, ran_ms=0)
    a.stop(30)
    rows = rows_of(report_of(a), "timeline")
    links = [
        (row["of"], row["begin_ms"], row["end_ms"], row["detail"])
        for row in rows
        if row["kind"] == "link"
    ]
    assert links == [
        ("broker-a:n0 → broker-a:n1", at(1), at(30), "this node ended"),
        ("broker-a:n0 → broker-a:n2", at(2), at(5), "reset"),
    ]
    (stall,) = [row for row in rows if row["kind"] == "stall"]
    assert stall["detail"] == "in 2 seconds up to then, the longest delay 700 ms"


def test_refusals_that_follow_each_other_are_one_row(a: Diary) -> None:
    a.start(0, "SYNC_MASTER")
    sample = {"waited_ms": 0, "longest_ms": 0, "bins": [], "unavailable": 0}
    for at_s, count in ((20, 2), (30, 3), (90, 4)):
        a.tell(at_s, "sync_waits", puts=count, timeouts=count, **sample)
    rows = [row for row in rows_of(report_of(a), "timeline") if row["kind"] == "refusal"]
    told = [(row["begin_ms"], row["end_ms"], row["count"]) for row in rows]
    assert told == [(at(9.5), at(30), 5), (at(79.5), at(90), 4)]


def test_an_outage_is_looked_at_closely(tmp_path: Path) -> None:
    root = tmp_path / "a"
    with ToldStore(root) as store:
        for second in range(10, 30):
            store.put("orders", at_ms=at(second), latency_ms=3)
        # Messages of the outage's time are all stored when the outage is over.
        for second in range(45, 55):
            store.put("orders", at_ms=at(60), latency_ms=1000 * (60 - second))
        for second in range(61, 80):
            store.put("orders", at_ms=at(second), latency_ms=4)
    diary = Diary(root, "broker-a:0")
    diary.start(0, "ASYNC_MASTER")
    lag = {"topic": "orders", "consumer_offset": 0, "broker_offset": 0}
    lag |= {"queues": 1, "worst_queue": 0, "offsets": [], "offsets_left": 0}
    diary.tell(20, "consumer_lag", group="g", lag=5, **lag)
    diary.tell(22, "consumer_lag", group="h", lag=2, **lag)
    diary.progress(21, "10.0.0.2:40001", 100, 350)
    diary.stop(30)
    diary.start(58, "ASYNC_MASTER")
    diary.tell(64, "consumer_lag", group="g", lag=9, **lag)
    diary.alive(80, "ASYNC_MASTER")
    diary.close()
    with engine_over(stores=(root,)) as engine:
        report = timeline.run(engine, OPTIONS)
    rows = {row["begin_ms"]: row for row in rows_of(report, "close_up")}
    # The outage and half a minute around it, to the end of the records.
    assert list(rows) == [at(second) for second in range(-1, 81)]
    shown = [
        (second, *list(rows[at(second)].values())[2:]) for second in (0, 15, 25, 45, 60, 61, 70)
    ]
    assert shown == [
        (0, 0, None, None, None, None, None),
        (15, 1, 3, 3, 3, None, None),
        (25, 1, 3, 3, 3, 7, 250),
        (45, 0, None, None, None, 7, 250),
        (60, 10, 9_984, 14_976, 14_976, 7, 250),
        (61, 1, 4, 4, 4, 7, 250),
        (70, 1, 4, 4, 4, 11, 250),
    ]
    titles = [chart.title for chart in report.charts]
    assert titles[1:] == [
        "broker-a around 2025-11-20 12:00:29Z: time from birth to the store, in steps of 1.0 s",
        "broker-a around 2025-11-20 12:00:29Z: messages not consumed, in steps of 1.0 s",
    ]


def test_a_close_up_of_journals_alone_has_no_latency(a: Diary, b: Diary) -> None:
    b.start(0, "SLAVE", ha_listen="127.0.0.1:20005")
    incident(a, b, 1)
    a.start(61, "SYNC_MASTER", ha_listen="127.0.0.1:20001")
    rows = rows_of(report_of(a, b), "close_up")
    assert {row["messages"] for row in rows} == {None}


def test_long_outages_have_wider_steps(a: Diary) -> None:
    a.start(0, "ASYNC_MASTER")
    a.stop(100)
    a.start(4000, "ASYNC_MASTER")
    a.alive(5000, "ASYNC_MASTER")
    a.stop(5010)
    begins = [row["begin_ms"] for row in rows_of(report_of(a), "close_up")]
    assert {later - begin for begin, later in itertools.pairwise(begins)} == {30_000}
