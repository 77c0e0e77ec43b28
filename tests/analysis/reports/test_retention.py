"""Growth and forecasts: lines through known growth, disks of known size."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.told import (
    DAY_MS,
    HOUR_MS,
    MONDAY_MS,
    ToldStore,
    make_report,
    rows_of,
    texts_of,
)

from trioha.analysis.inputs import open_inputs
from trioha.analysis.reports.growth import cumulative, days_until, last_trend, trend


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def grown(root: Path, days: int, per_hour: int = 1) -> ToldStore:
    with ToldStore(root, segment_bytes=16 << 10, log_chunk_bytes=16 << 10) as store:
        for hour in range(24 * days):
            for i in range(per_hour):
                store.put(at_ms=MONDAY_MS + hour * HOUR_MS + i, body=bytes(109))
    return store


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 MB, half of it used, as df counts; what is reserved for root is apart."""
    usage = Usage(105_000_000, 50_000_000, 50_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_steady_growth_is_its_own_line(tmp_path: Path, disk: None) -> None:
    store = grown(tmp_path / "s", days=3)
    report = make_report("retention", store.root)
    (row,) = rows_of(report, "stores")
    beside = row["queue_bytes"] + row["index_bytes"]
    told_per_day = sum(each.size for each in store.told) / 3
    rows = rows_of(report, "forecast")
    assert {each["fit"] for each in rows} == {"all"}
    for each in rows:
        assert each["bytes_per_day"] == pytest.approx(
            told_per_day * (1 + beside / row["log_bytes"])
        )
        expected = (each["limit_share"] * 100_000_000 - 50_000_000) / each["bytes_per_day"]
        assert each["days"] == pytest.approx(expected)
        assert each["at_ms"] == row["last_ms"] + int(each["days"] * DAY_MS)
        assert each["kept_bytes"] == pytest.approx(3 * each["bytes_per_day"], abs=1)
    assert [each["limit_share"] for each in rows] == [0.75, 0.85, 0.90]
    assert row["disk_used"] == 0.5


def test_the_last_week_has_a_line_of_its_own(tmp_path: Path, disk: None) -> None:
    with ToldStore(tmp_path / "s") as store:
        for hour in range(24 * 10):
            for i in range(1 if hour < 24 * 3 else 4):
                store.put(at_ms=MONDAY_MS + hour * HOUR_MS + i, body=bytes(10))
    rows = rows_of(make_report("retention", store.root), "forecast")
    by_fit = {row["fit"]: row["bytes_per_day"] for row in rows}
    assert by_fit["last 7 days"] == pytest.approx(4 * 24 * store.told[0].size * _beside(store))
    assert by_fit["all"] < by_fit["last 7 days"]


def _beside(store: ToldStore) -> float:
    (row,) = rows_of(make_report("retention", store.root), "stores")
    return 1 + float((row["queue_bytes"] + row["index_bytes"]) / row["log_bytes"])


def test_segments_and_days_are_listed(tmp_path: Path) -> None:
    store = grown(tmp_path / "s", days=4, per_hour=2)
    report = make_report("retention", store.root)
    files = sorted((store.root / "commitlog").iterdir())
    assert [row["segment"] for row in rows_of(report, "segments")] == [path.name for path in files]
    days = {row["day_ms"]: row["messages"] for row in rows_of(report, "days")}
    assert days == {MONDAY_MS + day * DAY_MS: 48 for day in range(4)}


def test_a_log_is_as_large_as_its_records_reach(tmp_path: Path) -> None:
    """Its files are larger: a broker allocates them before it needs them."""
    store = grown(tmp_path / "s", days=4, per_hour=2)
    files = sorted((store.root / "commitlog").iterdir())
    with open(files[-1], "r+b") as file:  # no holes: what a warmed file is
        data = file.read()
        file.seek(0)
        file.write(data)
    end = store.told[-1].phy_offset + store.told[-1].size
    (row,) = rows_of(make_report("retention", store.root), "stores")
    assert row["log_bytes"] == end < row["allocated_bytes"]
    last = rows_of(make_report("retention", store.root), "segments")[-1]
    assert last["data_bytes"] == end - last["begin_offset"] < last["size_bytes"]
    inputs = open_inputs([str(store.root)])
    assert inputs.bytes_total == inputs.log_bytes[str(store.root)] == end
    files[0].unlink()
    files[1].unlink()
    (row,) = rows_of(make_report("retention", store.root), "stores")
    assert row["log_bytes"] == end - 2 * (16 << 10)


def test_a_few_minutes_are_too_short_for_a_forecast(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        store.put(at_ms=MONDAY_MS)
    report = make_report("retention", store.root)
    assert rows_of(report, "forecast") == []
    assert any("too short" in text for text in texts_of(report, "info"))


def test_a_disk_that_will_not_hold_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grown(tmp_path / "s", days=3)
    usage = Usage(1_000_000, 740_000, 260_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    (text,) = texts_of(make_report("retention", store.root), "warning")
    assert "reaches 75 % in" in text


@given(
    per_hour=st.integers(0, 1 << 30),
    hours=st.integers(3, 400),
    begin=st.integers(0, 1 << 21).map(lambda hour: hour * HOUR_MS),
)
def test_a_line_finds_steady_growth(per_hour: int, hours: int, begin: int) -> None:
    points = cumulative({begin + hour * HOUR_MS: per_hour for hour in range(hours)})
    assert points[-1] == (begin + hours * HOUR_MS, per_hour * hours)
    line = trend(points)
    assert line is not None
    assert line.bytes_per_day == pytest.approx(24 * per_hour, rel=1e-6, abs=1e-3)
    assert (last_trend(points) is None) == (hours - 1 <= 7 * 24)


def test_a_limit_is_reached_never_or_has_been() -> None:
    assert days_until(100, 100, 5) == 0
    assert days_until(100, 50, 0) is None
    assert days_until(100, 50, -1) is None
    assert days_until(100, 50, 25) == 2


def test_hours_without_messages_do_not_break_the_line() -> None:
    points = cumulative({0: 10, 5 * HOUR_MS: 10})
    assert [total for _, total in points] == [10, 10, 10, 10, 10, 20]
