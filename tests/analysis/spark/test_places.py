"""Beginnings and ends of reads, in logs whose clocks run backwards too."""

# ruff: noqa: E402 (what is imported below the skip needs the extra)

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.suite.skips import importable, skip_unless

skip_unless(importable("pyarrow", "pyspark"), "needs the extra spark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType
from support.stores.logs import LogImage, LogMessage, make_log

from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.log_stream import LogStreamReader
from trioha.analysis.spark.places import first_at
from trioha.analysis.spark.sources import CommitLogSource, arrow_schema
from trioha.analysis.store_files import open_store

SCHEMA = StructType([StructField("phy_offset", LongType())])
HOUR_MS = 3_600_000


def log_at(root: Path, times_ms: list[int], **options: bool) -> LogImage:
    log = make_log([LogMessage(store_ms=time_ms) for time_ms in times_ms], **options)
    log.write(root / ("dledger-n0/data" if options else "commitlog"))
    return log


def offsets(*paths: Path, **options: str) -> list[int]:
    """Offsets of the records that a read gives."""
    reader = CommitLogSource({"paths": json.dumps([*map(str, paths)]), **options}).reader(SCHEMA)
    return [
        offset
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for offset in (batch.column(0).to_pylist() if isinstance(batch, pa.RecordBatch) else [])
    ]


@pytest.mark.parametrize("is_dledger", [False, True])
def test_a_read_takes_what_begins_between_its_ends(is_dledger: bool, tmp_path: Path) -> None:
    options = {"is_dledger": True} if is_dledger else {}
    log = log_at(tmp_path, [1000 * n for n in range(80)], **options)
    places = [record.phy_offset for record in log.records]

    def between(starting: str, ending: str) -> list[int]:
        return offsets(tmp_path, startingOffsets=starting, endingOffsets=ending)

    some, more = (json.dumps({str(tmp_path): places[n]}) for n in (20, 60))
    assert between(some, more) == places[20:60]
    assert between("earliest", some) == places[:20]
    assert between(more, "latest") == places[60:]
    assert offsets(tmp_path, startingTimestamp="19500", endingTimestamp="60000") == places[20:60]
    assert offsets(tmp_path, startingTimestamp="1970-01-01T00:01:00") == places[60:]
    by_time = json.dumps({str(tmp_path): "1970-01-01T00:01:00"})
    assert offsets(tmp_path, endingOffsetsByTimestamp=by_time) == places[:60]
    assert offsets(tmp_path, startingTimestamp="99000") == []
    assert offsets(tmp_path, startingTimestamp="5000", to="9000") == places[5:9]


@given(st.lists(st.integers(0, HOUR_MS), min_size=1, max_size=60), st.integers(0, HOUR_MS))
def test_a_time_is_the_first_record_then_or_later_whatever_the_clock_did(
    tmp_path_factory: pytest.TempPathFactory, times_ms: list[int], time_ms: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    log = log_at(root, times_ms)
    expected = [r.phy_offset for r in log.records if r.message.store_ms >= time_ms]
    assert first_at(open_store(root), time_ms) == (expected or [log.end])[0]


def test_each_store_has_its_own_place(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    log = log_at(a, list(range(10)))
    log_at(b, list(range(10)))
    places = [record.phy_offset for record in log.records]
    starting = json.dumps({str(a): 3, str(b): 8})
    found = offsets(tmp_path, startingOffsetsByTimestamp=starting)
    assert found == [*places[3:], *places[8:]]
    with pytest.raises(AnalysisError, match=f"startingOffsets says nothing of {b}"):
        offsets(tmp_path, startingOffsets=json.dumps({str(a): 3}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "or end at earliest"),
        ({"startingOffsets": "soon"}, "option startingOffsets: 'soon' is neither earliest nor"),
        ({"endingOffsets": '{"/a": "b"}'}, "nor a JSON object with the offset of every store"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp: 'soon' is neither millisec"),
        ({"startingOffsetsByTimestamp": "5"}, "is no JSON object with the time of every store"),
        ({"endingTimestamp": "5", "endingOffsets": "latest"}, "say the same: give one"),
    ],
)
def test_a_wrong_place_is_told(options: dict[str, str], sentence: str, tmp_path: Path) -> None:
    log_at(tmp_path, [1])
    with pytest.raises(AnalysisError, match=sentence):
        offsets(tmp_path, **options)


def test_a_stream_begins_at_a_time(tmp_path: Path) -> None:
    log = log_at(tmp_path / "a", list(range(10)))
    (tmp_path / "b" / "config").mkdir(parents=True)
    paths = [str(tmp_path / name) for name in "ab"]
    options = {"paths": json.dumps(paths), "startingTimestamp": "7"}
    stream = LogStreamReader(options, CommitLogSource.table, arrow_schema(SCHEMA))
    assert stream.initialOffset() == {paths[0]: log.records[7].phy_offset, paths[1]: -1}
