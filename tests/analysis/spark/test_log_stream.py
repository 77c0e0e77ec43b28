"""The streaming reader on logs that grow: first alone, then under a running query."""

# ruff: noqa: E402 (what is imported below the skip needs the extra)

from __future__ import annotations

import queue
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.suite.skips import importable, skip_unless

skip_unless(importable("pyarrow", "pyspark"), "needs the extra spark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import LongType, StructField, StructType
from support.stores.logs import LogImage, LogMessage, make_log

from trioha.analysis.schema import COMMITLOG, AnalysisError
from trioha.analysis.spark import register
from trioha.analysis.spark.log_stream import LogStreamReader
from trioha.analysis.spark.sources import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS = arrow_schema(StructType([StructField("phy_offset", LongType())]))


def reader_of(*paths: Path, **options: str) -> LogStreamReader:
    if len(paths) == 1:
        options["path"] = str(paths[0])
    else:
        options["paths"] = "[" + ", ".join(f'"{path}"' for path in paths) + "]"
    return LogStreamReader(options, COMMITLOG, OFFSETS)


def batch_of(reader: LogStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    return [
        offset
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for offset in batch.column(0).to_pylist()
    ]


def grow(log: LogImage, directory: Path, end: int) -> None:
    """Write the bytes up to `end` as a broker does: allocate a file at once, then fill it."""
    directory.mkdir(parents=True, exist_ok=True)
    for offset, data in log.segments.items():
        if offset <= end:
            with (directory / f"{offset:020d}").open("ab") as file:
                file.truncate(len(data))
            with (directory / f"{offset:020d}").open("r+b") as file:
                file.write(data[: end - offset])


def log_of(count: int, *, is_dledger: bool = False) -> LogImage:
    return make_log(
        [LogMessage(body=b"x" * (n * 37 % 400)) for n in range(count)], is_dledger=is_dledger
    )


@pytest.mark.parametrize("is_dledger", [False, True])
@pytest.mark.parametrize("step", [61, 997, 5000])
def test_no_record_is_in_two_batches_or_in_none(
    is_dledger: bool, step: int, tmp_path: Path
) -> None:
    log = log_of(60, is_dledger=is_dledger)
    root = tmp_path / "store"
    reader = reader_of(root)
    offsets = reader.initialOffset()
    assert offsets == {str(root): -1}
    found: list[int] = []
    for end in [*range(0, log.end, step), log.end]:
        grow(log, root / ("dledger-n0/data" if is_dledger else "commitlog"), end)
        latest = reader.latestOffset(offsets, ReadAllAvailable())
        found += batch_of(reader, offsets, latest)
        whole = [record.phy_offset for record in log.records if record.end <= end]
        assert found == whole
        offsets = latest
    assert len(found) == 60


def test_a_batch_is_as_large_as_was_asked_for(tmp_path: Path) -> None:
    log = log_of(200)
    grow(log, tmp_path / "commitlog", log.end)
    reader = reader_of(tmp_path, maxBytesPerTrigger="2k")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(2048)
    offsets = reader.initialOffset()
    found: list[int] = []
    batches = 0
    while (latest := reader.latestOffset(offsets, limit)) != offsets:
        assert latest[str(tmp_path)] - offsets[str(tmp_path)] <= 2048
        found += batch_of(reader, offsets, latest)
        offsets = latest
        batches += 1
    assert found == [record.phy_offset for record in log.records]
    assert batches > 10


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    log = log_of(100)
    grow(log, tmp_path / "commitlog", log.records[50].end)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    grow(log, tmp_path / "commitlog", log.end)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(batch_of(reader, start, end)) == 51
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_where_to_begin_can_be_said(tmp_path: Path) -> None:
    log = log_of(100)
    grow(log, tmp_path / "commitlog", log.end)
    end = {str(tmp_path): log.end}
    assert reader_of(tmp_path, startingOffsets="latest").initialOffset() == end
    place = log.records[70].phy_offset
    reader = reader_of(tmp_path, startingOffsets=f'{{"{tmp_path}": {place}}}')
    assert len(batch_of(reader, reader.initialOffset(), end)) == 30
    with pytest.raises(AnalysisError, match="option startingOffsets: 'soon' is neither"):
        reader_of(tmp_path, startingOffsets="soon").initialOffset()


def test_an_offset_that_is_gone_ends_the_query_or_is_passed_over(tmp_path: Path) -> None:
    log = log_of(100)
    grow(log, tmp_path / "commitlog", log.end)
    start, end = {str(tmp_path): 100}, {str(tmp_path): log.end}
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    with pytest.raises(AnalysisError, match="offset 100 is gone, the log now begins at 4096"):
        batch_of(reader_of(tmp_path), start, end)
    found = batch_of(reader_of(tmp_path, failOnDataLoss="false"), start, end)
    assert found == [r.phy_offset for r in log.records if r.phy_offset >= 4096]


def test_stores_move_on_their_own(tmp_path: Path) -> None:
    log = log_of(30)
    a, b = tmp_path / "a", tmp_path / "b"
    reader = reader_of(a, b)
    offsets = reader.initialOffset()
    grow(log, a / "commitlog", log.end)
    (b / "config").mkdir(parents=True)
    latest = reader.latestOffset(offsets, ReadAllAvailable())
    assert latest == {str(a): log.end, str(b): -1}
    assert len(batch_of(reader, offsets, latest)) == 30


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_running_query_follows_a_store(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    log = log_of(80)
    root = tmp_path / "store"
    query = (
        spark.readStream.format("rocketmq_commitlog")
        .option("columns", "phy_offset,topic")
        .load(str(root))
        .writeStream.format("memory")
        .queryName("followed")
        .start()
    )
    try:
        for end in (700, 3000, 9000, log.end):
            grow(log, root / "commitlog", end)
            query.processAllAvailable()
            rows = spark.sql("SELECT phy_offset FROM followed").collect()
            whole = [record.phy_offset for record in log.records if record.end <= end]
            assert sorted(row["phy_offset"] for row in rows) == whole
    finally:
        query.stop()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    log = log_of(80)
    out = tmp_path / "out"

    def run() -> list[Any]:
        query = (
            spark.readStream.format("rocketmq_commitlog_full")
            .option("maxBytesPerTrigger", "4k")
            .load(str(tmp_path / "store"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination(120)
        rows = spark.read.parquet(str(out)).select("phy_offset", "body").collect()
        return sorted(row["phy_offset"] for row in rows)

    for count in (30, 31, 80):
        grow(log, tmp_path / "store" / "commitlog", log.records[count - 1].end)
        assert run() == [record.phy_offset for record in log.records[:count]]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_listener_tells_bytes_and_seconds_behind(spark: SparkSession, tmp_path: Path) -> None:
    from trioha.analysis.spark.progress import LagListener, StoreLag

    register(spark)
    log = make_log([LogMessage(store_ms=1000 * n) for n in range(40)])
    log.write(tmp_path / "store" / "commitlog")
    told: queue.SimpleQueue[StoreLag] = queue.SimpleQueue()
    listener = LagListener(told.put, now=lambda: 100.0)
    spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format("rocketmq_commitlog")
            .option("maxBytesPerTrigger", "1k")
            .load(str(tmp_path / "store"))
            .writeStream.format("noop")
            .queryName("behind")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        lags = [told.get(timeout=60)]
        while lags[-1].bytes_behind:
            lags.append(told.get(timeout=60))
    finally:
        spark.streams.removeListener(listener)
    assert len(lags) > 3
    assert {(lag.query, lag.store) for lag in lags} == {("behind", str(tmp_path / "store"))}
    for lag in lags[:-1]:
        end = log.end - lag.bytes_behind
        lacking = [record.message.store_ms for record in log.records if record.begin >= end]
        assert lag.seconds_behind == 100 - lacking[0] / 1000
    assert lags[-1].seconds_behind == 0
