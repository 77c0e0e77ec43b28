"""Topics of this broker (TopicConfigManager.java).

Theory of operation. A broker starts with RocketMQ's system topics (wire facts: TBW102 and friends);
the rest is created by administrators, by the first send (inheriting from a default topic that
carries the INHERIT bit), or by the broker itself for retry and dead letters. Every change makes a
new DataVersion: name servers and slaves compare both its parts and take the table when they differ.
`on_change` tells the shell at once, since clients poll routes only every 30 s.

A name in the table becomes a directory name, so only legal names get in from peers; the one
exception are the two topics named like the cluster and the broker, which come from the
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from trioha.broker.metadata_ops import OnOp, TopicGone, TopicPut, ignore_op
from trioha.config import BrokerConfig
from trioha.journal import EventSink
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion, TopicConfig, topic_table_from_dict, topic_table_to_dict
from trioha.wire.codes import Perm
from trioha.wire.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TRACE_TOPIC,
    check_topic,
    is_system_topic,
)
from trioha.wire.refusals import system_error

TOPICS_MAX = 50_000
"""Limit: each topic costs a directory per queue and 150 bytes of a registration, 7 MB in all."""

_RW: Final = Perm.READ | Perm.WRITE
_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16
_SCHEDULE_QUEUES: Final = 18


class TopicTable:
    """All topics and their version; reports each change."""

    def __init__(
        self,
        config: BrokerConfig,
        events: EventSink,
        *,
        wall_ms: int = 0,
        topics_max: int = TOPICS_MAX,
        on_change: Callable[[TopicConfig | None], None] | None = None,
        on_op: OnOp = ignore_op,
    ) -> None:
        """`on_change` gets a topic created or changed, or None when the whole table is meant.

        `on_op` gets each change made here, before anything is done with the topic.
        """
        self._config = config
        self._events = events
        self._topics_max = topics_max
        self._topics = initial_topics(config)
        self._own_names = frozenset(self._topics)
        self.topics: Mapping[str, TopicConfig] = MappingProxyType(self._topics)
        self.data_version = DataVersion(timestamp=wall_ms, counter=0)
        self._on_change = on_change
        self._on_op = on_op
        self.dirty = False
        """A change is not on disk yet; `ConfigPersist` resets it."""
        self.read_only = False
        """Only the DLEDGER group's log changes the table: a topic created here is not kept."""

    def get(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def is_system(self, name: str) -> bool:
        """RocketMQ's own topics and those this broker keeps for itself: not to be deleted."""
        return name in self._own_names or is_system_topic(name)

    def create_on_send(
        self,
        name: str,
        default_topic: str,
        queue_nums: int,
        wall_ms: int,
        *,
        topic_sys_flag: int = 0,
    ) -> TopicConfig | None:
        """Return the topic, created by its default topic if need be; None if that forbids it.

        Errors: CommandError when the name is illegal or the broker holds too many topics.
        """
        existing = self._topics.get(name)
        if existing is not None:
            return existing
        example = self._topics.get(default_topic)
        if example is None or not example.perm & Perm.INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            # A topics.json from before the switch was turned off still lists TBW102.
            return None
        check_topic(name)
        # RocketMQ lets a client ask for 0 queues and then fails each of its sends.
        queue_nums = max(1, min(queue_nums, example.write_queue_nums))
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=example.perm & ~Perm.INHERIT,
            topic_filter_type=example.topic_filter_type,
            topic_sys_flag=topic_sys_flag,
        )
        self._insert(topic, wall_ms)
        return topic

    def create_internal(
        self,
        name: str,
        queue_nums: int,
        perm: int,
        wall_ms: int,
        *,
        topic_sys_flag: int = 0,
    ) -> TopicConfig:
        """A retry or dead letter topic, created if need be.

        Errors: CommandError when the name is illegal or the broker holds too many topics.
        """
        existing = self._topics.get(name)
        if existing is not None:
            return existing
        check_topic(name)
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=topic_sys_flag,
        )
        self._insert(topic, wall_ms)
        return topic

    def put(self, topic: TopicConfig, wall_ms: int) -> None:
        """Create or replace a topic.

        Errors: CommandError when the name is illegal or the broker holds too many topics.
        """
        if topic.topic_name not in self._topics:
            check_topic(topic.topic_name)
        self._insert(topic, wall_ms)

    def delete(self, name: str, wall_ms: int) -> bool:
        """Remove a topic; return False if it was not there, or the table is read-only."""
        if self.read_only or self._topics.pop(name, None) is None:
            return False
        self._changed(name, None, wall_ms)
        return True

    def encode(self) -> bytes:
        """The table as topics.json holds it and request 21 answers it."""
        return fastjson.dumps(topic_table_to_dict(self.data_version, self._topics))

    def load(self, data: bytes) -> None:
        """Take over topics.json; topics that only the configuration asks for stay.

        Errors: RemoteProtocolError when it is not such a table.
        """
        self.data_version, table = topic_table_from_dict(fastjson.loads(data))
        self._topics.update(table)

    def replace_all(self, version: DataVersion, table: Mapping[str, TopicConfig]) -> None:
        """Become a copy of the master's table (SlaveSynchronize.java)."""
        self._topics.clear()
        self._topics.update(table)
        self.data_version = version
        self.dirty = True
        if self._on_change is not None:
            self._on_change(None)

    def follow(self, op: TopicPut | TopicGone) -> None:
        """Apply a change of the master's."""
        topic: TopicConfig | None = None
        if isinstance(op, TopicPut):
            topic = op.topic
            self._topics[topic.topic_name] = topic
        else:
            self._topics.pop(op.name, None)
        self.data_version = op.version
        self.dirty = True
        if self._on_change is not None:
            self._on_change(topic)

    def add_missing(self, wall_ms: int) -> None:
        """Create the topics that the configuration asks for."""
        for name, topic in initial_topics(self._config).items():
            if name not in self._topics:
                self._insert(topic, wall_ms)

    def _insert(self, topic: TopicConfig, wall_ms: int) -> None:
        if self.read_only:
            return
        name = topic.topic_name
        if name not in self._topics and len(self._topics) >= self._topics_max:
            raise system_error(
                f"topic {name} not created: this broker holds {len(self._topics)} topics, its "
                "limit; delete unused ones first"
            )
        self._topics[name] = topic
        self._changed(name, topic, wall_ms)

    def _changed(self, name: str, topic: TopicConfig | None, wall_ms: int) -> None:
        self.data_version = self.data_version.next(wall_ms)
        self.dirty = True
        version = self.data_version
        self._on_op(TopicGone(name, version) if topic is None else TopicPut(topic, version))
        self._events.event("topic_changed", topic=name)
        if self._on_change is not None:
            self._on_change(topic)


