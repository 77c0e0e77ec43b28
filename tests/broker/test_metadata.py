"""A master, its slave and their restarts, on tables alone: what one has, the other has."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.handlers.consuming import ConsumeSide
from support.handlers.sending import BORN_HOST, STORE_HOST, WALL_MS, at

from trioha.broker.metadata import ALL, Metadata, MetadataTable
from trioha.broker.metadata_ops import (
    DelaySet,
    MetadataOp,
    OffsetsSet,
    QueuesGone,
    decode_ops,
    encode_ops,
)
from trioha.broker.offsets import OffsetCommit
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import RemoteProtocolError
from trioha.services.node.config_persist import PersistedTable
from trioha.store.interface import PutMessage
from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.names import SCHEDULE_TOPIC

MASTER = BrokerConfig()
SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)


class Node:
    """The tables of one broker; what is written survives `restarted`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.bodies: list[tuple[int, bytes]] = []
        self.sent: list[tuple[int, bytes]] = []
        self.files: dict[MetadataTable, tuple[int, bytes]] = {}
        self.start()

    def start(self) -> None:
        self.made = False
        self.side = side = ConsumeSide(self.config, self._changed)
        self.metadata = Metadata(
            side.topics,
            side.groups,
            side.offsets,
            side.schedule,
            side.store,
            write=lambda position, body: self.bodies.append((position, body)),
            on_body=lambda position, body: self.sent.append((position, body)),
        )
        self.made = True
        self.tables: dict[MetadataTable, PersistedTable] = {
            MetadataTable.TOPICS: side.topics,
            MetadataTable.GROUPS: side.groups,
            MetadataTable.OFFSETS: side.offsets,
            MetadataTable.DELAY: side.schedule,
        }

    def _changed(self, op: MetadataOp) -> None:
        if self.made:  # before that, the topic that every side begins with
            self.metadata.write_at_once(op)

    def save(self, table: MetadataTable) -> None:
        self.metadata.flush()
        self.files[table] = (self.metadata.position, self.tables[table].encode())

    def restart(self) -> None:
        """Restart as after kill -9: only the files and the log of changes are left."""
        self.start()
        for table, (_, text) in self.files.items():
            self.tables[table].load(text)
        for position, body in self.bodies:
            self.metadata.replay(
                position, body, {t for t in ALL if self.files.get(t, (0,))[0] < position}
            )

    def state(self) -> dict[str, object]:
        side = self.side
        return {
            "topics": (side.topics.data_version, dict(side.topics.topics)),
            "groups": (side.groups.data_version, dict(side.groups.groups)),
            "offsets": {key: dict(value) for key, value in side.offsets.table.items() if value},
            "delay": side.schedule.offsets(),
        }


def test_commits_of_one_batch_are_one_body_with_the_last_of_each_queue() -> None:
    node = Node(MASTER)
    for offset in range(1, 1001):
        node.side.offsets.commit("g", "T", offset % 2, offset)
    assert not node.bodies
    assert node.metadata.position_of_changes == node.metadata.position + 1
    before = node.metadata.position
    node.metadata.flush()
    ((position, body),) = node.bodies
    assert position == before + 1 == node.metadata.position_of_changes
    assert decode_ops(body) == [OffsetsSet({"T@g": {0: 1000, 1: 999}})]
    assert node.sent == node.bodies
    node.metadata.flush()
    assert len(node.bodies) == 1, "nothing has changed since"


def test_a_topic_goes_at_once_and_behind_what_happened_before() -> None:
    node = Node(MASTER)
    node.side.offsets.commit("g", "T", 0, 5)
    node.side.topics.put(TopicConfig("New", 4, 4), WALL_MS)
    first, second = (decode_ops(body) for _, body in node.bodies)
    assert first == [OffsetsSet({"T@g": {0: 5}})]
    assert [op.topic.topic_name for op in second] == ["New"]  # type: ignore[union-attr]


def test_a_commit_that_changes_nothing_is_not_told() -> None:
    node = Node(MASTER)
    node.side.offsets.commit("g", "T", 0, 5)
    node.metadata.flush()
    node.side.offsets.commit("g", "T", 0, 5)
    assert node.metadata.position_of_changes == node.metadata.position
    node.metadata.flush()
    assert len(node.bodies) == 1


