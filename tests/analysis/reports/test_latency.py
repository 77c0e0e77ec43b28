"""Latency against what was told: percentiles, clocks that are wrong, messages stored again."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.stores.told import (
    HOUR_MS,
    MONDAY_MS,
    ToldStore,
    busy_store,
    check_latencies,
    make_report,
    rows_of,
    texts_of,
)

from trioha.analysis.results import Report


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> ToldStore:
    return busy_store(tmp_path_factory.mktemp("busy") / "a")


@pytest.fixture(scope="module")
def report(busy: ToldStore) -> Report:
    return make_report("latency", busy.root)


def test_a_store_has_its_percentiles(busy: ToldStore, report: Report) -> None:
    (row,) = rows_of(report, "stores")
    check_latencies(row, busy.told)


def test_hosts_have_theirs_whatever_their_ports(busy: ToldStore, report: Report) -> None:
    rows = rows_of(report, "hosts")
    assert {row["born_host"] for row in rows} == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    for row in rows:
        of_host = [each for each in busy.told if each.born_host == row["born_host"]]
        check_latencies(row, of_host)
        assert row["negative_share"] == row["negative"] / len(of_host)


def test_steps_of_time_have_theirs(busy: ToldStore, report: Report) -> None:
    by_hour, by_both = defaultdict(list), defaultdict(list)
    for each in busy.told:
        hour_ms = each.store_ms - each.store_ms % HOUR_MS
        by_hour[hour_ms].append(each)
        by_both[each.born_host, hour_ms].append(each)
    rows = rows_of(report, "hours")
    assert {row["begin_ms"] for row in rows} == set(by_hour)
    for row in rows:
        check_latencies(row, by_hour[row["begin_ms"]])
    rows = rows_of(report, "host_hours")
    assert len(rows) == len(by_both)
    for row in rows:
        check_latencies(row, by_both[row["born_host"], row["begin_ms"]])


def test_a_clock_that_is_ahead_is_told_not_hidden(busy: ToldStore, report: Report) -> None:
    (row,) = [row for row in rows_of(report, "hosts") if row["born_host"] == "10.0.0.3"]
    assert row["negative"] == row["messages"]
    assert 4900 <= row["clock_ahead_ms"] <= 5000
    (text,) = texts_of(report, "warning")
    assert "10.0.0.3" in text
    assert "ahead of the broker's by at least 5.0 s" in text


def test_a_clock_that_is_behind_is_suspected(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for i in range(50):
            store.put(at_ms=MONDAY_MS + i, latency_ms=7000 + i, host="10.0.0.9")
    (text,) = texts_of(make_report("latency", store.root), "warning")
    assert "10.0.0.9: even its fastest hundredth took" in text


def test_the_histogram_shows_what_is_below_zero(busy: ToldStore, report: Report) -> None:
    (series,) = report.charts[1].series
    for low, high, count in series.points:
        assert count == sum(low <= each.latency_ms < high for each in busy.told)
    assert sum(count for low, _, count in series.points if low < 0) > 0


def test_messages_stored_again_do_not_count_as_slow(tmp_path: Path) -> None:
    again: list[dict[str, Any]] = [
        {"topic": "%RETRY%g", "reconsume_times": 1, "DELAY": "3"},
        {"topic": "%DLQ%g", "reconsume_times": 16},
        {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2, "reconsume_times": 1, "DELAY": "3"},
        {"topic": "T", "DELAY": "1"},  # a delayed message, delivered
        {"topic": "T", "sys_flag": 8, "TRAN_MSG": "true"},  # a transaction, committed
        {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "TRANSACTION_CHECK_TIMES": "1"},
        {"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"},
        {"topic": "T", "TIMER_OUT_MS": "1", "TIMER_DEQUEUE_MS": "1"},  # a timer message, delivered
        {"topic": "rmq_sys_wheel_timer", "TIMER_OUT_MS": "1", "TIMER_ROLL_TIMES": "1"},
        {"topic": "rmq_sys_wheel_timer", "REAL_TOPIC": "rmq_sys_REVIVE_LOG_c"},
        {"topic": "rmq_sys_REVIVE_LOG_c", "TIMER_DEQUEUE_MS": "1"},
    ]
    first: list[dict[str, Any]] = [
        {"topic": "T"},
        {"topic": "T", "DELAY": "0"},
        {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2, "DELAY": "3"},
        {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "TRAN_MSG": "true"},
        {"topic": "rmq_sys_wheel_timer", "TIMER_OUT_MS": "1", "REAL_TOPIC": "T"},
    ]
    with ToldStore(tmp_path / "s") as store:
        for i in range(20):
            for each in first:
                store.put(at_ms=MONDAY_MS + i, latency_ms=4, **each)
            for each in again:
                store.put(at_ms=MONDAY_MS + i, latency_ms=60_000 + 4 * i, **each)
    report = make_report("latency", store.root)
    (row,) = rows_of(report, "stores")
    assert row["messages"] == 20 * len(first)
    assert row["max_ms"] == 4
    (series,) = report.charts[1].series
    assert sum(count for _, _, count in series.points) == 20 * len(first)


def test_producers_on_ipv6_are_hosts_too(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for port in (1, 10, 65535):
            store.put(at_ms=MONDAY_MS, host="2001:db8::1", port=port, sys_flag=0x10)
    (row,) = rows_of(make_report("latency", store.root), "hosts")
    assert row["born_host"].strip("[]") == "2001:db8::1"
    assert row["messages"] == 3


def test_an_empty_store_is_said(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        pass
    assert texts_of(make_report("latency", store.root), "warning")
