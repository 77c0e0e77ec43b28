"""Every request that a node of a set answers: the table of how it treats each of them.

For a node of a master-slave set the table has a mode for each role, which
`trioha.broker.request_gate` carries out. For a member of a DLEDGER group it has the request's kind,
from which `trioha.broker.raft.answers` takes the modes. Tests compare the table with the handlers
of whole nodes and with what a switch must not lose, so that every request has a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from trioha.dledger.answering import RequestKind as Kind
from trioha.remoting.mode import Mode, Modes
from trioha.wire.codes import SENDS
from trioha.wire.codes import RequestCode as Code

START_OFFSETS: Final = (
    Code.QUERY_CONSUMER_OFFSET,
    Code.GET_MAX_OFFSET,
    Code.GET_MIN_OFFSET,
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
)
"""Questions by whose answers consumers start: a master that was replaced must not answer them."""
COPIED: Final = (Code.HEART_BEAT, Code.UNREGISTER_CLIENT)
"""Requests that tell which clients there are: each node of a route knows its own."""
ACCOUNTS: Final = (
    Code.UPDATE_AND_CREATE_ACL_CONFIG,
    Code.DELETE_ACL_CONFIG,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Code.AUTH_CREATE_USER,
    Code.AUTH_UPDATE_USER,
    Code.AUTH_DELETE_USER,
    Code.AUTH_CREATE_ACL,
    Code.AUTH_UPDATE_ACL,
    Code.AUTH_DELETE_ACL,
)
"""Changes of accounts, with access control. A slave's and a follower's are a copy of the master's
or leader's. Where the nodes share no accounts, each makes its own changes at any time."""
ACCOUNT_QUESTIONS: Final = (
    Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG,
    Code.AUTH_GET_USER,
    Code.AUTH_LIST_USER,
    Code.AUTH_GET_ACL,
    Code.AUTH_LIST_ACL,
)


class _Row(NamedTuple):
    """Mode of a request, by the role of the node; its kind for the members of a DLEDGER group."""

    serving: Mode
    paused: Mode
    demoted: Mode
    kind: Kind | None
    """Kind of the request for members; None if they do not answer it."""


TABLE: Final[Mapping[_Row, tuple[int, ...]]] = {
    # The request changes the log or a table that the new master must have.
    _Row(Mode.SERVE, Mode.PARK, Mode.FORWARD, Kind.CHANGE): (
        *SENDS,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.ACK_MESSAGE,
        Code.BATCH_ACK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.UNLOCK_BATCH_MQ,
        *ACCOUNTS,
    ),
    # So does this one, but a group's locks are not records of its log: the answer tells a consumer
    # that it has queues, which a deposed leader must not share out any more.
    _Row(Mode.SERVE, Mode.PARK, Mode.FORWARD, Kind.PRESENT): (Code.LOCK_BATCH_MQ,),
    # Changes as well. A slave rejects them by itself: administrators send them to the master, which
    # they know, and a pop waits longer than forwarding lasts.
    _Row(Mode.SERVE, Mode.PARK, Mode.SERVE, Kind.SETTING): (
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.CLONE_GROUP_OFFSET,
        Code.CLEAN_UNUSED_TOPIC,
        Code.SET_MESSAGE_REQUEST_MODE,
    ),
    _Row(Mode.SERVE, Mode.PARK, Mode.SERVE, Kind.TAKE): (Code.POP_MESSAGE,),
    # The request moves consumers to offsets that the queues tell.
    _Row(Mode.SERVE, Mode.PARK, Mode.SERVE, Kind.PRESENT): (Code.INVOKE_BROKER_TO_RESET_OFFSET,),
    _Row(Mode.CONFIRM, Mode.CONFIRM, Mode.FORWARD, Kind.PRESENT): (Code.QUERY_CONSUMER_OFFSET,),
    _Row(Mode.CONFIRM, Mode.CONFIRM, Mode.CONFIRM, Kind.PRESENT): START_OFFSETS[1:],
    # Consumers take queues by the answer, and their new master or leader shares these out. Stock
    # consumers that get no list of their group take no new queues: so they do not ask for offsets
    # while no leader is known.
    _Row(Mode.SERVE, Mode.SERVE, Mode.FORWARD, Kind.PRESENT): (
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.QUERY_ASSIGNMENT,
    ),
    # Clients send these to every broker of their route.
    _Row(Mode.SERVE, Mode.SERVE, Mode.SERVE_AND_COPY, Kind.MEMBER): COPIED,
    _Row(Mode.SERVE, Mode.SERVE, Mode.SERVE, Kind.COMMITTED): (
        # Messages of this node's log, up to where readers may see it; never a correction of the
        # client's offset: see `PullProcessor`.
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
    ),
    _Row(Mode.SERVE, Mode.SERVE, Mode.SERVE, Kind.TAKE): (
        Code.PEEK_MESSAGE,
        Code.NOTIFICATION,
        Code.POLLING_INFO,
    ),
    _Row(Mode.SERVE, Mode.SERVE, Mode.SERVE, Kind.PRESENT): (
        # A node that copies these tables treats them as the newest.
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        # Tools compute lag from the answer, and operators decide by it.
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.GET_TOPIC_STATS_INFO,
        Code.GET_CONSUME_STATS,
        Code.GET_BROKER_CONSUME_STATS,
        Code.QUERY_CONSUME_TIME_SPAN,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.QUERY_CONSUME_QUEUE,
    ),
    _Row(Mode.SERVE, Mode.SERVE, Mode.SERVE, Kind.MEMBER): (
        *ACCOUNT_QUESTIONS,
        # Clients that are connected here. Some requests go to such a client, which answers.
        Code.CHECK_CLIENT_CONFIG,
        Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_ALL_PRODUCER_INFO,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        Code.GET_CONSUMER_RUNNING_INFO,
        Code.CONSUME_MESSAGE_DIRECTLY,
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
    ),
    # Steps of a switch, and the greetings of other nodes.
    _Row(Mode.SERVE, Mode.SERVE, Mode.SERVE, None): (
        Code.FAILOVER_TICKET,
        Code.PAUSE_WRITES,
        Code.HAND_OVER,
        Code.PROMOTE,
        Code.FOLLOW,
        Code.FAILOVER_AUDIT,
        Code.RELEASE,
        Code.PROMISE,
        Code.HA_HELLO,
        Code.HA_RESYNC,
    ),
}


def _modes(mode_of: Callable[[_Row], Mode]) -> Modes:
    return MappingProxyType({code: mode_of(row) for row, codes in TABLE.items() for code in codes})


SERVING: Final[Modes] = _modes(lambda row: row.serving)
"""A master, and a slave: its `PutPipeline` rejects sends by itself, as it rejects the deliveries of
delayed messages, which pass no gate."""
PAUSED: Final[Modes] = _modes(lambda row: row.paused)
"""A master while a planned switch is in progress."""
DEMOTED: Final[Modes] = _modes(lambda row: row.demoted)
"""A master that has become a slave, while clients may still have the old route. It answers pulls
from its own log, as any slave does."""
