"""Splits, damage and columns of the scanner, on logs whose content is known."""

from __future__ import annotations

import itertools
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.stores.analysed import MemorySource
from support.stores.logs import LogImage, LogMessage, make_log

from trioha.analysis import scan
from trioha.analysis.scan import Detail, RowBatch, ScanFilter, plan_splits, scan_source, scan_split
from trioha.analysis.schema import COMMITLOG, COMMITLOG_FULL, AnalysisError
from trioha.analysis.store_files import CorruptRow, LogSplit, Segment, open_store
from trioha.wire.properties import decode_properties

SEGMENT_BYTES = 1 << 14
FULL_NAMES = [name for name in COMMITLOG_FULL.names if name != "digest"]

messages = st.builds(
    lambda is_v6, **fields: attrs.evolve(
        LogMessage().with_v6_hosts() if is_v6 else LogMessage(), **fields
    ),
    st.booleans(),
    topic=st.sampled_from(["T", "Topic", "%RETRY%gruppe-ä", "t" * 127]),
    queue_id=st.integers(0, 3),
    body=st.binary(max_size=40) | st.sampled_from([b"", b"x" * 600, bytes(300)]),
    properties=st.sampled_from([b"", b"TAGS\x01a", b"KEYS\x01k1 k2\x02TAGS\x01b\x02UNIQ_KEY\x01u"]),
    is_noop=st.booleans(),
    store_ms=st.integers(1000, 2000),
)
logs = st.tuples(st.lists(messages, max_size=12), st.booleans())
"""Messages, and whether their log is a DLEDGER one."""
windows = st.sampled_from([150, 1000, 1 << 20])


def made(what: tuple[list[LogMessage], bool]) -> tuple[LogImage, bool]:
    some, is_dledger = what
    return make_log(some, segment_bytes=SEGMENT_BYTES, is_dledger=is_dledger), is_dledger


def segment_of(data: bytes | bytearray, *, is_dledger: bool, is_tail: bool = True) -> Segment:
    return Segment("/log/" + "0" * 20, 0, len(data), len(data), is_dledger, is_tail)


def scan_all(
    data: bytes | bytearray,
    *,
    is_dledger: bool,
    cuts: Sequence[int] = (),
    detail: Detail = "full",
    window: int = 1 << 20,
    is_tail: bool = True,
    is_closed: bool = True,
    filters: ScanFilter | None = None,
) -> tuple[list[tuple[Any, ...]], list[CorruptRow]]:
    """Rows and damage, in the order of splits that begin at 0 and at each of `cuts`."""
    segment = segment_of(data, is_dledger=is_dledger, is_tail=is_tail)
    places = sorted({0, len(data), *[cut % len(data) for cut in cuts]})
    rows: list[tuple[Any, ...]] = []
    corrupt: list[CorruptRow] = []
    with patch.object(scan, "_WINDOW_BYTES", window):
        for begin, end in itertools.pairwise(places):
            split = LogSplit("store", segment, begin, end, is_closed)
            done = 0
            for batch in scan_source(
                MemorySource(bytes(data)), split, columns=detail, filters=filters
            ):
                rows += batch.rows(FULL_NAMES if detail == "full" else COMMITLOG.names)
                corrupt += batch.corrupt
                done += batch.bytes_done
            assert done == end - begin, "progress adds up"
    return rows, corrupt


def expected_rows(log: LogImage, *, is_dledger: bool) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for record in log.records:
        message = record.message
        host = "2001:db8::1:10911" if message.sys_flag & 0x10 else "10.0.0.7:10911"
        properties = decode_properties(message.properties)
        rows.append(
            (
                "store",
                "0" * 20,
                record.phy_offset,
                record.end - record.phy_offset,
                message.topic,
                message.queue_id,
                record.queue_offset,
                message.flag,
                message.sys_flag,
                message.born_timestamp,
                host,
                message.store_ms,
                host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                zlib.crc32(message.body) & 0x7FFFFFFF,
                len(message.body),
                len(message.properties),
                3 if is_dledger else None,
                record.entry_index if is_dledger else None,
                properties.get("TAGS"),
                properties.get("KEYS"),
                properties.get("UNIQ_KEY"),
                properties,
                message.body,
                True,
            )
        )
    return rows


