"""What Arrow counts is what Python counts, and what it cuts out of properties what Python reads."""

# ruff: noqa: E402 (what is imported below the skip needs the extra)

from __future__ import annotations

from collections.abc import Iterator

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.logs import LogMessage, make_log
from support.suite.skips import importable, skip_unless

skip_unless(importable("pyarrow", "pyspark"), "needs the extra spark")

import pyarrow as pa

from trioha.analysis.log_source import MemorySource
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.scan import scan_source
from trioha.analysis.spark.arrow_batches import to_arrow
from trioha.analysis.spark.arrow_statistics import ArrowStatistics
from trioha.analysis.stats import Statistics
from trioha.analysis.store_files import LogSplit, Segment

WORDS = ("tags", "keys", "unique_key")
times = st.integers(0, 200_000) | st.sampled_from([-1, -60_001, 1 << 62, -(1 << 62)])
messages = st.builds(
    lambda is_v6, **fields: attrs.evolve(
        LogMessage().with_v6_hosts() if is_v6 else LogMessage(), **fields
    ),
    st.booleans(),
    topic=st.sampled_from(["T", "%RETRY%g"]),
    queue_id=st.integers(0, 2),
    body=st.binary(max_size=3),
    properties=st.sampled_from(
        [
            b"",
            b"TAGS\x01a",
            b"KEYS\x01k1 k2\x02TAGS\x01b\x02UNIQ_KEY\x01u\x02",
            b"XTAGS\x01a\x02TAGS\x01",
            b"TAGS\x01a\x02TAGS\x01b\x02KEYS\x01TAGS\x01c",
            b"TAGS\x01\xff\xfe\x02KEYS\x01\xc3",
            "TAGS\x01ä\x02UNIQ_KEY\x01ü".encode(),
        ]
    ),
    born_timestamp=times,
    store_ms=times,
    reconsume_times=st.integers(-1, 2),
)


def batches_of(some: list[LogMessage]) -> Iterator[RowBatch]:
    data = bytes(make_log(some, segment_bytes=1 << 14).segments[0])
    segment = Segment("/log/" + "0" * 20, 0, len(data), len(data), is_dledger=False, is_tail=True)
    split = LogSplit("store", segment, 0, len(data))
    return scan_source(MemorySource(data), split, columns="full")


@given(st.lists(messages, min_size=1, max_size=12))
@settings(max_examples=60)
def test_both_ways_of_counting_agree(some: list[LogMessage]) -> None:
    slow, fast = Statistics("store"), ArrowStatistics("store")
    for _ in range(2):  # keys that are there already are merged
        for batch in batches_of(some):
            slow.add(batch)
            fast.add(batch)
    expected = slow.take()
    assert {name: sorted(rows) for name, rows in fast.take().items()} == {
        name: sorted(rows) for name, rows in expected.items()
    }
    assert sum(row[-3] for row in expected["size_stats"]) == 2 * len(some)


@given(st.lists(messages, min_size=1, max_size=12))
@settings(max_examples=60)
def test_single_properties_are_what_the_decoder_reads(some: list[LogMessage]) -> None:
    from trioha.analysis.schema import COMMITLOG_FULL

    schema = pa.schema([pa.field(name, pa.string()) for name in WORDS])
    for batch in batches_of(some):
        if batch.row_count:
            found = to_arrow(batch, COMMITLOG_FULL, schema)
            for name in WORDS:
                assert found[name].to_pylist() == batch.column(name)
