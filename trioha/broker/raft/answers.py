"""Every request that a member of a DLEDGER group answers, and the kind of its answer.

`trioha.dledger.answering` decides how a member treats each kind. A test compares this table with
the handlers of a whole member, so that every request has a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trioha.broker.set_modes import ACCOUNT_QUESTIONS, ACCOUNTS, COPIED
from trioha.dledger.answering import MODES, RequestKind, ServingState
from trioha.remoting.mode import Mode, Modes
from trioha.wire.codes import SENDS
from trioha.wire.codes import RequestCode as Code

_PRESENT = (
    # A consumer starts from the answer.
    Code.QUERY_CONSUMER_OFFSET,
    Code.GET_MAX_OFFSET,
    Code.GET_MIN_OFFSET,
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
    # A consumer takes queues by the answer. Groups and locks are not records of the log, but a
    # deposed leader must not share queues out any more. And stock consumers that get no list of
    # their group take no new queues: so they do not ask for offsets while no leader is known.
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.LOCK_BATCH_MQ,
    Code.QUERY_ASSIGNMENT,
    # The request moves consumers to offsets that the queues tell.
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    # Tools compute lag from the answer, and operators decide by it.
    Code.GET_EARLIEST_MSG_STORETIME,
    Code.GET_TOPIC_STATS_INFO,
    Code.GET_CONSUME_STATS,
    Code.GET_BROKER_CONSUME_STATS,
    Code.QUERY_CONSUME_TIME_SPAN,
    Code.QUERY_TOPIC_CONSUME_BY_WHO,
    Code.QUERY_CONSUME_QUEUE,
    # A node that copies these tables treats them as the newest.
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
)
_CHANGE = (
    *SENDS,
    Code.UPDATE_CONSUMER_OFFSET,
    Code.UNLOCK_BATCH_MQ,
    Code.ACK_MESSAGE,
    Code.BATCH_ACK_MESSAGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME,
    *ACCOUNTS,
)
_SETTING = (
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.DELETE_SUBSCRIPTIONGROUP,
    Code.CLONE_GROUP_OFFSET,
    Code.CLEAN_UNUSED_TOPIC,
    Code.SET_MESSAGE_REQUEST_MODE,
)
_TAKE = (Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION, Code.POLLING_INFO)
_COMMITTED = (
    # Messages, and never a correction of the client's offset: see `PullProcessor`.
    Code.PULL_MESSAGE,
    Code.LITE_PULL_MESSAGE,
    Code.QUERY_MESSAGE,
    Code.VIEW_MESSAGE_BY_ID,
    # Names and settings of topics and groups; offsets are not among them.
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_TOPIC_CONFIG,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG,
)
_MEMBER = (
    # Clients send these to every broker of their route, so each member knows its own clients.
    Code.HEART_BEAT,
    Code.UNREGISTER_CLIENT,
    Code.CHECK_CLIENT_CONFIG,
    Code.GET_CONSUMER_CONNECTION_LIST,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_ALL_PRODUCER_INFO,
    # Forwarded to a client that is connected here, which answers for itself.
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.GET_CONSUMER_RUNNING_INFO,
    Code.CONSUME_MESSAGE_DIRECTLY,
    # The accounts as this member has them.
    *ACCOUNT_QUESTIONS,
    # This process, its disk and its configuration.
    Code.GET_BROKER_RUNTIME_INFO,
    Code.VIEW_BROKER_STATS_DATA,
    Code.UPDATE_BROKER_CONFIG,
    Code.GET_BROKER_CONFIG,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.DELETE_EXPIRED_COMMITLOG,
    Code.TRIOHA_NODE_STATUS,
    Code.TRIOHA_TRANSACTIONS,
    Code.TRIOHA_TIMERS,
    Code.TRIOHA_NODE_TASKS,
    Code.TRIOHA_NODE_CONFIG,
    Code.TRIOHA_JOURNAL_STREAM,
    # Traffic between members; the core decides which of them leads.
    Code.TRIOHA_RAFT_VOTE,
    Code.TRIOHA_RAFT_APPEND,
    Code.TRIOHA_RAFT_HEARTBEAT,
    Code.TRIOHA_RAFT_TRANSFER,
    Code.TRIOHA_RAFT_INSTALL,
    Code.TRIOHA_RAFT_HELLO,
    Code.TRIOHA_RAFT_STATUS,
    Code.TRIOHA_RAFT_ADMIN,
)

ANSWERS: Mapping[int, RequestKind] = MappingProxyType(
    {
        code: kind
        for kind, codes in (
            (RequestKind.PRESENT, _PRESENT),
            (RequestKind.CHANGE, _CHANGE),
            (RequestKind.SETTING, _SETTING),
            (RequestKind.TAKE, _TAKE),
            (RequestKind.COMMITTED, _COMMITTED),
            (RequestKind.MEMBER, _MEMBER),
        )
        for code in codes
    }
)
"""Request code -> kind of its answer."""

MODES_IN: Mapping[ServingState, Modes] = MappingProxyType(
    {
        state: MappingProxyType({code: MODES[kind][state] for code, kind in ANSWERS.items()})
        for state in ServingState
    }
)
"""Modes of all requests, for every state of a member."""
FOLLOWING_AND_COPYING: Modes = MappingProxyType(
    {**MODES_IN[ServingState.FOLLOWING], **dict.fromkeys(COPIED, Mode.SERVE_AND_COPY)}
)
"""Modes of a member that led until a moment ago: its clients may not have the route yet."""

PRESENT: tuple[int, ...] = _PRESENT
