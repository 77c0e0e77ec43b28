"""Names of the sources' options, without a session."""

from __future__ import annotations

import pytest
from support.suite.skips import importable, skip_unless

from trioha.analysis.schema import AnalysisError

skip_unless(importable("pyspark"), "needs the extra spark")


@pytest.mark.parametrize(
    ("source", "given", "says"),
    [
        ("rocketmq_commitlog", "topics", "has no option topics; did you mean topic?"),
        ("rocketmq_commitlog", "colums", "has no option colums; did you mean columns?"),
        ("rocketmq_commitlog_full", "splitbyte", "did you mean splitBytes?"),
        ("rocketmq_commitlog_corrupt", "pushFilters", "rocketmq_commitlog_corrupt has no option"),
        ("rocketmq_consumequeue", "from", "has no option from; there are columns, splitBytes, min"),
        ("trioha_journal", "topic", "has no option topic; "),
        ("trioha_journal_corrupt", "maxBytesPerTrigger", "has no option"),
    ],
)
def test_an_unknown_option_is_an_error_with_the_nearest_name(
    source: str, given: str, says: str
) -> None:
    from trioha.analysis.spark.sources import SOURCES

    (found,) = [each for each in SOURCES if each.format_name == source]
    with pytest.raises(AnalysisError, match="has no option") as raised:
        found({"path": "/data", given: "1"}).schema()
    assert says in str(raised.value)


def test_options_of_streams_are_none_of_reads() -> None:
    from pyspark.sql.types import StructType

    from trioha.analysis.spark.sources import CommitLogSource

    source = CommitLogSource({"path": "/data", "failOnDataLoss": "false"})
    assert source.schema()
    with pytest.raises(AnalysisError, match="a read of rocketmq_commitlog has no option failOn"):
        source.reader(StructType([]))
    source.streamReader(StructType([]))
    source = CommitLogSource({"path": "/data", "endingTimestamp": "5"})
    source.reader(StructType([]))
    with pytest.raises(AnalysisError, match="a stream of rocketmq_commitlog has no option ending"):
        source.streamReader(StructType([]))


@pytest.mark.parametrize(
    ("given", "log_mib", "task_mib"),
    [
        ({}, 10, 10),
        ({}, 256, 64),
        ({}, 1024, 128),
        ({}, 8192, 256),
        ({"splitBytes": "32m"}, 8192, 32),
        ({"minPartitions": "64"}, 1024, 16),
        ({"splitBytes": "1m", "minPartitions": "2"}, 1024, 1),
    ],
)
def test_tasks_grow_with_the_log_unless_told(
    given: dict[str, str], log_mib: int, task_mib: int
) -> None:
    from trioha.analysis.spark.read_options import read_options

    options = read_options({"path": "/data", **given})
    assert options.task_bytes(log_mib << 20) == min(task_mib, log_mib) << 20
