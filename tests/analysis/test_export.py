"""Exports, read by the tools that they are for."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.stores.logs import LogImage, LogMessage, make_log
from support.suite.skips import importable, skip_unless

from trioha.analysis.export import DAY, export
from trioha.analysis.scan import ScanFilter
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import open_store

DAY_MS = 86_400_000
FIRST_MS = 1_699_920_000_000  # 2023-11-14


@pytest.fixture
def log(tmp_path: Path) -> LogImage:
    """Three days, one of them twice: a clock was set back. One time is none."""
    messages = [
        LogMessage(
            store_ms=FIRST_MS + DAY_MS * (n * 4 // 200 % 3) + n, topic=f"T{n % 2}", body=bytes([n])
        )
        for n in range(200)
    ]
    messages[9].store_ms = 1 << 62
    log = make_log(messages, segment_bytes=1 << 13)
    log.write(tmp_path / "store" / "commitlog")
    return log


def day_of(store_ms: int) -> datetime.date | None:
    if store_ms == 1 << 62:
        return None
    return datetime.datetime.fromtimestamp(store_ms / 1000, datetime.UTC).date()


def expected(log: LogImage) -> list[Any]:
    return [
        (r.phy_offset, r.message.topic, bytes(r.message.body), day_of(r.message.store_ms))
        for r in log.records
    ]


def read(out: Path, columns: str = "*") -> duckdb.DuckDBPyRelation:
    source = f"read_parquet('{out}/*/*.parquet', hive_partitioning = true)"
    found = duckdb.sql(f"SELECT {columns} FROM {source} ORDER BY phy_offset")
    assert found is not None
    return found


def test_parquet_lies_by_day(log: LogImage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = export([open_store(tmp_path / "store")], out)
    assert (done.records, done.damaged) == (200, 0)
    assert sorted(path.name for path in out.iterdir()) == [
        *(f"day=2023-11-{day}" for day in (14, 15, 16)),
        "day=__HIVE_DEFAULT_PARTITION__",
    ]
    columns = (
        "phy_offset, topic, body, try_cast(day AS DATE) AS day, store_ms, epoch_ms(store_time)"
    )
    rows = read(out, columns).fetchall()
    assert [row[:4] for row in rows] == expected(log)
    assert all(row[5] == row[4] for row in rows if row[3] is not None)
    with pytest.raises(AnalysisError, match="out exists; name a directory that is to be made"):
        export([open_store(tmp_path / "store")], out)


def test_only_what_is_asked_for(log: LogImage, tmp_path: Path) -> None:
    log.segments[0][200:300] = bytes(100)
    log.write(tmp_path / "store" / "commitlog")
    filters = ScanFilter(topics=frozenset({"T1"}), store_ms_to=FIRST_MS + DAY_MS)
    done = export(
        [open_store(tmp_path / "store")],
        tmp_path / "out",
        detail="headers",
        columns=["phy_offset"],
        filters=filters,
    )
    found = read(tmp_path / "out")
    assert found.columns == ["phy_offset", DAY]
    assert len(found) == done.records > 40
    assert done.damaged == 1
    with pytest.raises(AnalysisError, match="colour is no column of commitlog_full"):
        export([], tmp_path / "none", columns=["colour"])


def test_an_export_that_ended_early_is_not_taken_for_a_whole_one(
    log: LogImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioha.analysis import export as module

    real = vars(module)["to_arrow"]
    calls: list[object] = []

    def fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(module, "to_arrow", fails)
    with pytest.raises(OSError, match="No space left"):
        export([open_store(tmp_path / "store")], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(AnalysisError, match=r"out.partial is left of an export that ended early"):
        export([open_store(tmp_path / "store")], tmp_path / "out")


def test_a_delta_table_has_the_same_rows(log: LogImage, tmp_path: Path) -> None:
    skip_unless(importable("deltalake"), "needs deltalake")
    from deltalake import DeltaTable

    done = export([open_store(tmp_path / "store")], tmp_path / "out", kind="delta")
    assert done.records == 200
    table = DeltaTable(tmp_path / "out")
    assert table.metadata().partition_columns == [DAY]
    rows = table.to_pyarrow_table().sort_by("phy_offset").to_pylist()
    names = ("phy_offset", "topic", "body", DAY)
    assert [tuple(row[name] for name in names) for row in rows] == expected(log)
