"""Throughput against counts made from what was told to the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.stores.analysed import bin_of
from support.stores.told import (
    DAY_MS,
    HOUR_MS,
    MONDAY_MS,
    Told,
    ToldStore,
    busy_store,
    make_report,
    rows_of,
    texts_of,
)

from trioha.analysis.engine import Window
from trioha.analysis.results import Report


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> ToldStore:
    return busy_store(tmp_path_factory.mktemp("busy") / "a")


@pytest.fixture(scope="module")
def report(busy: ToldStore) -> Report:
    return make_report("throughput", busy.root)


def by_topic(told: list[Told]) -> dict[str, list[Told]]:
    found = defaultdict(list)
    for each in told:
        found[each.topic].append(each)
    return found


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[max(1, -(-len(values) * percent // 100)) - 1]


def test_a_store_is_counted_as_a_whole(busy: ToldStore, report: Report) -> None:
    (row,) = rows_of(report, "stores")
    assert row["messages"] == len(busy.told)
    assert row["record_bytes"] == sum(each.size for each in busy.told)
    assert row["body_bytes"] == sum(len(each.body) for each in busy.told)
    assert row["first_ms"] == busy.told[0].store_ms
    assert row["last_ms"] == busy.told[-1].store_ms
    span_s = (row["last_ms"] - row["first_ms"]) / 1000
    assert row["mean_per_s"] == pytest.approx(len(busy.told) / span_s)


def test_topics_have_their_shares_and_sizes(busy: ToldStore, report: Report) -> None:
    rows = rows_of(report, "topics")
    told = by_topic(busy.told)
    assert {row["topic"] for row in rows} == set(told)
    assert [row["record_bytes"] for row in rows] == sorted(
        (sum(each.size for each in of_topic) for of_topic in told.values()), reverse=True
    )
    for row in rows:
        of_topic = told[row["topic"]]
        sizes = [each.size for each in of_topic]
        assert row["messages"] == len(of_topic)
        assert row["messages_share"] == len(of_topic) / len(busy.told)
        assert row["queues"] == len({each.queue_id for each in of_topic})
        assert row["size_mean_bytes"] == pytest.approx(sum(sizes) / len(sizes))
        assert row["size_max_bytes"] == max(sizes)
        for percent in (50, 95, 99):
            assert row[f"size_p{percent}_bytes"] == bin_of(nearest_rank(sizes, percent))
        compressed = sum(each.sys_flag & 1 for each in of_topic)
        assert row["compressed_share"] == compressed / len(of_topic)


def test_queues_are_ranked_by_messages(busy: ToldStore, report: Report) -> None:
    counts = Counter((each.topic, each.queue_id) for each in busy.told)
    totals = Counter(each.topic for each in busy.told)
    rows = rows_of(report, "queues")
    assert {(row["topic"], row["queue_id"]): row["messages"] for row in rows} == dict(counts)
    assert [row["messages"] for row in rows] == sorted(counts.values(), reverse=True)
    for row in rows:
        assert row["share_of_topic"] == row["messages"] / totals[row["topic"]]


def test_time_steps_hold_every_message_once(busy: ToldStore, report: Report) -> None:
    rows = rows_of(report, "time")
    begins = sorted({row["begin_ms"] for row in rows})
    assert len(begins) <= 240
    width_ms = 30 * 60_000
    expected = Counter(each.store_ms - each.store_ms % width_ms for each in busy.told)
    assert {row["begin_ms"]: row["messages"] for row in rows} == dict(expected)
    (line,) = report.charts[0].series
    assert sum(rate * width_ms / 1000 for _, rate in line.points[1:-1]) == pytest.approx(
        sum(expected[begin] for begin in begins[1:-1])
    )


def test_days_are_compared_with_the_day_before(busy: ToldStore, report: Report) -> None:
    counts = Counter(each.store_ms - each.store_ms % DAY_MS for each in busy.told)
    rows = rows_of(report, "days")
    assert {row["day_ms"]: row["messages"] for row in rows} == dict(counts)
    assert [row["messages_change"] for row in rows] == [
        None,
        counts[MONDAY_MS + DAY_MS] / counts[MONDAY_MS] - 1,
        counts[MONDAY_MS + 2 * DAY_MS] / counts[MONDAY_MS + DAY_MS] - 1,
    ]
    assert [row["whole_day"] for row in rows] == [False, True, False]
    last = [
        Counter(each.topic for each in busy.told if each.store_ms // DAY_MS == day)
        for day in (MONDAY_MS // DAY_MS + 1, MONDAY_MS // DAY_MS + 2)
    ]
    for row in rows_of(report, "day_topics"):
        assert row["messages_before"] == last[0][row["topic"]]
        assert row["messages"] == last[1][row["topic"]]


def test_every_key_of_a_message_counts(busy: ToldStore, report: Report) -> None:
    counts = Counter((each.topic, key) for each in busy.told for key in each.keys)
    rows = rows_of(report, "hot_keys")
    assert {(row["topic"], row["key"]): row["messages"] for row in rows} == {
        key: count for key, count in counts.items() if count > 1
    }
    for row in rows:
        of_topic = [count for (topic, _), count in counts.items() if topic == row["topic"]]
        assert row["share"] == row["messages"] / sum(of_topic)
        assert row["kinds"] == len(of_topic)
    assert any("key 'hot'" in text for text in texts_of(report, "warning"))


def test_tags_count_by_topic(busy: ToldStore, report: Report) -> None:
    counts = Counter((each.topic, each.tags) for each in busy.told if each.tags)
    rows = rows_of(report, "hot_tags")
    assert {(row["topic"], row["tag"]): row["messages"] for row in rows} == dict(counts)


def test_the_size_histogram_counts_every_record(busy: ToldStore, report: Report) -> None:
    (series,) = report.charts[2].series
    for low, high, count in series.points:
        assert count == sum(low <= each.size < high for each in busy.told)
    assert sum(count for _, _, count in series.points) == len(busy.told)


def test_a_window_leaves_the_rest_out(busy: ToldStore) -> None:
    begin, end = MONDAY_MS + 20 * HOUR_MS, MONDAY_MS + 20 * HOUR_MS + 15 * 60_000
    report = make_report("throughput", busy.root, window=Window(begin, end + HOUR_MS))
    (row,) = rows_of(report, "stores")
    inside = [each for each in busy.told if begin <= each.store_ms < end + HOUR_MS]
    assert row["messages"] == len(inside) > 0


def test_short_times_are_shown_in_seconds(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for second in range(90):
            for _ in range(second % 3):
                store.put(at_ms=MONDAY_MS + second * 1000)
    rows = rows_of(make_report("throughput", store.root), "time")
    expected = Counter(each.store_ms for each in store.told)
    assert {row["begin_ms"]: row["messages"] for row in rows} == dict(expected)


def test_stores_are_never_added_up(busy: ToldStore, tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as other:
        other.put(at_ms=MONDAY_MS)
    report = make_report("throughput", busy.root, other.root)
    assert {row["store"]: row["messages"] for row in rows_of(report, "stores")} == {
        str(busy.root): len(busy.told),
        str(other.root): 1,
    }


def test_keys_with_quotes_and_backslashes_stay_whole(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for _ in range(2):
            store.put(at_ms=MONDAY_MS, keys=['a"b', "c\\d", "e'f", "ü"])
    report = make_report("throughput", store.root)
    assert {row["key"] for row in rows_of(report, "hot_keys")} == {'a"b', "c\\d", "e'f", "ü"}


def test_nothing_in_the_window_is_said(busy: ToldStore) -> None:
    report = make_report("throughput", busy.root, window=Window(1, 2))
    assert texts_of(report, "warning") == ["No record lies in the stores and the window."]
