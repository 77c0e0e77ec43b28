"""A member of a Raft group without Raft: a broker on files, whose log the test carries about."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from support.handlers.sending import BORN_HOST, STORE_HOST, WALL_MS, at
from support.stores.small import crash, dispatch_all, open_store, small_config
from trioha.broker.core import BrokerCore
from trioha.broker.delay import DelayLevels, DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.metadata import Metadata
from trioha.broker.metadata_ops import MetadataOp, decode_ops, encode_ops
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.put_message import PutOutcome, PutPipeline
from trioha.broker.raft.metadata import RaftMetadata, RaftReplicas
from trioha.broker.raft.records import CHANGES, QUEUE_ID, Assembly, read_part
from trioha.broker.topics import TopicTable
from trioha.broker.visibility import Visibility
from trioha.config import BrokerConfig, BrokerRole
from trioha.store.interface import PutMessage
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.names import METADATA_TOPIC, RAFT_TOPIC, SCHEDULE_TOPIC

SEGMENT_BYTES = 32_768
CONFIG = BrokerConfig(
    broker_role=BrokerRole.SLAVE,
    broker_id=1,
    broker_ip1="127.0.0.1",
    mapped_file_size_commit_log=SEGMENT_BYTES,
)


class Member:
    """One broker. Its log survives `restart`."""

    def __init__(self, root: Path, config: BrokerConfig = CONFIG) -> None:
        self.root = root
        self.config = config
        self.may_append = True
        self.failures: list[str] = []
        self.open()

    def open(self) -> None:
        config = self.config
        self.events = RecordedEvents()
        self.store = open_store(
            small_config(
                self.root,
                segment_bytes=config.mapped_file_size_commit_log,
                log_chunk_bytes=config.mapped_file_size_commit_log,
                body_bytes_max=config.max_message_size,
            )
        )
        self.replicas = RaftReplicas()
        self.core = BrokerCore(
            config,
            self.store,
            self.replicas,
            self.events,
            Random(7),
            at(),
            lambda instant: {},
            on_metadata_body=lambda position, body: self.raft.append(position, body),
            delete_queues=lambda topic: self.raft.delete_queues(topic),
        )
        self.visibility = Visibility(self.store, 0, self.core.on_dispatch)
        self.store.tell_dispatches(self.visibility.on_dispatch)
        self.raft = self.make_tables()

    def make_tables(self) -> RaftMetadata:
        """Return the metadata as after loading the node's own tables."""
        return RaftMetadata(
            self.config,
            self.core.metadata,
            self.replicas,
            self.store,
            wall_ms=lambda: WALL_MS,
            on_failed=self.failures.append,
            may_append=lambda: self.may_append,
        )

    def restart(self, *, without_queues: bool = False) -> None:
        """kill -9, and up again."""
        crash(self.store)
        if without_queues:
            shutil.rmtree(self.root / "consumequeue")
            (self.root / "checkpoint").unlink()
        self.open()

    def close(self) -> None:
        crash(self.store)

    @property
    def end(self) -> int:
        return self.store.max_phy_offset

    # Steps of the shell.

    def lead(self) -> None:
        self.core.become(BrokerRole.SYNC_MASTER, 0)
        self.raft.lead()

    def step_down(self) -> None:
        self.raft.step_down()
        self.core.become(BrokerRole.SLAVE, 1)
        self.core.give_up_waiting()

    def commit(self, offset: int) -> None:
        if offset > self.store.readable_offset:
            self.visibility.set_limit(offset)
        self.raft.on_commit(offset)
        self.core.on_acked(0)

    def copy(self, other: Member, end: int = 1 << 62) -> None:
        """Take over the log of `other`, up to about `end`."""
        while self.end < min(end, other.end):
            size = min(end, other.end) - self.end
            self.store.append_log(self.end, bytes(other.store.read_log(self.end, size)))
        dispatch_all(self.store)
        self.raft.on_dispatched()

    def cut(self, offset: int) -> None:
        self.store.truncate_log(offset)
        self.visibility.cut(offset)
        self.raft.truncated(offset)

    def install(self, other: Member) -> None:
        """Give up this log for what the leader's keeps from its retention on, all of it."""
        floor = other.raft.retention_floor()
        begin = floor - floor % self.config.mapped_file_size_commit_log
        begin = max(begin, other.store.min_phy_offset)
        self.store.restart_log(begin, "installed")
        self.visibility.cut(begin)
        self.raft.reset()
        self.copy(other)

    def batch(self) -> None:
        """The end of a batch of requests."""
        self.core.metadata.flush()
        self.raft.on_log_grown()

    # Requests of clients.

    def put(self, topic: str = "T", queue_id: int = 0, body: bytes = b"hello") -> PutOutcome:
        message = PutMessage(topic, queue_id, 0, 0, 1, BORN_HOST, STORE_HOST, body, b"")
        return self.core.pipeline.put(message, wait=True, instant=at())

    def put_delayed(self, level: int = 1) -> PutOutcome:
        properties = f"DELAY\x01{level}\x02REAL_TOPIC\x01T\x02REAL_QID\x010".encode()
        message = PutMessage(
            SCHEDULE_TOPIC, level - 1, 0, 0, 1, BORN_HOST, STORE_HOST, b"late", properties
        )
        return self.core.pipeline.put(message, wait=True, instant=at())

    def put_noop(self, term: int) -> int:
        message = PutMessage(RAFT_TOPIC, 0, 0, 0, 1, BORN_HOST, STORE_HOST, b"term %d" % term, b"")
        return self.store.put_message(message, WALL_MS).end_offset

    def delete_topic(self, name: str) -> None:
        """Delete a topic as the administrator's request does."""
        self.core.topics.delete(name, WALL_MS)
        self.core.offsets.delete_topic(name)
        self.raft.delete_queues(name)

    # Contents.

    def tables(self) -> dict[str, object]:
        core = self.core
        return {
            "topics": (core.topics.data_version, dict(core.topics.topics)),
            "groups": (core.groups.data_version, dict(core.groups.groups)),
            "offsets": {key: dict(value) for key, value in core.offsets.table.items() if value},
            "delay": core.schedule.offsets(),
        }

    def queue(self, topic: str, queue_id: int = 0) -> dict[int, int]:
        """Queue offset -> physical offset, committed or not."""
        queues, found = self.store.raft_queues(), {}
        for index in range(*queues.bounds(topic, queue_id)):
            entry = queues.entry(topic, queue_id, index)
            assert entry is not None
            found[index] = entry[0]
        return found

    def bodies(self, end: int = 1 << 62) -> list[tuple[int, int, list[MetadataOp]]]:
        """Offset, kind and changes of every whole body in the log below `end`."""
        queues, assembly, found = self.store.raft_queues(), Assembly(), []
        for index in range(*queues.bounds(METADATA_TOPIC, QUEUE_ID)):
            entry = queues.entry(METADATA_TOPIC, QUEUE_ID, index)
            assert entry is not None
            if entry[0] + entry[1] > end:
                break
            part = read_part(queues.record(entry[0], entry[1]))
            body = assembly.add(entry[0], *part)
            if body is not None:
                found.append((assembly.phy_offset, part[0], decode_ops(body)))
        return found


def fold_of(member: Member, end: int = 1 << 62) -> dict[str, object]:
    """The tables that the log's changes make of new ones, snapshots left out."""
    config, store, events = member.config, member.store, RecordedEvents()
    topics = TopicTable(config, events, wall_ms=WALL_MS)
    groups = GroupTable(config, events, wall_ms=WALL_MS)
    offsets = ConsumerOffsetTable()
    pipeline = PutPipeline(store, config, RaftReplicas())
    levels = DelayLevels.parse(config.message_delay_level)
    schedule = DelaySchedule(levels, store, pipeline, events)
    metadata = Metadata(topics, groups, offsets, schedule, store)
    for _, kind, ops in member.bodies(end):
        if kind == CHANGES:
            metadata.fold(encode_ops(ops))
    return {
        "topics": (topics.data_version, dict(topics.topics)),
        "groups": (groups.data_version, dict(groups.groups)),
        "offsets": {key: dict(value) for key, value in offsets.table.items() if value},
        "delay": schedule.offsets(),
    }
