"""Stores that a Java broker wrote, stopped in order and killed: everything in them is found.

`tests/interop/capture_golden.py stores` made them: 97 messages of three clients in 16 KiB segments,
among them a batch, a delayed one and a compressed one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.suite.archives import unpack

from trioha.journal import NullSink
from trioha.store.inspect import verify_store
from trioha.store.interface import PutMessage
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire import fastjson
from trioha.wire.bodies import (
    consumer_offset_table_from_dict,
    delay_offset_table_from_dict,
    group_table_from_dict,
    topic_table_from_dict,
)
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import string_hash
from trioha.wire.record import Record, decode_record, decode_records

GOLDEN = Path(__file__).resolve().parents[1] / "store" / "golden"
TOPIC = "golden"
WALL_MS = 1_795_000_000_000
STORES = ("java-clean-stop", "java-killed")


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        commitlog_path=root / "commitlog",
        segment_bytes=16 * 1024,
        queue_file_bytes=20 * 50,
        hash_slot_count=100,
        index_entry_count=400,
        # Time must not delete what this test looks at.
        reserved_ms=1 << 60,
        disk_max_used_ratio=1.0,
        disk_warning_ratio=1.0,
    )


def listing(name: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())
    return listed


@pytest.fixture(params=STORES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    """The store as the Java broker left it, holes and all."""
    root = tmp_path / "store"
    unpack(GOLDEN / f"{name}.tar.xz", root)
    return root


@pytest.fixture
def store(root: Path) -> Iterator[FileMessageStore]:
    store = FileMessageStore.open(config_of(root), NullSink(), wall_ms=WALL_MS)
    # A broker does this from its start; it fills the index of a killed store again.
    while store.dispatch(1 << 20):
        pass
    yield store
    store.close()


def body_of(record: Record) -> bytes:
    if record.sys_flag & SysFlag.COMPRESSED:
        return zlib.decompress(record.body)
    return record.body


def assert_is(record: Record, listed: dict[str, Any]) -> None:
    assert (record.queue_id, record.queue_offset) == (listed["queue_id"], listed["queue_offset"])
    assert record.phy_offset == listed["phy_offset"]
    assert hashlib.sha256(body_of(record)).hexdigest() == listed["sha256"]


def test_every_message_is_found_in_its_queue(name: str, store: FileMessageStore) -> None:
    expected = listing(name)
    for queue_id in (0, 1):
        mine = [one for one in expected if one["queue_id"] == queue_id]
        assert store.min_offset_in_queue(TOPIC, queue_id) == 0
        assert store.max_offset_in_queue(TOPIC, queue_id) == len(mine)
        offset = 0
        while offset < len(mine):
            found = store.get_message(TOPIC, queue_id, offset, 32, None)
            records = decode_records(b"".join(bytes(one) for one in found.buffers))
            assert records
            for record in records:
                assert_is(record, mine[offset])
                offset += 1


def test_every_message_is_found_by_its_place_in_the_log(name: str, store: FileMessageStore) -> None:
    for listed in listing(name):
        view = store.look_message(listed["phy_offset"])
        assert view is not None
        assert_is(decode_record(view), listed)


def test_every_message_is_found_by_its_keys(name: str, store: FileMessageStore) -> None:
    for listed in listing(name):
        for key in (listed["keys"] or "").split():
            views, _, _ = store.query_message(TOPIC, key, 64, 0, 1 << 62)
            assert listed["phy_offset"] in {decode_record(view).phy_offset for view in views}


def test_entries_carry_the_hash_of_the_tags(name: str, store: FileMessageStore) -> None:
    for listed in listing(name):
        entry = store.consume_queue_entry(TOPIC, listed["queue_id"], listed["queue_offset"])
        assert entry is not None
        tags = listed["tags"]
        assert (entry[0], entry[2]) == (listed["phy_offset"], string_hash(tags) if tags else 0)


def test_the_store_is_sound_and_takes_more(name: str, root: Path, store: FileMessageStore) -> None:
    end = store.max_phy_offset
    message = PutMessage(
        topic=TOPIC,
        queue_id=1,
        flag=0,
        sys_flag=0,
        born_timestamp=WALL_MS,
        born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x01",
        store_host=b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
        body=b"ours",
        properties=b"KEYS\x01ours",
        keys=[b"ours"],
    )
    result = store.put_message(message, WALL_MS)
    assert result.phy_offset >= end
    while store.dispatch(1 << 20):
        pass
    (view,) = store.query_message(TOPIC, "ours", 64, 0, 1 << 62)[0]
    assert decode_record(view).body == b"ours"
    store.flush()
    report = verify_store(root)
    assert report.sound, report
    # One more, and what the delay queue was given.
    assert report.records == len(listing(name)) + 2


def test_the_tables_are_read_as_java_wrote_them(root: Path) -> None:
    def load(file: str) -> object:
        return fastjson.loads((root / "config" / file).read_bytes())

    version, topics = topic_table_from_dict(load("topics.json"))
    assert version.counter > 0
    assert (topics[TOPIC].read_queue_nums, topics[TOPIC].write_queue_nums) == (2, 2)
    _, groups = group_table_from_dict(load("subscriptionGroup.json"))
    assert groups["golden-readers"].retry_max_times == 16
    offsets = consumer_offset_table_from_dict(load("consumerOffset.json"))
    assert sum(offsets[f"{TOPIC}@golden-readers"].values()) == 97
    assert delay_offset_table_from_dict(load("delayOffset.json"))[1] == 1