def test_a_deleted_topic_takes_its_progress_along_and_a_new_one_begins_without() -> None:
    master, slave = Node(MASTER), Node(SLAVE)
    slave.metadata.follow(master.metadata.snapshot()[1])
    master.sent.clear()
    master.side.offsets.commit("g", "T", 0, 50)
    master.side.offsets.delete_topic("T")
    master.side.offsets.commit("g", "T", 0, 1)
    master.metadata.flush()
    for _, body in master.sent:
        slave.metadata.follow(body)
    assert slave.side.offsets.query("g", "T", 0) == 1


def test_queues_that_the_master_deletes_go_on_the_slave_when_the_log_is_there() -> None:
    slave = Node(SLAVE)
    calls: list[str] = []
    store = slave.side.store
    left = iter([True, True, False])

    def dispatch(bytes_max: int) -> bool:
        calls.append("dispatch")
        return next(left)

    store.dispatch = dispatch  # type: ignore[method-assign]
    store.delete_topic = calls.append  # type: ignore[assignment,method-assign]
    slave.metadata.follow(encode_ops([QueuesGone("Old")]))
    assert calls == ["dispatch", "dispatch", "dispatch", "Old"]


def test_garbage_is_refused_and_nothing_is_half_applied() -> None:
    slave = Node(SLAVE)
    before = slave.state()
    good = encode_ops([OffsetsSet({"T@g": {0: 5}})])
    bad = good[:1].replace(b"\x92", b"\x93") + good[1:] + b"\xc0"
    with pytest.raises(RemoteProtocolError, match="cannot be understood"):
        slave.metadata.follow(bad)
    assert slave.state() == before
    assert slave.bodies == []
    assert slave.metadata.position == 0


def test_a_slave_tells_its_own_commits_to_its_disk_only() -> None:
    slave = Node(SLAVE)
    slave.sent.clear()
    slave.side.offsets.commit("g", "T", 0, 7)
    slave.metadata.flush()
    assert slave.sent == []
    slave.restart()
    assert slave.side.offsets.query("g", "T", 0) == 7
    assert slave.side.offsets.commits_to_tell() == [OffsetCommit("g", "T", 0, 7)]


def test_what_consumers_committed_to_a_slave_outlives_its_masters_older_words() -> None:
    slave = Node(SLAVE)
    slave.side.offsets.commit("g", "T", 0, 7)
    slave.metadata.follow(encode_ops([OffsetsSet({"T@g": {0: 5}})]))
    assert slave.side.offsets.query("g", "T", 0) == 7
    slave.restart()
    assert slave.side.offsets.query("g", "T", 0) == 7
    slave.side.offsets.become_master()
    assert slave.side.offsets.query("g", "T", 0) == 7, "progress goes forward only at a promotion"


def test_a_rewind_on_the_master_reaches_the_slave() -> None:
    slave = Node(SLAVE)
    for offset in (50, 10):
        slave.metadata.follow(encode_ops([OffsetsSet({"T@g": {0: offset}})]))
    assert slave.side.offsets.query("g", "T", 0) == 10


def test_a_promoted_slave_goes_on_counting_where_its_own_log_ends() -> None:
    slave = Node(SLAVE)
    for offset in (1, 2, 3):
        slave.metadata.follow(encode_ops([OffsetsSet({"T@g": {0: offset}})]))
    slave.side.offsets.become_master()
    slave.side.offsets.commit("g", "T", 0, 4)
    slave.metadata.flush()
    assert [position for position, _ in slave.bodies][-2:] == [3, 4]
    assert slave.sent[-1][0] == 4


def test_progress_of_deliveries_that_are_not_in_our_log_waits_for_it() -> None:
    slave = Node(SLAVE)
    store = slave.side.store
    message = PutMessage("T", 0, 0, 0, 1, BORN_HOST, STORE_HOST, b"delivered", b"")
    slave.metadata.follow(encode_ops([DelaySet({3: 8}, store.max_phy_offset + 10)]))
    assert slave.side.schedule.offsets() == {}
    store.put_message(message, WALL_MS)
    assert slave.side.schedule.offsets() == {3: 8}


