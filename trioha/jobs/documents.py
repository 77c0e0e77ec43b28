"""The documents that the nouns print with ``-o json``; `docs/schemas` has their JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping

from trioha.jobs.brokers import (
    BrokerDetail,
    BrokerList,
    BrokerSettings,
    BrokerStats,
    CleanResult,
    SettingChange,
)
from trioha.jobs.clients import ClientList, DirectConsumption
from trioha.jobs.dead_letters import DeadLetterList, PurgePlan
from trioha.jobs.drain import DrainPlan
from trioha.jobs.group_changes import GroupChange
from trioha.jobs.group_past import GroupHistory
from trioha.jobs.groups import GroupDetail, GroupList
from trioha.jobs.members import RunningInfo
from trioha.jobs.messages import MessageList, ShownMessage
from trioha.jobs.namesrvs import KvChange, KvEntries, NamesrvList, NamesrvSettings
from trioha.jobs.offsets import OffsetChange
from trioha.jobs.overview import ClusterDetail, ClusterHealth, ClusterTop
from trioha.jobs.resend import ResendResult
from trioha.jobs.sending import SentMessage
from trioha.jobs.topic_changes import TopicChange
from trioha.jobs.topics import TopicDetail, TopicList, TopicStats
from trioha.jobs.tracing import MessageTrace
from trioha.jobs.users import UserChange, UserDetail, UserList

DOCUMENTS: Mapping[str, type] = {
    "topic list": TopicList,
    "topic describe": TopicDetail,
    "topic create": TopicChange,
    "topic alter": TopicChange,
    "topic delete": TopicChange,
    "topic stats": TopicStats,
    "group list": GroupList,
    "group describe": GroupDetail,
    "group history": GroupHistory,
    "group create": GroupChange,
    "group alter": GroupChange,
    "group delete": GroupChange,
    "group clone-offsets": GroupChange,
    "group reset-offsets": OffsetChange,
    "group skip": OffsetChange,
    "message get": MessageList,
    "message browse": MessageList,
    "message tail": ShownMessage,
    "message send": SentMessage,
    "message resend": ResendResult,
    "message trace": MessageTrace,
    "dlq list": DeadLetterList,
    "dlq browse": MessageList,
    "dlq resend": ResendResult,
    "dlq purge": PurgePlan,
    "broker list": BrokerList,
    "broker describe": BrokerDetail,
    "broker stats": BrokerStats,
    "broker config get": BrokerSettings,
    "broker config set": SettingChange,
    "broker drain": DrainPlan,
    "broker clean": CleanResult,
    "cluster describe": ClusterDetail,
    "cluster health": ClusterHealth,
    "cluster top": ClusterTop,
    "namesrv list": NamesrvList,
    "namesrv config": NamesrvSettings,
    "namesrv kv list": KvEntries,
    "namesrv kv get": KvEntries,
    "namesrv kv put": KvChange,
    "namesrv kv delete": KvChange,
    "client list": ClientList,
    "client describe": RunningInfo,
    "client consume-directly": DirectConsumption,
    "user list": UserList,
    "user describe": UserDetail,
    "user create": UserChange,
    "user alter": UserChange,
    "user delete": UserChange,
    "user grant": UserChange,
    "user revoke": UserChange,
}
"""Command → class of its document."""
