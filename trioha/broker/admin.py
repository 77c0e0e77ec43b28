"""All administrative requests, and the handlers that have no module of their own.

28 (runtime info), 315 (traffic), 43 and 45 (tables that slaves copy), and our own 30001, a msgpack
map that says everything about the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import msgpack

from trioha.broker.admin_cleaning import CleaningAdminProcessor
from trioha.broker.admin_config import ConfigAdminProcessor, RuntimeSettings
from trioha.broker.admin_groups import GroupAdminProcessor
from trioha.broker.admin_progress import ProgressAdminProcessor
from trioha.broker.admin_topics import TopicAdminProcessor
from trioha.broker.clients import ConsumerManager, ProducerManager
from trioha.broker.delay import DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.runtime_info import RuntimeInfo
from trioha.broker.topics import TopicTable
from trioha.broker.traffic_stats import TrafficStats
from trioha.broker.wait_histogram import PutTimes
from trioha.config import BrokerConfig, BrokerRole
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion, encode_kv_table
from trioha.wire.codes import RequestCode
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand


class AdminProcessor:
    """Answers questions of tools, slaves and the console.

    `status` gives the node's own view of itself (30001); `apply_config` gets a changed
    configuration (25); `is_slave` is asked before topics or groups are changed; `delete_queues`
    removes those of a deleted topic, now or when that is safe.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerManager,
        producers: ProducerManager,
        offsets: ConsumerOffsetTable,
        delay: DelaySchedule,
        *,
        put_times: Callable[[int], PutTimes],
        is_slave: Callable[[], bool],
        delete_queues: Callable[[str], None],
        status: Callable[[Instant], Mapping[str, object]],
        apply_config: Callable[[BrokerConfig], None],
        counted: Mapping[str, dict[str, int]],
        instant: Instant,
        events: EventSink | None = None,
    ) -> None:
        log_directory = StoreConfig.of(config).commitlog_path
        self.runtime_info = RuntimeInfo(store, delay, put_times, log_directory, instant)
        self.traffic = TrafficStats(
            config.broker_cluster_name, store, topics, groups, offsets, counted
        )
        self.traffic.sample(instant)
        self._offsets = offsets
        self._delay = delay
        self._status = status
        self._topic_admin = TopicAdminProcessor(
            config, store, topics, offsets, is_slave, delete_queues
        )
        self._group_admin = GroupAdminProcessor(groups, consumers, producers, offsets, is_slave)
        self._progress_admin = ProgressAdminProcessor(
            config, store, topics, groups, consumers, offsets, is_slave
        )
        self._cleaning_admin = CleaningAdminProcessor(
            store, topics, offsets, is_slave, delete_queues
        )
        self._config_admin = ConfigAdminProcessor(config, apply_config, events)

    @property
    def config(self) -> BrokerConfig:
        """Return the configuration, with the changes made over the wire."""
        return self._config_admin.config

    @property
    def runtime_settings(self) -> RuntimeSettings:
        """Settings changed over the wire, to be kept in a file."""
        return self._config_admin.runtime_settings

    def handlers(self) -> dict[int, Handler]:
        return {
            **self._topic_admin.handlers(),
            **self._group_admin.handlers(),
            **self._progress_admin.handlers(),
            **self._cleaning_admin.handlers(),
            **self._config_admin.handlers(),
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.all_delay_offsets,
            RequestCode.TRIOHA_NODE_STATUS: self.node_status,
        }

    def role_changed(self, role: BrokerRole, broker_id: int) -> None:
        """Tools read role and id out of the configuration (26)."""
        config = self._config_admin.config
        self._config_admin.config = attrs.evolve(config, broker_role=role, broker_id=broker_id)

    def get_runtime_info(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=encode_kv_table(self.runtime_info.table(instant)))

    def view_stats(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer how much went through the broker, a topic or a group.

        Errors: CommandError, as Java's.
        """
        stats, key = request.ext_str("statsName"), request.ext_str("statsKey")
        figures = self.traffic.figures(stats, key, instant)
        if figures is None:
            raise system_error(f"The stats <{stats}> <{key}> not exist")
        return request.response(body=fastjson.dumps(figures))

    def all_consumer_offsets(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer the table of offsets; slaves of RocketMQ 5 throw without its version."""
        version = DataVersion(instant.wall_ms)
        return request.response(body=self._offsets.encode(version))

    def all_delay_offsets(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=self._delay.encode())

    def node_status(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=msgpack.packb(dict(self._status(instant))))
