"""Each report against generated stores and journals: it says the truth, within its bounds."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stores.journals import BEGIN_MS, at, engine_over
from support.stores.oracle import (
    DEAD,
    GIVEN_UP,
    OP,
    SCHEDULE,
    SEGMENT_BYTES,
    Timeline,
    World,
    make_timeline,
    make_world,
)
from support.stores.told import (
    DAY_MS,
    HOUR_MS,
    Told,
    check_latencies,
    make_report,
    rows_of,
    texts_of,
)
from support.suite.sizes import ORACLE_SEEDS, drawn_seeds

from trioha.analysis.comparison import Run, comparison
from trioha.analysis.reports import failovers, replication
from trioha.analysis.reports import timeline as timeline_report
from trioha.analysis.results import Report, ReportOptions

NOW_MS = BEGIN_MS + 400 * DAY_MS
OPTIONS = ReportOptions(now_ms=NOW_MS)
STEP_MS = 1
"""Journals and stores have milliseconds: each end of a duration is off by less than one."""


@pytest.fixture(scope="module", params=drawn_seeds("oracle", ORACLE_SEEDS))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def world(seed: int, tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), seed)


@pytest.fixture(scope="module")
def failed(timeline: Timeline) -> Report:
    return _failovers(timeline)


@pytest.fixture(scope="module")
def timeline(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    return make_timeline(tmp_path_factory.mktemp("timeline"), seed)


def test_divergence_counts_every_record_with_a_flipped_byte(world: World) -> None:
    report = _report("divergence", world.master.root, world.slave)
    (pair,) = rows_of(report, "pairs")
    places = sorted(told.phy_offset for told in world.flipped)
    assert report.exit_code == bool(places)
    assert (pair["verdict"] == "diverged") is bool(places)
    assert pair["differing"] == len(places)
    assert (pair["first_offset"], pair["last_offset"]) == (
        (places[0], places[-1]) if places else (None, None)
    )
    last = world.slave_told[-1]
    assert (pair["common_begin"], pair["common_end"]) == (0, last.phy_offset + last.size)
    assert pair["behind_bytes"] == world.end - pair["common_end"]
    assert pair["behind_messages"] == len(world.told) - len(world.slave_told)


def test_integrity_has_one_error_for_one_cause(world: World) -> None:
    report = _report("integrity", world.broken)
    errors = texts_of(report, "error")
    assert len(errors) == (world.lost_segment is not None) + len(world.renamed), errors
    assert report.exit_code == bool(errors)
    damage = [(row["phy_offset"], row["length"]) for row in rows_of(report, "damage")]
    if world.lost_segment is None:
        assert damage == []
    else:
        assert damage == [(world.lost_segment, SEGMENT_BYTES)]
    lost = [row for row in rows_of(report, "queue_entries") if "lost to damage" in row["kind"]]
    queued = Counter((told.topic, told.queue_id) for told in world.lost)
    assert {(row["topic"], row["queue_id"]): row["places"] for row in lost} == queued
    for told in world.renamed:
        assert any(f"the record at {told.phy_offset} is damaged" in text for text in errors)


def test_transactions_are_counted_once_and_age_since_their_birth(world: World) -> None:
    report = _report("queues", world.master.root)
    rows = [row for table in report.tables if table.name == "transactions" for row in table.rows]
    if not world.transactions:
        assert rows == []
        return
    (row,) = rows_of(report, "transactions")
    outcomes = Counter(each.outcome for each in world.transactions)
    assert row["transactions"] == len(world.transactions)
    assert row["checks"] == sum(each.checks for each in world.transactions)
    assert row["done"] == outcomes["committed"] + outcomes["rolled back"]
    assert row["committed"] == outcomes["committed"]
    assert row["rolled_back"] == outcomes["rolled back"]
    assert (row["given_up"], row["waiting"]) == (outcomes["given up"], outcomes["waiting"])
    born = [each.born_ms for each in world.transactions if each.outcome == "waiting"]
    assert row["age_ms"] == (NOW_MS - min(born) if born else None)


def test_wrong_index_entries_are_told_one_by_one(world: World) -> None:
    report = _report("integrity", world.misindexed)
    keys = [
        (told.phy_offset, key)
        for told in world.told
        for key in dict.fromkeys((told.unique_key, *told.keys))
        if key
    ]
    (index,) = rows_of(report, "index")
    assert (index["keys_checked"], index["entries"]) == (len(keys), len(keys))
    wrong = world.wrong_entries
    assert (index["missing"], index["dangling"]) == (len(wrong), len(wrong))
    assert report.exit_code == bool(wrong)
    rows = rows_of(report, "index_entries")
    for kind in ("key without entry", "entry without key"):
        of_kind = [row for row in rows if row["kind"] == kind]
        assert sorted(row["phy_offset"] for row in of_kind) == sorted(wrong)
    topics = {told.phy_offset: told.topic for told in world.told}
    for row in rows:
        assert row["topic"] == topics[row["phy_offset"]]
        if row["kind"] == "key without entry":
            assert (row["phy_offset"], row["key"]) in keys


def test_what_was_written_is_counted_by_topic_queue_and_key(world: World) -> None:
    report = _report("throughput", world.master.root)
    sizes: Counter[str] = Counter()
    queues: Counter[tuple[str, int]] = Counter()
    keys: Counter[tuple[str, str]] = Counter()
    for told in world.told:
        sizes[told.topic] += told.size
        queues[told.topic, told.queue_id] += 1
        keys.update((told.topic, key) for key in told.keys)
    topics = rows_of(report, "topics")
    assert {row["topic"]: row["record_bytes"] for row in topics} == sizes
    found = {(row["topic"], row["queue_id"]): row["messages"] for row in rows_of(report, "queues")}
    assert found == queues
    hot = {(row["topic"], row["key"]): row["messages"] for row in rows_of(report, "hot_keys")}
    assert hot == {key: count for key, count in keys.items() if count > 1}
    assert sum(row["messages"] for row in rows_of(report, "time")) == len(world.told)


def test_latencies_are_those_of_messages_stored_for_the_first_time(world: World) -> None:
    report = _report("latency", world.master.root)
    first = [told for told in world.told if _is_first(told)]
    (row,) = rows_of(report, "stores")
    check_latencies(row, first)
    hosts = rows_of(report, "hosts")
    assert {row["born_host"] for row in hosts} == {told.born_host for told in first}
    for row in hosts:
        check_latencies(row, [told for told in first if told.born_host == row["born_host"]])


def _is_first(told: Told) -> bool:
    if told.topic in (OP, GIVEN_UP, DEAD) or told.topic.startswith("%RETRY%") or told.sys_flag:
        return False
    is_delivered = "DELAY" in told.properties and told.topic != SCHEDULE
    return not is_delivered and "TRANSACTION_CHECK_TIMES" not in told.properties


def test_queues_are_as_uneven_as_they_are(world: World) -> None:
    report = _report("queues", world.master.root)
    for row in rows_of(report, "skew"):
        counts = Counter(told.queue_id for told in world.told if told.topic == row["topic"])
        assert (row["messages"], row["used"]) == (counts.total(), len(counts))
        assert row["largest"] == max(counts.values()) == counts[row["queue_id"]]
        each = [counts[queue_id] for queue_id in range(row["queues"])]
        apart = sum(abs(a - b) for a in each for b in each)
        assert row["gini"] == pytest.approx(apart / (2 * len(each) * sum(each)))


def test_a_group_lags_by_what_it_has_not_read(world: World) -> None:
    report = _report("queues", world.master.root)
    ends = Counter((told.topic, told.queue_id) for told in world.told)
    left = {queue: ends[queue] - offset for queue, offset in world.consumed.items()}
    lags = [row for row in rows_of(report, "lag") if row["consumer_group"] == "readers"]
    by_topic: Counter[str] = Counter()
    for (topic, _), lag in left.items():
        by_topic[topic] += lag
    assert {row["topic"]: row["lag"] for row in lags} == by_topic
    stored = {(told.topic, told.queue_id, told.queue_offset): told.store_ms for told in world.told}
    for row in rows_of(report, "lag_queues"):
        queue = (row["topic"], row["queue_id"])
        if row["consumer_group"] != "readers":
            continue
        assert row["lag"] == left[queue]
        if row["lag"]:
            first_ms = stored[*queue, row["consumer_offset"]]
            assert row["age_ms"] == world.told[-1].store_ms - first_ms


def test_retries_and_dead_letters_are_counted_with_their_origins(world: World) -> None:
    report = _report("queues", world.master.root)
    again = [told for told in world.told if told.topic in ("%RETRY%readers", DEAD)]
    kinds = {"retry": "%RETRY%readers", "dead letter": DEAD}
    ids: dict[tuple[str, str], list[str]] = {}
    for told in again:
        name = told.unique_key or told.properties["ORIGIN_MESSAGE_ID"]
        ids.setdefault((told.topic, told.properties.get("RETRY_TOPIC", "")), []).append(name)
    origins = {
        (kinds[row["kind"]], row["origin"]): (row["messages"], row["different"])
        for row in rows_of(report, "redelivery_origins")
    }
    assert origins == {key: (len(names), len(set(names))) for key, names in ids.items()}
    for row in rows_of(report, "redelivery"):
        of_topic = [told for told in again if told.topic == kinds[row["kind"]]]
        assert row["messages"] == len(of_topic)
        assert row["age_ms"] == NOW_MS - min(told.store_ms for told in of_topic)
        assert row["reconsume_max"] == max(told.reconsume_times for told in of_topic)
    times = Counter((told.topic, told.reconsume_times) for told in again)
    assert times == {
        (kinds[row["kind"]], row["reconsume_times"]): row["messages"]
        for row in rows_of(report, "reconsume_times")
    }


def test_delay_levels_say_what_waits_and_since_when_it_is_due(world: World) -> None:
    report = _report("queues", world.master.root)
    levels = {level: each for level, each in world.delayed.items() if each.due_ms}
    rows = [row for table in report.tables if table.name == "delays" for row in table.rows]
    if not levels:
        assert rows == []
        return
    found = {row["level"]: row for row in rows_of(report, "delays")}
    assert found.keys() == levels.keys()
    for level, true in levels.items():
        row = found[level]
        assert (row["stored"], row["delivered"]) == (len(true.due_ms), true.delivered)
        head_ms = next(iter(true.due_ms[true.delivered :]), None)
        assert row["due_ms"] == head_ms
        late_ms = None if head_ms is None else max(0, world.told[-1].store_ms - head_ms)
        assert row["overdue_ms"] == late_ms


def test_growth_is_the_line_through_what_was_stored(world: World) -> None:
    report = _report("retention", world.master.root)
    hours: Counter[int] = Counter()
    days: Counter[int] = Counter()
    for told in world.told:
        hours[told.store_ms // HOUR_MS] += told.size
        days[told.store_ms // DAY_MS * DAY_MS] += 1
    assert {row["day_ms"]: row["messages"] for row in rows_of(report, "days")} == days
    (store,) = rows_of(report, "stores")
    beside = (store["queue_bytes"] + store["index_bytes"]) / store["log_bytes"]
    span = range(min(hours), max(hours) + 1)
    stored = np.cumsum([hours[hour] for hour in span])
    for row in rows_of(report, "forecast"):
        if row["fit"] == "all":
            per_hour, _ = np.polyfit(np.arange(len(span)), stored, 1)
            assert row["bytes_per_day"] == pytest.approx(per_hour * 24 * (1 + beside), rel=1e-6)


def test_a_log_is_as_large_as_it_is(world: World) -> None:
    (row,) = rows_of(_report("retention", world.master.root), "stores")
    assert row["log_bytes"] == world.end
    (row,) = rows_of(_report("retention", world.broken), "stores")
    assert row["log_bytes"] == world.end - (SEGMENT_BYTES if world.lost_segment else 0)


@pytest.mark.parametrize("has_store", [False, True])
def test_time_behind_is_within_its_bounds_and_exact_with_the_store(
    world: World, has_store: bool
) -> None:
    stores = (world.master.root,) if has_store else ()
    with engine_over(world.journal, stores=stores) as engine:
        report = replication.run(engine, OPTIONS)
    (link,) = rows_of(report, "links")
    if not world.lags:
        assert link["behind_max_ms"] is None
        return
    truth_ms = max(lag.behind_ms for lag in world.lags)
    assert link["gap_max_bytes"] == max(lag.end - lag.ack for lag in world.lags)
    assert link["behind_least_ms"] - STEP_MS <= truth_ms <= link["behind_max_ms"] + STEP_MS
    if has_store:
        assert abs(link["behind_max_ms"] - truth_ms) <= STEP_MS
    assert link["transferred_bytes"] == world.lags[-1].ack


def test_outages_are_those_there_were(timeline: Timeline, failed: Report) -> None:
    assert failed.exit_code == 0, texts_of(failed, "error")
    found = [row for row in rows_of(failed, "outages") if row["is_over"]]
    assert [row["is_planned"] for row in found] == [each.is_planned for each in timeline.outages]
    for row, true in zip(found, timeline.outages, strict=True):
        lasted_ms = round((true.end_s - true.begin_s) * 1000)
        assert row["lasted_min_ms"] - STEP_MS <= lasted_ms <= row["lasted_max_ms"] + STEP_MS
        assert row["lasted_min_ms"] <= row["lasted_ms"] <= row["lasted_max_ms"]
        assert abs(row["end_ms"] - at(true.end_s)) <= STEP_MS
        if true.noticed_s is not None:
            low, high = at(true.begin_s) - STEP_MS, at(true.noticed_s) + STEP_MS
            assert low <= row["begin_ms"] <= high
    (broker,) = rows_of(failed, "brokers")
    assert broker["lost_ms"] == sum(row["lasted_ms"] for row in found)
    assert broker["mttr_ms"] == _mean(row for row in found if not row["is_planned"])
    assert broker["planned_mean_ms"] == _mean(row for row in found if row["is_planned"])
    assert abs(broker["from_ms"] - at(timeline.begin_s)) <= STEP_MS


def test_the_timeline_says_what_happened_and_nothing_else(
    timeline: Timeline, failed: Report
) -> None:
    with engine_over(*timeline.diaries) as engine:
        report = timeline_report.run(engine, OPTIONS)
    rows = rows_of(report, "timeline")
    assert [row["begin_ms"] for row in rows] == sorted(row["begin_ms"] for row in rows)
    assert 0 < len(report.findings) <= 5
    outages = [(row["begin_ms"], row["end_ms"]) for row in rows if row["kind"] == "outage"]
    told = [(row["begin_ms"], row["end_ms"]) for row in rows_of(failed, "outages")]
    assert outages == told
    leads = [row for row in rows if row["what"].endswith(" SYNC_MASTER")]
    assert [row["what"].split()[0] for row in leads] == [
        f"broker-a:{name}" for name, _, _ in timeline.leads
    ]
    for row, (_, since_s, term) in zip(leads, timeline.leads, strict=True):
        assert abs(row["begin_ms"] - at(since_s)) <= STEP_MS
        assert row["term"] == term
    _beside_is_told(timeline, rows)


def test_a_comparison_has_the_truth_of_both_runs(
    timeline: Timeline, failed: Report, tmp_path: Path
) -> None:
    other = make_timeline(tmp_path, len(timeline.outages))
    runs = [Run(str(at), [], [each]) for at, each in enumerate((_failovers(other), failed))]
    rows = {row["figure"]: row for row in rows_of(comparison(*runs), "figures")}
    unplanned = rows["unplanned outages"]
    for each, value in ((other, "before_value"), (timeline, "after_value")):
        assert unplanned[value] == sum(not outage.is_planned for outage in each.outages)
    lost = rows["time without a writable master"]
    assert lost["difference_value"] == lost["after_value"] - lost["before_value"]
    more = unplanned["after_value"] - unplanned["before_value"]
    assert unplanned["verdict"] == ("worse" if more > 0 else "better" if more else "same")


def _beside_is_told(timeline: Timeline, rows: Sequence[dict[str, Any]]) -> None:
    """Check that links, stalls and refusals are the true ones."""
    found = [row for row in rows if row["kind"] in ("link", "stall", "refusal")]
    # Links between members last as long as their nodes; the truth names links of slaves.
    members = [row for row in found if row["kind"] == "link" and " → broker-a:n" in row["of"]]
    pauses = [row for row in found if row["detail"].startswith("a switch: ")]
    beside = [row for row in found if row not in members and row not in pauses]
    waits = {True: 0, False: 0}
    for row in beside:
        waits[False] += row["count"] or 0
    for true in timeline.beside:
        if true.count is not None:
            waits[True] += true.count
            assert any(
                (row["of"], row["what"]) == (true.of, true.what)
                and row["begin_ms"] <= at(true.begin_s) <= row["end_ms"] + STEP_MS
                for row in beside
            ), true
            continue
        (row,) = [
            row
            for row in beside
            if (row["kind"], row["of"], row["what"]) == (true.kind, true.of, true.what)
            and abs(row["begin_ms"] - at(true.begin_s)) <= STEP_MS
        ]
        assert abs(row["end_ms"] - at(true.end_s)) <= STEP_MS
        assert row["lasted_ms"] == row["end_ms"] - row["begin_ms"]
    assert waits[True] == waits[False]
    spans = [row for row in beside if row["count"] is None]
    assert len(spans) == sum(true.count is None for true in timeline.beside)


@functools.lru_cache(maxsize=8)
def _report(name: str, *stores: Path) -> Report:
    """A report that several tests read; the stores of a world stay as they are."""
    return make_report(name, *stores, now_ms=NOW_MS)


def _failovers(timeline: Timeline) -> Report:
    with engine_over(*timeline.diaries) as engine:
        return failovers.run(engine, OPTIONS)


def _mean(rows: Any) -> int | None:
    lasted: Sequence[int] = [row["lasted_ms"] for row in rows]
    return round(sum(lasted) / len(lasted)) if lasted else None