@settings(max_examples=150, deadline=None)
@given(logs, st.lists(st.integers(0, SEGMENT_BYTES), max_size=6), windows)
def test_every_record_is_one_row_wherever_the_log_is_cut(
    what: tuple[list[LogMessage], bool], cuts: list[int], window: int
) -> None:
    log, is_dledger = made(what)
    data = log.segments.get(0, bytearray(SEGMENT_BYTES))
    rows, corrupt = scan_all(data, is_dledger=is_dledger, cuts=cuts, window=window)
    assert rows == expected_rows(log, is_dledger=is_dledger)
    assert corrupt == []


@settings(max_examples=200, deadline=None)
@given(
    logs,
    st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 255)), min_size=1, max_size=4),
    st.lists(st.integers(0, 4000), max_size=6),
    windows,
)
def test_flips_cost_no_whole_record_and_cuts_change_nothing(
    what: tuple[list[LogMessage], bool], flips: list[tuple[int, int]], cuts: list[int], window: int
) -> None:
    log, is_dledger = made(what)
    data = bytearray(log.segments.get(0, bytearray(SEGMENT_BYTES)))
    touched = set()
    for place, mask in flips:
        data[place % max(1, log.end)] ^= mask
        touched.add(place % max(1, log.end))
    rows, corrupt = scan_all(data, is_dledger=is_dledger)
    again = scan_all(data, is_dledger=is_dledger, cuts=cuts, window=window)
    assert again == (rows, corrupt)

    found = {row[2] for row in rows}
    known = {record.phy_offset: record for record in log.records}
    assert found <= set(known)
    for record in log.records:
        if touched.isdisjoint(range(record.begin, record.end)):
            assert record.phy_offset in found
        elif record.phy_offset not in found:
            assert any(
                row.phy_offset <= record.begin < row.phy_offset + row.length for row in corrupt
            ), "damage is told"


def digests(data: bytes | bytearray, *, is_dledger: bool) -> dict[int, int]:
    """Return the digest of each record, by offset."""
    split = LogSplit("store", segment_of(data, is_dledger=is_dledger), 0, len(data), True)
    found: dict[int, int] = {}
    for batch in scan_source(MemorySource(bytes(data)), split, columns="full"):
        found |= {offset: digest for offset, digest in batch.rows(["phy_offset", "digest"])}
    return found


@settings(max_examples=200, deadline=None)
@given(logs, st.integers(0, SEGMENT_BYTES), st.integers(1, 255))
def test_a_digest_is_of_every_byte_of_its_record(
    what: tuple[list[LogMessage], bool], place: int, mask: int
) -> None:
    log, is_dledger = made(what)
    data = log.segments.get(0, bytearray(SEGMENT_BYTES))
    before = digests(data, is_dledger=is_dledger)
    place %= max(1, log.end)
    data[place] ^= mask
    after = digests(data, is_dledger=is_dledger)
    for record in log.records:
        is_same = after.get(record.phy_offset) == before[record.phy_offset]
        assert is_same is (not record.begin <= place < record.end)


@settings(max_examples=100, deadline=None)
@given(
    logs,
    st.integers(0, 4000),
    st.integers(1, 1500),
    st.lists(st.integers(0, 4000), max_size=4),
    windows,
)
@example(([LogMessage()] * 9, False), 200, 250, [210], 150)
def test_a_hole_of_zeros_costs_what_is_in_it(
    what: tuple[list[LogMessage], bool], begin: int, length: int, cuts: list[int], window: int
) -> None:
    log, is_dledger = made(what)
    data = bytearray(log.segments.get(0, bytearray(SEGMENT_BYTES)))
    data[begin : begin + length] = bytes(length)
    rows, corrupt = scan_all(data, is_dledger=is_dledger)
    assert scan_all(data, is_dledger=is_dledger, cuts=cuts, window=window) == (rows, corrupt)
    whole = [
        record.phy_offset
        for record in log.records
        if record.end <= begin or record.begin >= begin + length
    ]
    assert set(whole) <= {row[2] for row in rows}
    last = max(whole, default=0)
    for record in log.records:
        if record.phy_offset not in {row[2] for row in rows} and record.begin < last:
            assert any(
                row.phy_offset <= record.begin < row.phy_offset + row.length for row in corrupt
            )


@pytest.mark.parametrize("is_dledger", [False, True])
def test_a_log_that_ends_anywhere_in_a_record_loses_that_record_only(is_dledger: bool) -> None:
    log = make_log([LogMessage(properties=b"KEYS\x01k\x02TAGS\x01a")] * 3, is_dledger=is_dledger)
    last = log.records[-1]
    for end in range(last.begin, last.end):
        data = bytearray(log.segments[0])
        data[end:] = bytes(len(data) - end)
        rows, corrupt = scan_all(data, is_dledger=is_dledger, is_closed=False, cuts=[end - 3])
        assert [row[2] for row in rows] == [r.phy_offset for r in log.records[:-1]], end
        assert corrupt == [], "it may be being written"
        rows, corrupt = scan_all(data, is_dledger=is_dledger, is_closed=True)
        assert len(rows) == 2
        if data[last.begin : end].strip(b"\0"):
            assert [row.phy_offset for row in corrupt] == [last.begin]