def initial_topics(config: BrokerConfig) -> dict[str, TopicConfig]:
    """Return the topics that TopicConfigManager's constructor makes, by the same switches."""
    cluster = config.broker_cluster_name
    topics = {
        SELF_TEST_TOPIC: _topic(SELF_TEST_TOPIC, 1),
        BENCHMARK_TOPIC: _topic(BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        cluster: _topic(cluster, _CLUSTER_QUEUES, _named_perm(config.cluster_topic_enable)),
        config.broker_name: _topic(config.broker_name, 1, _named_perm(config.broker_topic_enable)),
        OFFSET_MOVED_TOPIC: _topic(OFFSET_MOVED_TOPIC, 1),
        SCHEDULE_TOPIC: _topic(SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        f"{cluster}_REPLY_TOPIC": _topic(f"{cluster}_REPLY_TOPIC", 1),
    }
    if config.auto_create_topic_enable:
        topics[AUTO_CREATE_TOPIC] = _topic(
            AUTO_CREATE_TOPIC, config.default_topic_queue_nums, _RW | Perm.INHERIT
        )
    if config.trace_topic_enable:
        topics[TRACE_TOPIC] = _topic(TRACE_TOPIC, 1)
    return topics


def _topic(name: str, queue_nums: int, perm: int = _RW) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
    )


def _named_perm(enabled: bool) -> int:
    return Perm.INHERIT | (_RW if enabled else 0)
