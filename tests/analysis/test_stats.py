"""The statistics are what a plain count of the records says, whole and in pieces."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.stores.analysed import MemorySource, bin_of
from support.stores.logs import LogMessage, make_log

from trioha.analysis.arrow_batches import schema_of, to_arrow, with_held_times
from trioha.analysis.database import Database
from trioha.analysis.index_keys import COLUMNS, HASH_BITS, HASH_MASK, keys_of
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.scan import scan_source
from trioha.analysis.schema import COMMITLOG, DECODED
from trioha.analysis.stats import COUNTED, HOUR_MS, MINUTE_MS, STATS
from trioha.analysis.store_files import LogSplit, Segment
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import index_key_hash

times = st.integers(0, 200_000) | st.sampled_from([-1, -60_001, 1 << 55, -(1 << 55)])
messages = st.builds(
    lambda is_v6, **fields: attrs.evolve(
        LogMessage().with_v6_hosts() if is_v6 else LogMessage(), **fields
    ),
    st.booleans(),
    topic=st.sampled_from(["T", "%RETRY%g"]),
    queue_id=st.integers(0, 2),
    body=st.binary(max_size=3),
    properties=st.lists(
        st.sampled_from(
            [b"TAGS", b"KEYS", b"DELAY", b"k", b" ", b"\x01", b"\x02", b"\xff", "ä".encode()]
        ),
        max_size=12,
    ).map(b"".join)
    | st.sampled_from(
        [
            b"",
            b"TAGS\x01a",
            b"KEYS\x01k1 k2\x02TAGS\x01b\x02UNIQ_KEY\x01u\x02",
            b"XTAGS\x01a\x02TAGS\x01",
            b"TAGS\x01a\x02TAGS\x01b\x02KEYS\x01TAGS\x01c",
            b"TAGS\x01\xff\xfe\x02KEYS\x01\xc3",
            b"\x02\x02TAGS\x01a\x01b",
            b"TAGS",
            "TAGS\x01ä\x02UNIQ_KEY\x01ü".encode(),
        ]
    ),
    born_timestamp=times,
    store_ms=times,
    reconsume_times=st.integers(-1, 2),
)
some_messages = st.lists(messages, min_size=1, max_size=12)


def batches_of(some: list[LogMessage]) -> list[RowBatch]:
    data = bytes(make_log(some, segment_bytes=1 << 14).segments[0])
    segment = Segment("/log/" + "0" * 20, 0, len(data), len(data), is_dledger=False, is_tail=True)
    split = LogSplit("store", segment, 0, len(data))
    found = scan_source(MemorySource(data), split, columns="full")
    return [batch for batch in found if batch.row_count]


def counted(database: Database, batches: list[RowBatch], name: str) -> list[dict[str, Any]]:
    schema = schema_of(COMMITLOG, COUNTED)
    rows = [with_held_times(to_arrow(batch, COMMITLOG, schema)) for batch in batches]
    database.hold("records", pa.Table.from_batches(rows, schema))
    return database.query(STATS[name].count_sql("records"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Database(tmp_path_factory.mktemp("scratch"))
    yield made
    made.close()


@given(some=some_messages)
@settings(max_examples=15, deadline=None)
def test_records_are_counted_as_python_counts_them(
    database: Database, some: list[LogMessage]
) -> None:
    minutes = Counter(
        (m.topic, m.queue_id, m.store_ms // MINUTE_MS * MINUTE_MS, m.reconsume_times > 0)
        for m in some
    )
    batches = batches_of(some)
    for row in counted(database, batches, "commitlog_stats"):
        key = (row["topic"], row["queue_id"], row["minute_ms"])
        assert row["messages"] == minutes[*key, True] + minutes[*key, False]
        assert row["reconsumed"] == minutes[*key, True]
        ours = [m for m in some if (m.topic, m.queue_id) == key[:2]]
        ours = [m for m in ours if m.store_ms // MINUTE_MS * MINUTE_MS == key[2]]
        assert row["body_bytes"] == sum(len(m.body) for m in ours)
        assert row["store_ms_min"] == min(m.store_ms for m in ours)
        assert row["store_ms_max"] == max(m.store_ms for m in ours)
    latencies: Counter[tuple[str, int, int]] = Counter()
    for m in some:
        latency = bin_of(m.store_ms - m.born_timestamp)
        latencies[m.topic, m.store_ms // HOUR_MS * HOUR_MS, latency] += 1
    found: Counter[tuple[str, int, int]] = Counter()
    for row in counted(database, batches, "latency_stats"):
        found[row["topic"], row["hour_ms"], row["latency_bin"]] += row["messages"]
    assert found == latencies
    sizes = sum(row["bytes"] for row in counted(database, batches, "size_stats"))
    assert sizes == sum(sum(batch.column("size")) for batch in batches)


def test_times_of_a_damaged_record_overflow_nothing(database: Database) -> None:
    odd = [attrs.evolve(LogMessage(), store_ms=-(1 << 63), born_timestamp=(1 << 63) - 1)] * 3
    [row] = counted(database, batches_of(odd), "latency_stats")
    assert row["messages"] == 3


def _with(*properties: bytes) -> list[LogMessage]:
    return [attrs.evolve(LogMessage(), properties=each) for each in properties]


@given(some_messages)
@example(_with(b"TAGS", b"KEYS\x01b\x01c"))  # as many separators as pairs
@example(_with(b"KEYS\x01b\x01c", b"TAGS", b"", b"TAGS\x01a"))
@settings(max_examples=60)
def test_single_properties_are_what_the_decoder_reads(some: list[LogMessage]) -> None:
    words = ("tags", "keys", "unique_key", "property_delay")
    for batch in batches_of(some):
        found = to_arrow(batch, DECODED, schema_of(DECODED, words))
        for name in words:
            assert found[name].to_pylist() == batch.column(name)


@given(some_messages)
@settings(max_examples=60)
def test_index_keys_have_the_hashes_of_a_broker(some: list[LogMessage]) -> None:
    _check_keys(some)


def _check_keys(some: list[LogMessage]) -> None:
    for batch in batches_of(some):
        expected = [
            (phy_offset - 7, index_key_hash(topic, word))
            for phy_offset, topic, sys_flag, unique_key, keys in batch.rows(
                ("phy_offset", "topic", "sys_flag", *COLUMNS)
            )
            if sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.TRANSACTION_ROLLBACK
            for word in (unique_key, *(keys or "").split(" "))
            if word
        ]
        texts = to_arrow(batch, DECODED, schema_of(DECODED, COLUMNS))
        keys = keys_of(batch, texts, 7).tolist()
        assert [(key >> HASH_BITS, key & HASH_MASK) for key in keys] == expected


def test_index_keys_come_in_the_order_of_a_brokers_entries() -> None:
    some = [b"KEYS\x01a  b", b"", b"UNIQ_KEY\x01u", b"KEYS\x01b a\x02UNIQ_KEY\x01v", b"TAGS\x01t"]
    _check_keys(_with(*some))


def test_keys_too_long_for_the_table_of_powers_have_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trioha.analysis.index_keys._BYTES_MAX", 3)
    _check_keys(_with(b"KEYS\x01long other"))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:10911", "10.0.0.1"),
        ("[2001:db8::1]:10911", "[2001:db8::1]"),
        ("2001:db8::1:80", "2001:db8::1"),
        ("name", "name"),
        ("name:port", "name:port"),
        ("", ""),
    ],
)
def test_a_host_is_an_address_without_its_port(database: Database, address: str, host: str) -> None:
    assert database.query(f"SELECT host_of('{address}') AS host") == [{"host": host}]