@pytest.mark.parametrize("field", [0, 4, 28, 84])
def test_a_damaged_last_record_is_not_taken_for_an_unfinished_one(field: int) -> None:
    log = make_log([LogMessage(body=b"x" * 50)] * 3)
    data = bytearray(log.segments[0])
    data[log.records[-1].begin + field + 3] ^= 0x11
    rows, corrupt = scan_all(data, is_dledger=False, is_closed=False)
    assert len(rows) == 2
    assert [(row.phy_offset, row.length) for row in corrupt] == [
        (log.records[-1].begin, log.records[-1].end - log.records[-1].begin)
    ]


def test_a_wrong_checksum_shows_in_the_row_and_as_damage() -> None:
    log = make_log([LogMessage()] * 3)
    data = bytearray(log.segments[0])
    data[log.records[1].begin + 89] ^= 1
    rows, corrupt = scan_all(data, is_dledger=False)
    assert [row[-1] for row in rows] == [True, False, True]
    assert [(row.phy_offset, row.reason) for row in corrupt] == [
        (log.records[1].phy_offset, "body does not match its checksum")
    ]
    assert scan_all(data, is_dledger=False, detail="headers")[1] == []


def test_a_segment_in_the_middle_must_end_in_a_blank() -> None:
    log = make_log([LogMessage()] * 3)
    _, corrupt = scan_all(log.segments[0], is_dledger=False, is_tail=False)
    assert [(row.phy_offset, row.length, row.reason) for row in corrupt] == [
        (log.end, 4096 - log.end, "segment ends early")
    ]


def test_stale_records_of_a_recycled_file_are_no_rows() -> None:
    old = make_log([LogMessage(body=b"stale")] * 20, first_offset=1 << 20).segments[1 << 20]
    log = make_log([LogMessage()] * 3)
    data = log.segments[0]
    data[log.end :] = old[log.end :]
    rows, _ = scan_all(data, is_dledger=False)
    assert len(rows) == 3


def test_bodies_larger_than_any_window_pass_through() -> None:
    big = make_log(
        [LogMessage(body=b"b" * 3_000_000), LogMessage(body=b"c")], segment_bytes=4 << 20
    )
    rows, corrupt = scan_all(big.segments[0], is_dledger=False, cuts=[1 << 20, 2 << 20])
    assert [row[-2] for row in rows] == [b"b" * 3_000_000, b"c"]
    assert corrupt == []


def matches(record: Any, filters: ScanFilter) -> bool:
    def within(value: int, low: int | None, high: int | None) -> bool:
        return (low is None or value >= low) and (high is None or value < high)

    message = record.message
    return (
        (filters.topics is None or message.topic in filters.topics)
        and (filters.queue_ids is None or message.queue_id in filters.queue_ids)
        and within(message.store_ms, filters.store_ms_from, filters.store_ms_to)
        and within(record.phy_offset, filters.phy_offset_from, filters.phy_offset_to)
    )


@settings(max_examples=150, deadline=None)
@given(
    logs,
    st.builds(
        ScanFilter,
        topics=st.none() | st.frozensets(st.sampled_from(["T", "Topic", "other"])),
        queue_ids=st.none() | st.frozensets(st.integers(0, 3)),
        store_ms_from=st.none() | st.integers(900, 2100),
        store_ms_to=st.none() | st.integers(900, 2100),
        phy_offset_from=st.none() | st.integers(-5, 4000),
        phy_offset_to=st.none() | st.integers(-5, 4000),
    ),
    st.sampled_from([64, 500, 1 << 20]),
)
def test_filters_are_exact(
    what: tuple[list[LogMessage], bool], filters: ScanFilter, split_bytes: int
) -> None:
    log, is_dledger = made(what)
    with Store(log, is_dledger) as directory:
        store = open_store(directory)
        splits = plan_splits(store, filters, split_bytes)
        found = [
            offset
            for split in splits
            for batch in scan_split(split, filters=filters)
            for offset in batch.column("phy_offset")
        ]
    assert found == [record.phy_offset for record in log.records if matches(record, filters)]


