"""Stores in an object store: read from a real S3 server on loopback, as they are from disk."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from support.peers.object_store import object_store, upload
from support.stores.logs import LogMessage, make_log

from trioha.analysis.consume_queues import scan_queue
from trioha.analysis.journal_rows import JournalRow, read_file, sized_journal_files
from trioha.analysis.log_end import LogEnd
from trioha.analysis.remote import RemoteSource
from trioha.analysis.scan import ScanFilter, plan_splits, scan_split
from trioha.analysis.schema import COMMITLOG_FULL, AnalysisError
from trioha.analysis.store_files import StoreFiles, open_store, open_stores
from trioha.journal.file import JournalFile


@pytest.fixture(scope="module")
def settings() -> Iterator[str]:
    with object_store() as found:
        yield found


def test_what_was_cut_off_since_the_listing_reads_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123")
    with RemoteSource(fs.LocalFileSystem(), str(path), 10) as source:
        assert source.read(2, 5) == b"23\0\0\0"
        assert source.read(8, 5) == b"\0\0"
        assert source.read(10, 5) == b""


def make_store(root: Path, *, log: str = "commitlog", count: int = 400) -> Path:
    messages = [
        LogMessage(store_ms=10_000_000 + 60_000 * n, body=b"b" * (n % 90), topic=f"T{n % 3}")
        for n in range(count)
    ]
    image = make_log(messages, segment_bytes=1 << 14, is_dledger=log != "commitlog")
    image.segments[0][700:900] = bytes(200)
    image.write(root / log)
    for topic in ("T 0", "%DLQ%g"):
        queue = root / "consumequeue" / topic / "2"
        queue.mkdir(parents=True)
        entries = [
            (n * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + n.to_bytes(8, "big")
            for n in range(30)
        ]
        (queue / f"{0:020d}").write_bytes(b"".join(entries) + bytes(400))
    sink = JournalFile(root / "journal", "b:0", lambda: 5, bytes_max=1 << 20)
    for n in range(5):
        sink.event("ha_progress", peer="p", gap_bytes=n)
    sink.close()
    return root


def rows(store: StoreFiles, filters: ScanFilter | None = None) -> tuple[list[Any], list[Any]]:
    found, damage = [], []
    for split in plan_splits(store, filters or ScanFilter(), 1 << 12):
        for batch in scan_split(pickle.loads(pickle.dumps(split)), columns="full", filters=filters):
            found += [row[1:] for row in batch.rows(COMMITLOG_FULL.names)]
            damage += [
                (row.segment, row.phy_offset, row.length, row.reason) for row in batch.corrupt
            ]
    return found, damage


@pytest.mark.parametrize("log", ["commitlog", "dledger-n0/data"])
def test_a_store_there_has_the_rows_and_damage_that_it_has_here(
    log: str, settings: str, tmp_path: Path
) -> None:
    here = open_store(make_store(tmp_path, log=log))
    path = upload(tmp_path, f"stores/{log[:3]} a", settings)
    there = open_store(path)
    assert rows(there) == rows(here)
    assert len(rows(here)[0]) > 390
    assert rows(here)[1]
    assert (there.label, there.is_closed) == (path, here.is_closed)
    late = ScanFilter(store_ms_from=10_000_000 + 60_000 * 300)
    assert rows(there, late) == rows(here, late)
    assert len(plan_splits(there, late, 1 << 12)) < len(plan_splits(there, ScanFilter(), 1 << 12))
    assert LogEnd().find(there) == LogEnd().find(here)


def test_its_queues_and_its_journal_are_read_too(settings: str, tmp_path: Path) -> None:
    here = open_store(make_store(tmp_path))
    path = upload(tmp_path, "whole", settings)
    there = open_store(path)
    assert [(q.topic, q.queue_id, q.bytes) for q in there.consume_queues()] == [
        (q.topic, q.queue_id, q.bytes) for q in here.consume_queues()
    ]
    for ours, theirs in zip(here.consume_queues(), there.consume_queues(), strict=True):
        [expected], [found] = list(scan_queue(ours)), list(scan_queue(theirs))
        assert found.phy_offset.tolist() == expected.phy_offset.tolist()
    [(file, size)] = sized_journal_files(path)
    [(own, own_size)] = sized_journal_files(str(tmp_path))
    assert size == own_size
    events = [(row.name, row.fields) for row in read_file(file) if isinstance(row, JournalRow)]
    expected_events = [
        (row.name, row.fields) for row in read_file(own) if isinstance(row, JournalRow)
    ]
    assert events == expected_events
    assert len(events) >= 5


def test_a_directory_of_many_brokers_is_read_and_what_else_it_holds_is_named(
    settings: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        make_store(tmp_path / "many" / name, count=5)
    (tmp_path / "many" / "notes").mkdir()
    (tmp_path / "many" / "notes" / "read.me").write_text("")
    path = upload(tmp_path / "many", "many", settings)
    base, _, query = path.partition("?")
    for place, ends in ((path, f"?{query}"), (str(tmp_path / "many"), "")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = open_stores(place)
        where = base if ends else place
        assert [store.label for store in found] == [f"{where}/{name}{ends}" for name in "ab"]
        assert f"passed over in {place}: {where}/notes{ends}" in caplog.text


def test_what_cannot_be_read_is_said(settings: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("hello")
    path = upload(tmp_path, "notes", settings)  # makes the bucket as well
    with pytest.raises(AnalysisError, match=r"s3a://backup/nothing\?.*: does not exist"):
        open_store(f"s3a://backup/nothing?{settings}")
    with pytest.raises(AnalysisError, match="is not a store: it has no commitlog/"):
        open_stores(path)
    with pytest.raises(AnalysisError, match=r"cannot open foo://x/y: .*; mount the storage"):
        open_store("foo://x/y")
