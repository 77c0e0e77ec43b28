"""Directories that count as a store, and its files, on stores of every writer."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.stores.logs import LogMessage, make_log
from support.stores.small import (
    crashing,
    dispatch_all,
    message,
    open_store,
    records_of,
    small_config,
)
from support.suite.archives import unpack

from trioha.analysis import store_files
from trioha.analysis.consume_queues import scan_queue
from trioha.analysis.scan import scan_split
from trioha.analysis.schema import COMMITLOG_FULL, TABLES, AnalysisError, ColumnType
from trioha.analysis.store_files import CorruptRow, StoreFiles
from trioha.store.inspect import iter_records
from trioha.wire.record import Record

GOLDEN = Path(__file__).parent.parent / "store" / "golden"


def rows_of(store: StoreFiles, *names: str) -> list[tuple[Any, ...]]:
    return [
        row
        for split in store.splits()
        for batch in scan_split(split, columns="full")
        for row in batch.rows(names)
    ]


def damage_of(store: StoreFiles) -> list[CorruptRow]:
    return [
        row
        for split in store.splits()
        for batch in scan_split(split, columns="full")
        for row in batch.corrupt
    ]


@pytest.mark.parametrize("name", ["java-clean-stop", "java-killed"])
def test_a_java_store_is_read_as_java_told_it(name: str, tmp_path: Path) -> None:
    unpack(GOLDEN / f"{name}.tar.xz", tmp_path)
    root = next(path.parent for path in tmp_path.rglob("commitlog"))
    store = store_files.open_store(root)
    # Java makes the next file in advance, which `iter_records` takes for a part of the log.
    records = [item for item in iter_records(root / "commitlog") if isinstance(item, Record)]
    assert rows_of(store, "phy_offset", "topic", "queue_id", "queue_offset", "body", "crc_ok") == [
        (r.phy_offset, r.topic, r.queue_id, r.queue_offset, r.body, True) for r in records
    ]
    assert records
    assert damage_of(store) == []
    assert store.is_closed == (name == "java-clean-stop")
    assert all(isinstance(topic, dict) for topic in store.topics().values())


def test_a_java_store_of_dledger_mode_is_read_as_java_told_it(tmp_path: Path) -> None:
    unpack(GOLDEN / "java-dledger.tar.xz", tmp_path)
    told = json.loads((GOLDEN / "java-dledger.json").read_text())
    store = store_files.open_store(tmp_path)
    assert all(segment.is_dledger for segment in store.segments)
    assert len(store.segments) > 1
    found = {
        row[0]: row[1:]
        for row in rows_of(
            store, "phy_offset", "queue_id", "queue_offset", "tags", "keys", "body", "crc_ok"
        )
    }
    plain = [each for each in told if each["size"] == len(found[each["phy_offset"]][4])]
    assert len(plain) >= len(told) - 1  # the largest is stored compressed
    for each in plain:
        queue_id, queue_offset, tags, keys, body, crc_ok = found[each["phy_offset"]]
        assert (queue_id, queue_offset) == (each["queue_id"], each["queue_offset"])
        assert (tags or "", keys or "") == (each["tags"] or "", each["keys"] or "")
        assert (sha256(body).hexdigest(), crc_ok) == (each["sha256"], True)
    entries = rows_of(store, "term", "entry_index")
    vote = (tmp_path / "dledger-n0" / "currterm").read_text()
    assert [f"{term}" for term in {term for term, _ in entries}] == re.findall(
        "Term=([0-9]+)", vote
    )
    indexes = [index for _, index in entries]
    assert indexes == sorted(set(indexes))
    assert damage_of(store) == []
    assert store.is_closed


def test_a_store_in_use_is_read_up_to_its_last_record(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with crashing(open_store(config)) as live:
        for n in range(100):
            live.put_message(message(b"x" * n, queue_id=n % 2, tags="a"), 1000 + n)
        dispatch_all(live)
        store = store_files.open_store(tmp_path)
        assert len(rows_of(store, "phy_offset")) == 100
        assert damage_of(store) == []
        entries = [
            entry
            for queue in store.consume_queues()
            for batch in scan_queue(queue)
            for entry in zip(
                batch.queue_offset, batch.phy_offset, batch.size, batch.tags_code, strict=True
            )
        ]
        assert not store.is_closed
    assert sorted(entry[1] for entry in entries) == [r.phy_offset for r in records_of(config)]
    assert {entry[3] for entry in entries} == {97}


def test_a_queue_that_does_not_begin_at_zero_has_no_rows_for_its_padding(tmp_path: Path) -> None:
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    padding = (0).to_bytes(8, "big") + b"\x7f\xff\xff\xff" + bytes(8)
    entry = (77).to_bytes(8, "big") + (91).to_bytes(4, "big") + (-5).to_bytes(8, "big", signed=True)
    (directory / f"{160:020d}").write_bytes(padding * 3 + entry + bytes(80))
    (queue,) = store_files.open_store(tmp_path).consume_queues()
    (batch,) = scan_queue(queue)
    columns = (batch.queue_offset, batch.phy_offset, batch.size, batch.tags_code)
    assert [column.tolist() for column in columns] == [[11], [77], [91], [-5]]


@pytest.mark.parametrize("place", ["dledger-n0/data", "commitlog"])
def test_dledger_and_plain_logs_are_told_apart(place: str, tmp_path: Path) -> None:
    is_dledger = place != "commitlog"
    log = make_log([LogMessage()] * 100, is_dledger=is_dledger)
    log.segments[0][:300] = bytes(300)
    directory = log.write(tmp_path / place)
    for path in (tmp_path, directory, directory.parent):
        if path == tmp_path / "commitlog":
            continue
        store = store_files.open_store(path)
        assert all(segment.is_dledger == is_dledger for segment in store.segments)
        assert len(rows_of(store, "term")) > 90


def test_a_ledger_behind_an_old_commitlog_is_one_log(tmp_path: Path) -> None:
    make_log([LogMessage()] * 40).write(tmp_path / "commitlog")
    make_log([LogMessage()] * 40, first_offset=8192, is_dledger=True).write(
        tmp_path / "dledger-n1" / "data"
    )
    store = store_files.open_store(tmp_path)
    offsets = [row[0] for row in rows_of(store, "phy_offset")]
    assert len(offsets) == 80
    assert offsets == sorted(offsets)


def test_missing_segments_are_rows_and_not_the_end(tmp_path: Path) -> None:
    log = make_log([LogMessage()] * 200)
    log.write(tmp_path / "commitlog")
    (tmp_path / "commitlog" / f"{8192:020d}").unlink()
    store = store_files.open_store(tmp_path)
    assert damage_of(store) == store.gaps
    assert store.gaps == [CorruptRow(str(tmp_path), f"{8192:020d}", 8192, 4096, "segment missing")]
    missing = [r for r in log.records if 8192 <= r.phy_offset < 12288]
    assert len(rows_of(store, "phy_offset")) == len(log.records) - len(missing)


def test_a_segment_cut_short_says_so(tmp_path: Path) -> None:
    log = make_log([LogMessage()] * 200)
    log.write(tmp_path / "commitlog")
    os.truncate(tmp_path / "commitlog" / f"{4096:020d}", 3000)
    reasons = [row.reason for row in damage_of(store_files.open_store(tmp_path))]
    assert "segment cut short" in reasons


def test_files_made_in_advance_are_not_the_end_of_the_log(tmp_path: Path) -> None:
    log = make_log([LogMessage()] * 50)
    last = max(log.segments)
    log.segments[last + 4096] = bytearray(4096)
    log.segments[last + 8192] = bytearray(4096)
    log.write(tmp_path / "commitlog")
    store = store_files.open_store(tmp_path)
    assert store.segments[-1].from_offset == last
    assert damage_of(store) == []


def test_a_last_segment_whose_beginning_is_zeroed_is_damaged_and_not_empty(tmp_path: Path) -> None:
    log = make_log([LogMessage()] * 200, segment_bytes=16384)
    last = max(log.segments)
    log.segments[last][:2000] = bytes(2000)
    log.write(tmp_path / "commitlog")
    store = store_files.open_store(tmp_path)
    assert [row.phy_offset for row in damage_of(store)] == [last]


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    store = store_files.open_store(tmp_path)
    assert (store.segments, store.gaps, store.splits(), store.consume_queues()) == ([], [], [], [])
    assert (store.consumer_offsets(), store.topics(), store.delay_offsets()) == ({}, {}, {})


def test_what_is_not_a_store_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "file").write_text("x")
    for name, text in [
        ("photos", "is not a store"),
        ("file", "is not a directory"),
        ("nowhere", "does not exist"),
    ]:
        with pytest.raises(AnalysisError, match=text):
            store_files.open_store(tmp_path / name)
    for node in ("dledger-a", "dledger-b"):
        (tmp_path / node / "data").mkdir(parents=True)
    with pytest.raises(AnalysisError, match="several nodes: dledger-a, dledger-b; name one"):
        store_files.open_store(tmp_path)


def test_config_files_are_read_however_java_quotes_them(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:5,1:7},"odd":1}}')
    (config / "delayOffset.json").write_text('{"offsetTable":{3:9}}')
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": {"perm": 6}}}))
    store = store_files.open_store(tmp_path)
    assert store.consumer_offsets() == {("T", "g"): {0: 5, 1: 7}}
    assert store.delay_offsets() == {3: 9}
    assert store.topics() == {"T": {"perm": 6}}
    (config / "topics.json").write_text("{broken")
    with pytest.raises(AnalysisError, match=r"no readable copy of topics\.json"):
        store.topics()


def test_the_tables_have_types_for_every_engine() -> None:
    assert COMMITLOG_FULL.type_of("store_time") is ColumnType.TIMESTAMP
    assert COMMITLOG_FULL.spark_ddl(("topic", "store_time")) == (
        "`topic` STRING NOT NULL, `store_time` TIMESTAMP"
    )
    assert set(TABLES) >= {"commitlog", "journal_corrupt"}
    with pytest.raises(KeyError):
        COMMITLOG_FULL.type_of("nonsense")