class Store:
    """The log on disk, as long as a block lasts: hypothesis runs many in one test."""

    def __init__(self, log: LogImage, is_dledger: bool) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._log = log
        self._place = "dledger-n0/data" if is_dledger else "commitlog"

    def __enter__(self) -> Path:
        root = Path(self._directory.name)
        self._log.write(root / self._place)
        return root

    def __exit__(self, *exc_info: object) -> None:
        self._directory.cleanup()


def test_planning_by_time_reads_only_splits_near_it(tmp_path: Path) -> None:
    hour = 3_600_000
    log = make_log([LogMessage(store_ms=n * hour) for n in range(400)], segment_bytes=4096)
    log.write(tmp_path / "commitlog")
    store = open_store(tmp_path)
    everything = plan_splits(store, ScanFilter(), 1024)
    few = plan_splits(store, ScanFilter(store_ms_from=200 * hour, store_ms_to=202 * hour), 1024)
    assert len(everything) > 40
    assert 0 < len(few) <= 4
    assert rows_of(few, ScanFilter(store_ms_from=200 * hour, store_ms_to=202 * hour)) == [
        200 * hour,
        201 * hour,
    ]


def rows_of(splits: Sequence[LogSplit], filters: ScanFilter) -> list[int]:
    return [ms for batch in batches_of(splits, filters) for ms in batch.column("store_ms")]


def batches_of(splits: Sequence[LogSplit], filters: ScanFilter) -> Iterator[RowBatch]:
    for split in splits:
        yield from scan_split(split, filters=filters)


def test_planning_by_offset_cuts_splits_to_the_range(tmp_path: Path) -> None:
    make_log([LogMessage()] * 400).write(tmp_path / "commitlog")
    filters = ScanFilter(phy_offset_from=5000, phy_offset_to=5500)
    splits = plan_splits(open_store(tmp_path), filters)
    assert [(s.segment.from_offset + s.begin, s.segment.from_offset + s.end) for s in splits] == [
        (5000, 5500)
    ]


def test_a_segment_deleted_meanwhile_is_told(tmp_path: Path) -> None:
    log = make_log([LogMessage()] * 100)
    log.write(tmp_path / "commitlog")
    splits = plan_splits(open_store(tmp_path), ScanFilter())
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    (batch,) = scan_split(splits[0])
    assert [row.reason for row in batch.corrupt] == ["segment deleted while it was read"]


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    make_log([LogMessage()]).write(tmp_path / "commitlog")
    (split,) = plan_splits(open_store(tmp_path), ScanFilter())
    path = tmp_path / "commitlog" / ("0" * 20)
    path.unlink()
    path.mkdir()
    with pytest.raises(AnalysisError, match=r"cannot read .*: Is a directory"):
        list(scan_split(split))


def test_batches_are_bounded(tmp_path: Path) -> None:
    make_log([LogMessage()] * 60_000, segment_bytes=8 << 20).write(tmp_path / "commitlog")
    (split,) = plan_splits(open_store(tmp_path), ScanFilter())
    batches = list(scan_split(split))
    assert sum(batch.row_count for batch in batches) == 60_000
    assert max(batch.row_count for batch in batches) < 30_000
    assert sum(batch.bytes_done for batch in batches) == split.end - split.begin


def test_bodies_are_checked_unless_that_is_not_wanted() -> None:
    image, is_dledger = made(([LogMessage(body=b"hello")], False))
    data = bytearray(image.segments[0])
    data[88] ^= 1
    split = LogSplit("store", segment_of(data, is_dledger=is_dledger), 0, len(data))
    for checks_bodies in (True, False):
        found = scan_source(
            MemorySource(bytes(data)), split, columns="full", checks_bodies=checks_bodies
        )
        assert [bool(batch.corrupt) for batch in found] == [checks_bodies]


@given(logs, st.integers(40, 400))
@settings(max_examples=40, deadline=None)
def test_a_range_holds_the_offsets_from_its_first_to_the_next_range_s(
    what: tuple[list[LogMessage], bool], width: int
) -> None:
    image, is_dledger = made(what)
    for base, data in image.segments.items():
        segment = attrs.evolve(segment_of(data, is_dledger=is_dledger), from_offset=base)
        for begin in range(0, len(data), width):
            split = LogSplit("store", segment, begin, min(begin + width, len(data)))
            for batch in scan_source(MemorySource(bytes(data)), split):
                for phy_offset in batch.column("phy_offset"):
                    assert 0 <= phy_offset - split.first_offset < split.end - split.begin
