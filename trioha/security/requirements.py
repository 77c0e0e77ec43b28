"""The table of requirements and of limits of bodies: every request code of every port.

`check_declared` is asked by each node when it is made, so that a handler without a declaration does
not start. `requirements_table` makes the table of docs/security.md; a test keeps it current.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import attrs

from trioha.errors import LocalProtocolError
from trioha.security.requirement import (
    CONTROL_BYTES,
    LIST_BYTES,
    MESSAGE_BYTES,
    Requirement,
    Right,
    assignment_needs,
    batch_ack_needs,
    client_config_needs,
    heartbeat_needs,
    lock_needs,
    pop_needs,
)
from trioha.wire.codes import FRAME_BYTES_MAX
from trioha.wire.codes import RequestCode as Code


class Port(Enum):
    """A port with request codes."""

    BROKER = "broker"
    """`listenPort` of a broker, and its fast port two below."""
    NAMESRV = "name server"


_ADMIN: Final = Requirement(right=Right.ADMIN, body_bytes=CONTROL_BYTES)
_CHANGE: Final = attrs.evolve(_ADMIN, changes=True, audited=True)
_NODE: Final = Requirement(right=Right.NODE, body_bytes=LIST_BYTES)
_ANONYMOUS: Final = Requirement(right=Right.ANONYMOUS, body_bytes=CONTROL_BYTES)
_SEND: Final = Requirement(right=Right.PRODUCE, body_bytes=MESSAGE_BYTES, topic="topic")
_SEND_V2: Final = Requirement(right=Right.PRODUCE, body_bytes=MESSAGE_BYTES, topic="b")
_TOPIC: Final = Requirement(right=Right.CONSUME, body_bytes=CONTROL_BYTES, topic="topic")
_GROUP: Final = Requirement(right=Right.CONSUME, body_bytes=CONTROL_BYTES, group="consumerGroup")
_GROUP_AND_TOPIC: Final = attrs.evolve(_GROUP, topic="topic")
_LOCK: Final = Requirement(
    right=Right.CONSUME,
    body_bytes=LIST_BYTES,
    body=lock_needs,
    note="consumerGroup and the topics of mqSet in the body",
)
_POPPED: Final = attrs.evolve(
    _GROUP, body=pop_needs, note="topic, or the topic that the group's retry topic is for"
)
_RAFT_MESSAGE: Final = Requirement(
    right=Right.NODE,
    body_bytes=FRAME_BYTES_MAX,
    by_connection=True,
    note="on a connection that 30046 has admitted",
)

_OF_ANY_NODE: Final = {
    Code.TRIOHA_JOURNAL_STREAM: _ADMIN,
    Code.TRIOHA_NODE_TASKS: _ADMIN,
    Code.TRIOHA_NODE_CONFIG: _ADMIN,
}

_OF_BROKER: Final = _OF_ANY_NODE | {
    # Producers.
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND_V2,
    Code.SEND_BATCH_MESSAGE: _SEND_V2,
    Code.SEND_REPLY_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    Code.END_TRANSACTION: Requirement(
        right=Right.PRODUCE, body_bytes=CONTROL_BYTES, message="commitLogOffset"
    ),
    Code.RECALL_MESSAGE: attrs.evolve(_SEND, body_bytes=CONTROL_BYTES),
    # Consumers.
    Code.PULL_MESSAGE: _GROUP_AND_TOPIC,
    Code.LITE_PULL_MESSAGE: _GROUP_AND_TOPIC,
    Code.CONSUMER_SEND_MSG_BACK: Requirement(
        right=Right.CONSUME, body_bytes=CONTROL_BYTES, group="group", message="offset"
    ),
    Code.QUERY_CONSUMER_OFFSET: _GROUP_AND_TOPIC,
    Code.UPDATE_CONSUMER_OFFSET: _GROUP_AND_TOPIC,
    Code.GET_CONSUMER_LIST_BY_GROUP: _GROUP,
    Code.LOCK_BATCH_MQ: _LOCK,
    Code.UNLOCK_BATCH_MQ: _LOCK,
    Code.POP_MESSAGE: _GROUP_AND_TOPIC,
    Code.PEEK_MESSAGE: _GROUP_AND_TOPIC,
    Code.NOTIFICATION: _GROUP_AND_TOPIC,
    Code.POLLING_INFO: _GROUP_AND_TOPIC,
    Code.ACK_MESSAGE: _POPPED,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _POPPED,
    Code.BATCH_ACK_MESSAGE: Requirement(
        right=Right.CONSUME,
        body_bytes=LIST_BYTES,
        body=batch_ack_needs,
        note="groups and topics of acks in the body",
    ),
    Code.QUERY_ASSIGNMENT: Requirement(
        right=Right.CONSUME,
        body_bytes=CONTROL_BYTES,
        body=assignment_needs,
        note="consumerGroup and topic in the body",
    ),
    Code.QUERY_MESSAGE: _TOPIC,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC,
    Code.GET_MAX_OFFSET: _TOPIC,
    Code.GET_MIN_OFFSET: _TOPIC,
    Code.GET_EARLIEST_MSG_STORETIME: _TOPIC,
    Code.VIEW_MESSAGE_BY_ID: Requirement(
        right=Right.CONSUME, body_bytes=CONTROL_BYTES, message="offset"
    ),
    # Both. A producer names no group that it consumes as, and needs its key alone.
    Code.HEART_BEAT: Requirement(
        right=Right.CONSUME,
        body_bytes=LIST_BYTES,
        body=heartbeat_needs,
        note="groups and subscriptions of consumerDataSet in the body",
    ),
    Code.UNREGISTER_CLIENT: _GROUP,
    Code.CHECK_CLIENT_CONFIG: Requirement(
        right=Right.CONSUME,
        body_bytes=CONTROL_BYTES,
        body=client_config_needs,
        note="group and the topic of subscriptionData in the body",
    ),
    # Operators.
    Code.UPDATE_AND_CREATE_TOPIC: _CHANGE,
    Code.DELETE_TOPIC_IN_BROKER: _CHANGE,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _CHANGE,
    Code.DELETE_SUBSCRIPTIONGROUP: _CHANGE,
    Code.UPDATE_BROKER_CONFIG: _CHANGE,
    Code.GET_BROKER_CONFIG: _ADMIN,
    Code.GET_BROKER_RUNTIME_INFO: _ADMIN,
    Code.VIEW_BROKER_STATS_DATA: _ADMIN,
    Code.GET_TOPIC_STATS_INFO: _ADMIN,
    Code.GET_TOPIC_CONFIG: _ADMIN,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _ADMIN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _ADMIN,
    Code.GET_CONSUMER_CONNECTION_LIST: _ADMIN,
    Code.GET_PRODUCER_CONNECTION_LIST: _ADMIN,
    Code.GET_ALL_PRODUCER_INFO: _ADMIN,
    Code.SET_MESSAGE_REQUEST_MODE: _CHANGE,
    Code.GET_CONSUME_STATS: _ADMIN,
    Code.GET_BROKER_CONSUME_STATS: _ADMIN,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _ADMIN,
    Code.QUERY_CONSUME_TIME_SPAN: _ADMIN,
    Code.QUERY_CONSUME_QUEUE: _ADMIN,
    Code.CLONE_GROUP_OFFSET: _CHANGE,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _CHANGE,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _ADMIN,
    Code.GET_CONSUMER_RUNNING_INFO: _ADMIN,
    Code.CONSUME_MESSAGE_DIRECTLY: _CHANGE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _CHANGE,
    Code.CLEAN_UNUSED_TOPIC: _CHANGE,
    Code.DELETE_EXPIRED_COMMITLOG: _CHANGE,
    Code.UPDATE_AND_CREATE_ACL_CONFIG: _CHANGE,
    Code.DELETE_ACL_CONFIG: _CHANGE,
    Code.GET_BROKER_CLUSTER_ACL_INFO: _ADMIN,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _CHANGE,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _ADMIN,
    Code.AUTH_CREATE_USER: _CHANGE,
    Code.AUTH_UPDATE_USER: _CHANGE,
    Code.AUTH_DELETE_USER: _CHANGE,
    Code.AUTH_GET_USER: _ADMIN,
    Code.AUTH_LIST_USER: _ADMIN,
    Code.AUTH_CREATE_ACL: _CHANGE,
    Code.AUTH_UPDATE_ACL: _CHANGE,
    Code.AUTH_DELETE_ACL: _CHANGE,
    Code.AUTH_GET_ACL: _ADMIN,
    Code.AUTH_LIST_ACL: _ADMIN,
    Code.TRIOHA_NODE_STATUS: _ADMIN,
    Code.TRIOHA_TRANSACTIONS: _ADMIN,
    Code.TRIOHA_TIMERS: _ADMIN,
    Code.HA_RESYNC: attrs.evolve(_ADMIN, audited=True),
    Code.FAILOVER_AUDIT: _ADMIN,
    Code.TRIOHA_RAFT_STATUS: _ADMIN,
    Code.TRIOHA_RAFT_ADMIN: attrs.evolve(_ADMIN, audited=True),
    # Nodes, and operators who fail a set over.
    Code.GET_ALL_TOPIC_CONFIG: _NODE,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _NODE,
    Code.GET_ALL_CONSUMER_OFFSET: _NODE,
    Code.GET_ALL_DELAY_OFFSET: _NODE,
    Code.GET_TIMER_CHECK_POINT: _NODE,
    Code.GET_TIMER_METRICS: _NODE,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _NODE,
    Code.HA_HELLO: _NODE,
    Code.FAILOVER_TICKET: _NODE,
    Code.PAUSE_WRITES: _NODE,
    Code.HAND_OVER: _NODE,
    Code.PROMOTE: _NODE,
    Code.FOLLOW: _NODE,
    Code.RELEASE: _NODE,
    Code.PROMISE: _NODE,
    Code.TRIOHA_RAFT_HELLO: _NODE,
    Code.TRIOHA_RAFT_VOTE: _RAFT_MESSAGE,
    Code.TRIOHA_RAFT_APPEND: _RAFT_MESSAGE,
    Code.TRIOHA_RAFT_HEARTBEAT: _RAFT_MESSAGE,
    Code.TRIOHA_RAFT_TRANSFER: _RAFT_MESSAGE,
    Code.TRIOHA_RAFT_INSTALL: _RAFT_MESSAGE,
}

_OF_NAMESRV: Final = _OF_ANY_NODE | {
    # Clients of every language ask these before they know a broker, and some sign none of them.
    Code.GET_ROUTEINFO_BY_TOPIC: _ANONYMOUS,
    Code.GET_BROKER_CLUSTER_INFO: _ANONYMOUS,
    Code.GET_KV_CONFIG: _ANONYMOUS,
    # Operators.
    Code.PUT_KV_CONFIG: _CHANGE,
    Code.DELETE_KV_CONFIG: _CHANGE,
    Code.GET_KVLIST_BY_NAMESPACE: _ADMIN,
    Code.WIPE_WRITE_PERM_OF_BROKER: _CHANGE,
    Code.ADD_WRITE_PERM_OF_BROKER: _CHANGE,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _ADMIN,
    Code.GET_TOPICS_BY_CLUSTER: _ADMIN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _ADMIN,
    Code.GET_UNIT_TOPIC_LIST: _ADMIN,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _ADMIN,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _ADMIN,
    Code.DELETE_TOPIC_IN_NAMESRV: _CHANGE,
    Code.UPDATE_NAMESRV_CONFIG: _CHANGE,
    Code.GET_NAMESRV_CONFIG: _ADMIN,
    # Brokers.
    Code.REGISTER_BROKER: attrs.evolve(_NODE, body_bytes=FRAME_BYTES_MAX),
    Code.UNREGISTER_BROKER: _NODE,
    Code.QUERY_DATA_VERSION: _NODE,
}

REQUIREMENTS: Final[Mapping[Port, Mapping[Code, Requirement]]] = MappingProxyType(
    {
        Port.BROKER: MappingProxyType(_OF_BROKER),
        Port.NAMESRV: MappingProxyType(_OF_NAMESRV),
    }
)
"""The one declaration: port, request code, requirement."""

BROKER_CHANGES: Final = frozenset(code for code, one in _OF_BROKER.items() if one.changes)
"""Requests by which operators change something at a broker."""

PAGES: Final[Mapping[str, Requirement]] = MappingProxyType(
    {"/metrics": _ANONYMOUS, "/livez": _ANONYMOUS, "/readyz": _ANONYMOUS}
)
"""Requirements of GET on the HTTP port of both kinds of nodes."""


def requirement_of(port: Port, code: int) -> Requirement:
    """Return the requirement of a declared code. Errors: LocalProtocolError for any other."""
    try:
        return REQUIREMENTS[port][Code(code)]
    except (KeyError, ValueError):
        raise _undeclared([f"request code {code} of a {port.value}"]) from None


def check_declared(port: Port, codes: Iterable[int]) -> None:
    """Accept the codes that a node has handlers for. Errors: LocalProtocolError if one is missing.

    A handler that nobody has declared a requirement for must not serve strangers.
    """
    known = REQUIREMENTS[port]
    missing = sorted(code for code in codes if code not in known)
    if missing:
        raise _undeclared([f"request code {code} of a {port.value}" for code in missing])


def check_pages_declared(paths: Iterable[str]) -> None:
    """Check the pages of an HTTP port. Errors: LocalProtocolError for one without a declaration."""
    missing = sorted(path for path in paths if path not in PAGES)
    if missing:
        raise _undeclared([f"page {path}" for path in missing])


def body_limits(port: Port, message_bytes: int) -> dict[int, int]:
    """Return the limit of the body of each request code; `message_bytes` of a message."""
    return {
        int(code): message_bytes
        if requirement.body_bytes == MESSAGE_BYTES
        else requirement.body_bytes
        for code, requirement in REQUIREMENTS[port].items()
    }


def requirements_table() -> str:
    """Return the declaration as a Markdown table, by code."""
    rows = ["| code | request | broker | name server | body |", "|---|---|---|---|---|"]
    broker, namesrv = REQUIREMENTS[Port.BROKER], REQUIREMENTS[Port.NAMESRV]
    for code in sorted(broker.keys() | namesrv.keys()):
        words = [table[code].words if code in table else "" for table in (broker, namesrv)]
        either = broker.get(code) or namesrv[code]
        rows.append(f"| {int(code)} | {code.name} | {' | '.join(words)} | {either.body_words} |")
    rows += ["", "| port | request | broker | name server |", "|---|---|---|---|"]
    for path, requirement in PAGES.items():
        rows.append(f"| HTTP | GET {path} | {requirement.words} | {requirement.words} |")
    rows.append("| HA | the whole connection | node (haSecret, haAllowedPeers) | |")
    return "\n".join(rows) + "\n"


def _undeclared(missing: list[str]) -> LocalProtocolError:
    return LocalProtocolError(
        f"no requirement is declared for {', '.join(missing)}; "
        "add it to trioha/security/requirements.py"
    )
