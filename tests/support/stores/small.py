"""Small stores for tests: tiny segments, a crash, and what the queues ought to hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from trioha.journal import NullSink
from trioha.store.consume_queues import is_storable
from trioha.store.dispatcher import QUEUE_INDEX_MAX
from trioha.store.inspect import iter_records
from trioha.store.interface import DispatchListener, MissingBytes, PutBatch, PutMessage
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import string_hash
from trioha.wire.record import Record, decode_records

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
SEGMENT_BYTES = 4096
QUEUE_ENTRIES = 8

Projection = dict[tuple[str, int], dict[int, tuple[int, int, int]]]


def small_config(root: Path, **changes: Any) -> StoreConfig:
    config = StoreConfig(
        root=root,
        commitlog_path=root / "commitlog",
        segment_bytes=SEGMENT_BYTES,
        queue_file_bytes=QUEUE_ENTRIES * 20,
        hash_slot_count=16,
        index_entry_count=12,
        log_chunk_bytes=SEGMENT_BYTES,
        queue_chunk_bytes=SEGMENT_BYTES,
        index_chunk_bytes=SEGMENT_BYTES,
    )
    return attrs.evolve(config, **changes)


def open_store(
    config: StoreConfig,
    *,
    wall_ms: int = 1000,
    on_dispatch: DispatchListener | None = None,
    missing_bytes: MissingBytes | None = None,
) -> FileMessageStore:
    store = FileMessageStore.open(config, NullSink(), wall_ms=wall_ms, missing_bytes=missing_bytes)
    store.tell_dispatches(on_dispatch)
    return store


def crash(store: FileMessageStore) -> None:
    """Crash as by kill -9: the page cache keeps what was written, without cleanup."""
    assert store._lock is not None
    store._lock.release()


@contextmanager
def crashing(store: FileMessageStore) -> Iterator[FileMessageStore]:
    """A store that crashes at the end of the block, whatever happens in it."""
    try:
        yield store
    finally:
        crash(store)


def message(
    body: bytes = b"hello",
    *,
    topic: str = "T",
    queue_id: int = 0,
    tags: str = "",
    keys: tuple[str, ...] = (),
    properties: bytes = b"",
    sys_flag: int = 0,
) -> PutMessage:
    pairs = [properties] if properties else []
    if tags:
        pairs.append(f"TAGS\x01{tags}".encode())
    if keys:
        pairs.append(f"KEYS\x01{' '.join(keys)}".encode())
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp=500,
        born_host=HOST,
        store_host=HOST,
        body=body,
        properties=b"\x02".join(pairs),
        tags_code=string_hash(tags),
        keys=[key.encode() for key in keys],
    )


def batch_of(messages: Sequence[PutMessage]) -> PutBatch:
    """Messages of one queue as a batch; the first says what they share."""
    first = messages[0]
    return PutBatch(
        first.topic,
        first.queue_id,
        first.sys_flag,
        first.born_timestamp,
        first.born_host,
        first.store_host,
        first.reconsume_times,
        [(put.flag, put.body, put.properties, put.tags_code, put.keys) for put in messages],
    )


def records_of(config: StoreConfig) -> list[Record]:
    """Every record of the log; a damaged one fails the test."""
    records = []
    for item in iter_records(config.commitlog_path):
        assert isinstance(item, Record), item
        records.append(item)
    return records


def projection_of(records: list[Record]) -> Projection:
    """The consume queues that a log means, by the rules of the dispatcher but not its code."""
    queues: Projection = {}
    for record in records:
        if record.sys_flag & SysFlag.TRANSACTION_MASK in (0x4, 0xC):
            continue
        if not is_storable(record.topic, record.queue_id):
            continue
        queue = queues.setdefault((record.topic, record.queue_id), {})
        end = max(queue, default=-1) + 1
        place = record.queue_offset
        if not 0 <= place <= QUEUE_INDEX_MAX or (queue and place > end):
            place = end
        for index in [index for index in queue if index >= place]:
            del queue[index]
        tags_code = string_hash(record.tags or "")
        queue[place] = (record.phy_offset, record.size, tags_code)
    return queues


def queues_of(store: FileMessageStore) -> Projection:
    """Return the entries of the consume queues."""
    queues: Projection = {}
    for topic, queue_id in store.queues():
        low = store.min_offset_in_queue(topic, queue_id)
        high = store.max_offset_in_queue(topic, queue_id)
        entries = {}
        for index in range(low, high):
            entry = store.consume_queue_entry(topic, queue_id, index)
            assert entry is not None
            entries[index] = entry
        if entries:
            queues[topic, queue_id] = entries
    return queues


def dispatch_all(store: FileMessageStore) -> None:
    while store.dispatch(1 << 20):
        pass


def bodies(store: FileMessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Every message of a queue, pulled."""
    found: list[bytes] = []
    offset = store.min_offset_in_queue(topic, queue_id)
    while True:
        result = store.get_message(topic, queue_id, offset, 32, None)
        if result.message_count == 0:
            return found
        for buffer in result.buffers:
            found += [record.body for record in decode_records(buffer)]
        offset = result.next_begin_offset


def tree_of(root: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def restore(root: Path, tree: dict[str, bytes]) -> None:
    """Make a directory hold exactly these files."""
    for path in list(root.rglob("*")):
        if path.is_file() and str(path.relative_to(root)) not in tree:
            path.unlink()
    for name, data in tree.items():
        path = root / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
