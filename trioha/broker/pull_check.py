"""Decides whether a consumer may pull, and by which filter (PullMessageProcessor.java)."""

from __future__ import annotations

from typing import Final

from trioha.broker.clients import ConsumerManager
from trioha.broker.filter import header_filter, heartbeat_filter, retry_filter
from trioha.broker.groups import GroupTable
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.store.interface import MessageFilter
from trioha.wire.bodies import SubscriptionGroupConfig
from trioha.wire.codes import Perm, PullSysFlag, ResponseCode
from trioha.wire.heartbeat import MessageModel
from trioha.wire.names import is_retry_topic
from trioha.wire.remoting_command import RemotingCommand

_READ: Final = Perm.READ
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION


class PullCheck:
    """Checks pulls. `config` is read anew with each: an administrator may change it."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerManager,
    ) -> None:
        self.config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers

    def settings_of(
        self, group: str, topic: str, queue_id: int, wall_ms: int
    ) -> SubscriptionGroupConfig:
        """Return the settings of the group. HOT. Errors: CommandError if it may not pull."""
        if not self.config.broker_permission & _READ:
            raise CommandError(
                ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden"
            )
        settings = self._groups.find(group, wall_ms)
        if settings is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group:.255}] does not exist",
            )
        if not settings.consume_enable:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        topic_config = self._topics.get(topic)
        if topic_config is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic:.127}] not exist, apply first please!"
            )
        if not topic_config.perm & _READ:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
            )
        if not 0 <= queue_id < topic_config.read_queue_nums:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] consumer:[{group}]",
            )
        return settings

    def filter_of(
        self,
        request: RemotingCommand,
        group: str,
        topic: str,
        settings: SubscriptionGroupConfig,
        sys_flag: int,
    ) -> MessageFilter | None:
        """Return the filter of the pull's subscription. HOT. Errors: CommandError."""
        found = self._subscribed(request, group, topic, settings, sys_flag)
        config = self.config
        if (
            found is None
            and config.filter_support_retry
            and config.enable_property_filter
            and is_retry_topic(topic)
        ):
            members = self._consumers.find(group)
            return None if members is None else retry_filter(members.subscriptions)
        return found

    def _subscribed(
        self,
        request: RemotingCommand,
        group: str,
        topic: str,
        settings: SubscriptionGroupConfig,
        sys_flag: int,
    ) -> MessageFilter | None:
        has_sql92 = self.config.enable_property_filter
        if sys_flag & _SUBSCRIPTION:
            return header_filter(
                request.ext_str("subscription", ""),
                request.ext_str("expressionType", ""),
                has_sql92=has_sql92,
            )
        members = self._consumers.find(group)
        if members is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist: {group}"
            )
        if (
            not settings.consume_broadcast_enable
            and members.message_model is MessageModel.BROADCASTING
        ):
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way",
            )
        subscription = members.subscriptions.get(topic)
        if subscription is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {group} to {topic}",
            )
        if subscription.sub_version < request.ext_int("subVersion", 0):
            raise CommandError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {group} to {topic}",
            )
        if subscription.class_filter_mode:
            return None
        return heartbeat_filter(
            subscription.sub_string, subscription.expression_type, has_sql92=has_sql92
        )
