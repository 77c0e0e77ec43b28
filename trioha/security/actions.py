"""Actions of requests and their resources, by ACL 2.0 (annotations of RocketMQ 5.3).

Requests of clients name topics and groups, which `trioha.security.requirement` reads; the table
says the action where it is another than sending or receiving. Requests of operators name a topic, a
group, or the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from trioha.security.policies import Action, Resource, ResourceKind
from trioha.wire.codes import RequestCode as Code
from trioha.wire.names import is_retry_topic
from trioha.wire.remoting_command import RemotingCommand

Actions = frozenset[Action]
_GET: Final = frozenset({Action.GET})
_UPDATE: Final = frozenset({Action.UPDATE})

CLIENT_ACTIONS: Final[Mapping[int, Actions]] = {
    Code.QUERY_MESSAGE: frozenset({Action.SUB, Action.GET}),
    Code.QUERY_CONSUMER_OFFSET: frozenset({Action.SUB, Action.GET}),
    Code.UPDATE_CONSUMER_OFFSET: frozenset({Action.SUB, Action.UPDATE}),
    Code.UNREGISTER_CLIENT: frozenset({Action.PUB, Action.SUB}),
    Code.GET_CONSUMER_LIST_BY_GROUP: frozenset({Action.SUB, Action.GET}),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _GET,
    Code.GET_MAX_OFFSET: _GET,
    Code.GET_MIN_OFFSET: _GET,
    Code.GET_EARLIEST_MSG_STORETIME: _GET,
    Code.VIEW_MESSAGE_BY_ID: _GET,
}
"""Any one of them suffices. A request that is not here is Pub or Sub."""


@attrs.frozen
class _Named:
    actions: Actions
    fields: tuple[tuple[ResourceKind, str], ...]
    """Names of the fields that hold topics and groups, in the order in which they are checked."""


def _named(*actions: Action, **fields: str) -> _Named:
    """`fields`: ``topic`` and ``group``, each with the name of its field."""
    return _Named(
        frozenset(actions),
        tuple((ResourceKind(kind.title()), field) for kind, field in fields.items()),
    )


_OPERATOR: Final[Mapping[int, _Named]] = {
    Code.UPDATE_AND_CREATE_TOPIC: _named(Action.CREATE, topic="topic"),
    Code.DELETE_TOPIC_IN_BROKER: _named(Action.DELETE, topic="topic"),
    Code.DELETE_SUBSCRIPTIONGROUP: _named(Action.DELETE, group="groupName"),
    Code.GET_TOPIC_STATS_INFO: _named(Action.GET, topic="topic"),
    Code.GET_CONSUMER_CONNECTION_LIST: _named(Action.GET, group="consumerGroup"),
    Code.GET_CONSUME_STATS: _named(Action.GET, group="consumerGroup", topic="topic"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _named(Action.UPDATE, group="group", topic="topic"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _named(Action.GET, topic="topic", group="group"),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _named(Action.GET, topic="topic"),
    Code.QUERY_CONSUME_TIME_SPAN: _named(Action.GET, topic="topic", group="group"),
    Code.GET_CONSUMER_RUNNING_INFO: _named(Action.GET, group="consumerGroup"),
    Code.CONSUME_MESSAGE_DIRECTLY: _named(Action.SUB, group="consumerGroup", topic="topic"),
    Code.CLONE_GROUP_OFFSET: _named(Action.UPDATE, group="destGroup", topic="topic"),
    Code.QUERY_CONSUME_QUEUE: _named(Action.GET, topic="topic", group="consumerGroup"),
    Code.GET_TOPIC_CONFIG: _named(Action.GET, topic="topic"),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _named(Action.GET, group="group"),
}

_CLUSTER_READS: Final = frozenset(
    {
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_BROKER_CONSUME_STATS,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
        Code.TRIOHA_NODE_STATUS,
        Code.TRIOHA_JOURNAL_STREAM,
        Code.TRIOHA_NODE_TASKS,
        Code.TRIOHA_NODE_CONFIG,
        Code.TRIOHA_RAFT_STATUS,
        Code.FAILOVER_AUDIT,
    }
)
"""Every other request of operators that names neither topic nor group changes the cluster."""


def operator_resources(
    request: RemotingCommand, cluster: str
) -> tuple[tuple[Resource, ...], Actions]:
    """Return the resources that an operator's request needs one of the actions on."""
    named = _OPERATOR.get(request.code)
    if named is None:
        actions = _GET if request.code in _CLUSTER_READS else _UPDATE
        return (Resource(ResourceKind.CLUSTER, cluster),), actions
    found = [
        resource_of(name) if kind is ResourceKind.TOPIC else Resource(kind, name)
        for kind, field in named.fields
        if (name := request.ext_str(field, ""))
    ]
    # A request that names none of them may be about each of them.
    return (tuple(found) or (Resource(ResourceKind.CLUSTER, cluster),)), named.actions


def resource_of(topic: str) -> Resource:
    """Return a topic, or the group whose retry topic it is."""
    if is_retry_topic(topic):
        return Resource(ResourceKind.GROUP, topic.partition("%RETRY%")[2])
    return Resource(ResourceKind.TOPIC, topic)
