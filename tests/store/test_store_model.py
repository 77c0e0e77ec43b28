"""Everything a store can be told, in any order, against a model of plain lists and dicts."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import attrs
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.stores.records import encode_record
from support.stores.small import (
    batch_of,
    crash,
    dispatch_all,
    message,
    open_store,
    queues_of,
    small_config,
)

from trioha.store.interface import PutMessage, PutResult, PutStatus
from trioha.wire.record import decode_record

TOPICS = st.sampled_from(["A", "B"])
QUEUES = st.integers(0, 1)
SIZES = st.integers(0, 700)
TAGS = st.sampled_from(["", "TagA", "TagB"])
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
LONG_AFTER_MS = int(time.time() * 1000) + 100 * 3_600_000


@attrs.frozen
class Stored:
    phy_offset: int
    size: int
    topic: str
    queue_id: int
    index: int | None
    tags_code: int
    body: bytes
    keys: tuple[str, ...]


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="trioha-", dir=FAST))
        self.config = small_config(
            self.root, delete_hours=frozenset(range(24)), index_pending_max=4
        )
        self.store = open_store(self.config)
        self.records: list[Stored] = []
        self.next_index: dict[tuple[str, int], int] = {}
        self.deleted_at: dict[str, int] = {}
        self.serial = 0
        self.dispatched: list[tuple[str, int, int]] = []

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

    @initialize()
    def listen(self) -> None:
        self.store.tell_dispatches(
            lambda topic, queue_id, end, code: self.dispatched.append((topic, queue_id, end))
        )

    def make(
        self, topic: str, queue_id: int, size: int, tags: str, sys_flag: int = 0
    ) -> PutMessage:
        self.serial += 1
        body = (b"%d:" % self.serial).ljust(size, b"x")
        keys = (f"key{self.serial}",) if self.serial % 2 else ()
        return message(
            body, topic=topic, queue_id=queue_id, tags=tags, keys=keys, sys_flag=sys_flag
        )

    def note(self, put: PutMessage, result: PutResult) -> None:
        assert result.status is PutStatus.PUT_OK, result.reason
        key = (put.topic, put.queue_id)
        index = None
        if put.sys_flag == 0:
            index = self.next_index.get(key, 0)
            self.next_index[key] = index + 1
            assert result.queue_offset == index
        stored = Stored(
            result.phy_offset,
            result.size,
            put.topic,
            put.queue_id,
            index,
            put.tags_code,
            bytes(put.body),
            tuple(key.decode() for key in put.keys),
        )
        self.records.append(stored)
        assert self.store.max_phy_offset == result.end_offset

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZES, tags=TAGS)
    def put(self, topic: str, queue_id: int, size: int, tags: str) -> None:
        put = self.make(topic, queue_id, size, tags)
        self.note(put, self.store.put_message(put, 1000 + self.serial))
        assert self.dispatched[-1] == (topic, queue_id, self.next_index[topic, queue_id])

    @rule(topic=TOPICS, size=SIZES)
    def put_half_message(self, topic: str, size: int) -> None:
        put = self.make(topic, 0, size, "", sys_flag=0x4)
        self.note(put, self.store.put_message(put, 1000 + self.serial))

    @rule(
        topic=TOPICS, queue_id=QUEUES, sizes=st.lists(st.integers(0, 100), min_size=1, max_size=20)
    )
    def put_batch(self, topic: str, queue_id: int, sizes: list[int]) -> None:
        puts = [self.make(topic, queue_id, size, "") for size in sizes]
        result = self.store.put_batch(batch_of(puts), 1000 + self.serial)
        ends = [*result.phy_offsets[1:], result.end_offset]
        assert len({offset // self.config.segment_bytes for offset in result.phy_offsets}) == 1
        for number, put in enumerate(puts):
            offset = result.phy_offsets[number]
            index = result.queue_offset + number
            self.records.append(
                self._stored(put, PutResult(PutStatus.PUT_OK, offset, ends[number] - offset, index))
            )
        assert self.store.max_phy_offset == result.end_offset
        assert self.dispatched[-1] == (topic, queue_id, self.next_index[topic, queue_id])

    def _stored(self, put: PutMessage, result: PutResult) -> Stored:
        key = (put.topic, put.queue_id)
        index = self.next_index.get(key, 0)
        self.next_index[key] = index + 1
        assert result.queue_offset == index
        return Stored(
            result.phy_offset,
            result.size,
            put.topic,
            put.queue_id,
            index,
            put.tags_code,
            bytes(put.body),
            tuple(key.decode() for key in put.keys),
        )

    @rule(topic=TOPICS, size=st.integers(0, 300), cut=st.floats(0, 1), finish=st.booleans())
    def append_raw(self, topic: str, size: int, cut: float, finish: bool) -> None:
        """Append as a slave: one record in two pieces, or half of one and then a promotion."""
        dispatch_all(self.store)
        end = self.store.max_phy_offset
        put = self.make(topic, 1, size, "TagA")
        index = self.next_index.get((topic, 1), 0)
        data = encode_record(put, index, end, 1000 + self.serial)
        room = self.config.segment_bytes - end % self.config.segment_bytes
        if len(data) + 8 > room:
            return
        middle = int(cut * (len(data) - 1))
        self.store.append_log(end, data[:middle])
        assert not self.store.dispatch(1 << 20)
        assert self.store.dispatched_offset == end
        if finish:
            self.store.append_log(end + middle, data[middle:])
            dispatch_all(self.store)
            self.note(put, PutResult(PutStatus.PUT_OK, end, len(data), index, 0))
        else:
            self.store.truncate_log(end)

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.store.max_phy_offset == self.store.flushed_offset

    @rule()
    def flush_queues(self) -> None:
        self.store.flush_queues()

    @rule()
    def dispatch(self) -> None:
        self.store.dispatch(1 << 12)

    @rule()
    def crash_and_reopen(self) -> None:
        crash(self.store)
        self.reopen()

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        assert not self.config.abort_path.exists()
        self.reopen()
        assert self.store.recovery is not None
        assert self.store.recovery.clean

    def reopen(self) -> None:
        end = self.store.max_phy_offset
        self.store = open_store(self.config)
        self.listen()
        assert self.store.max_phy_offset == end
        assert self.store.flushed_offset == end

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        cut = data.draw(st.sampled_from(self.records))
        self.store.truncate_log(cut.phy_offset)
        gone = [record for record in self.records if record.phy_offset >= cut.phy_offset]
        self.records = self.records[: -len(gone)]
        for record in reversed(gone):
            if record.index is not None and record.phy_offset >= self.deleted_at.get(
                record.topic, 0
            ):
                self.next_index[record.topic, record.queue_id] = record.index
        for topic in list(self.deleted_at):
            self.deleted_at[topic] = min(self.deleted_at[topic], cut.phy_offset)
        assert self.store.max_phy_offset == cut.phy_offset

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        # Else a crash right now would bring back what lies behind the recovery point.
        self.store.flush_queues()
        self.deleted_at[topic] = self.store.max_phy_offset
        for key in [key for key in self.next_index if key[0] == topic]:
            del self.next_index[key]

    @rule()
    def expire(self) -> None:
        self.store.flush_queues()  # segments behind the recovery point stay
        self.store.check_disk(LONG_AFTER_MS)
        minimum = self.store.min_phy_offset
        assert self.store.max_phy_offset - minimum <= self.config.segment_bytes
        self.records = [record for record in self.records if record.phy_offset >= minimum]

    @invariant()
    def queues_are_the_projection_of_the_log(self) -> None:
        expected: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
        for record in self.records:
            if record.index is None or record.phy_offset < self.deleted_at.get(record.topic, 0):
                continue
            queue = expected.setdefault((record.topic, record.queue_id), {})
            queue[record.index] = (record.phy_offset, record.size, record.tags_code)
        assert queues_of(self.store) == expected
        for key, index in self.next_index.items():
            assert self.store.max_offset_in_queue(*key) == index

    @invariant()
    def every_record_can_be_read(self) -> None:
        for record in self.records:
            found = self.store.appended_record(record.phy_offset)
            assert found is not None
            assert decode_record(found).body == record.body

    @invariant()
    def the_index_finds_every_key(self) -> None:
        dispatch_all(self.store)
        for record in self.records[-12:]:
            for key in record.keys:
                found, _, _ = self.store.query_message(record.topic, key, 10, 0, 1 << 60)
                assert [decode_record(view).phy_offset for view in found] == [record.phy_offset]


StoreMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.reuse, Phase.generate],
)
TestStoreModel = StoreMachine.TestCase