def test_a_master_promoted_without_those_deliveries_makes_them_again() -> None:
    node = Node(MASTER)
    node.side.schedule.follow(DelaySet({1: 1}, 1 << 40))
    node.side.schedule.refresh()
    assert node.side.schedule.offsets() == {}


def test_a_delivery_is_told_behind_the_log_that_holds_it() -> None:
    node = Node(MASTER)
    store = node.side.store
    properties = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010"
    message = PutMessage(
        SCHEDULE_TOPIC, 0, 0, 0, 1, BORN_HOST, STORE_HOST, b"x", properties, tags_code=WALL_MS
    )
    store.put_message(message, WALL_MS)
    node.side.schedule.refresh()
    assert not node.side.schedule.run_due(at(), 10)
    node.metadata.flush()
    assert decode_ops(node.sent[-1][1]) == [DelaySet({1: 1}, store.max_phy_offset)]


TOPICS = st.sampled_from(["A", "B", "C"])
GROUPS = st.sampled_from(["g", "h"])


class Replication(RuleBasedStateMachine):
    """Any interleaving of changes, deliveries, snapshots, saves and crashes on either side."""

    @initialize()
    def begin(self) -> None:
        self.master, self.slave = Node(MASTER), Node(SLAVE)
        self.connected = False
        self.connect()

    @rule(name=TOPICS, queues=st.integers(1, 9))
    def put_topic(self, name: str, queues: int) -> None:
        self.master.side.topics.put(TopicConfig(name, queues, queues), WALL_MS + queues)

    @rule(name=TOPICS)
    def delete_topic(self, name: str) -> None:
        self.master.side.topics.delete(name, WALL_MS)
        self.master.side.offsets.delete_topic(name)

    @rule(name=GROUPS, retries=st.integers(0, 5))
    def put_group(self, name: str, retries: int) -> None:
        group = SubscriptionGroupConfig(name, retry_max_times=retries)
        self.master.side.groups.put(group, WALL_MS)

    @rule(name=GROUPS, offsets=st.booleans())
    def delete_group(self, name: str, offsets: bool) -> None:
        self.master.side.groups.delete(name, WALL_MS)
        if offsets:
            self.master.side.offsets.delete_group(name)

    @rule(group=GROUPS, topic=TOPICS, queue=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.master.side.offsets.commit(group, topic, queue, offset)

    @rule(level=st.integers(1, 18))
    def deliver(self, level: int) -> None:
        schedule = self.master.side.schedule
        for row in schedule._levels:
            if row.queue_id + 1 == level:
                row.offset += 1
                schedule.changed[level] = row.offset

    @rule()
    def end_of_batch(self) -> None:
        self.master.metadata.flush()

    @precondition(lambda self: self.connected)
    @rule(count=st.integers(1, 5))
    def receive(self, count: int) -> None:
        for _, body in self.master.sent[:count]:
            self.slave.metadata.follow(body)
        del self.master.sent[:count]

    @rule()
    def cut(self) -> None:
        self.connected = False

    @rule()
    def connect(self) -> None:
        self.connected = True
        _, body = self.master.metadata.snapshot()
        self.master.sent.clear()
        self.slave.metadata.follow(body)

    @rule(table=st.sampled_from(list(MetadataTable)), on_master=st.booleans())
    def save(self, table: MetadataTable, on_master: bool) -> None:
        (self.master if on_master else self.slave).save(table)

    @rule()
    def crash_of_the_slave(self) -> None:
        before = self.slave.state()
        self.slave.restart()
        assert self.slave.state() == before
        self.connected = False

    @rule()
    def crash_of_the_master(self) -> None:
        # The end of the batch writes the changes; no answer leaves before.
        self.master.metadata.flush()
        before = self.master.state()
        position = self.master.metadata.position
        self.master.restart()
        assert self.master.state() == before
        assert self.master.metadata.position == position
        self.connected = False

    @invariant()
    def a_slave_that_was_told_everything_has_everything(self) -> None:
        self.master.metadata.flush()
        if self.connected and not self.master.sent:
            assert self.slave.state() == self.master.state()


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
