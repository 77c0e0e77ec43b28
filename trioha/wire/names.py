"""Names of topics and groups: which are legal, which are the system's (TopicValidator.java).

Names become directory names, so the character check is also what keeps a peer from walking the
file system: no dot, no slash, no NUL passes it.
"""

from __future__ import annotations

import re
from typing import Final

from trioha.errors import CommandError
from trioha.wire.codes import ResponseCode

TOPIC_LENGTH_MAX: Final = 127
"""A record stores the topic's length in a signed byte."""
GROUP_LENGTH_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Timer messages wait here until their time has come, in queue 0."""
DELAYED_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
"""Their messages go to another topic when they are due."""
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
RAFT_TOPIC: Final = "TRIOHA_RAFT"
"""Control records of a DLEDGER group: terms and members."""
METADATA_TOPIC: Final = "TRIOHA_METADATA"
"""Tables of a DLEDGER group: topics, groups, offsets."""
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Group whose offsets are a broker's progress in the half queue and in the op queue."""
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Group whose offsets are a broker's progress in its revive log."""
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""Prefix of a revive log's topic; the cluster's name follows."""
TIMER_GROUP: Final = "CID_RMQ_SYS_TIMER"
"""Group whose offsets are a broker's progress in the queue of timer messages."""
BROKER_GROUPS: Final = frozenset({TRANS_GROUP, TIMER_GROUP, REVIVE_GROUP})
"""Groups whose offsets are the broker's own: clients may not commit any."""

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        RAFT_TOPIC,
        METADATA_TOPIC,
        TIMER_TOPIC,
    }
)
"""Topics of which every broker has its own; administrators may not create or delete them."""

RESERVED_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        RAFT_TOPIC,
        METADATA_TOPIC,
        TIMER_TOPIC,
    }
)
"""Clients may not send to these."""

RAFT_TOPICS: Final = frozenset({RAFT_TOPIC, METADATA_TOPIC})
"""Topics that a DLEDGER group writes into its log. Each store numbers their queues itself."""

OUTCOME_UNKNOWN: Final = "outcome unknown"
"""Beginning of the remark of an answer that cannot tell whether the change was made."""

FOLLOWER_REMARK: Final = "this broker is a follower: its leader takes this"
"""Remark of a follower in a DLEDGER group, where a slave would name its master."""

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)

_is_legal = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def check_topic(name: str) -> None:
    """Accept a topic's name. Errors: CommandError(SYSTEM_ERROR), as TopicValidator answers.

    A retry topic may have one plus: POP's ``%RETRY%group+topic``. RocketMQ does not ask
    TopicValidator about these.
    """
    _check(name.replace("+", "_", 1) if is_retry_topic(name) else name, "topic", TOPIC_LENGTH_MAX)


def check_group(name: str) -> None:
    """Accept a producer or consumer group's name. Errors: CommandError(SYSTEM_ERROR)."""
    _check(name, "group", GROUP_LENGTH_MAX)


def retry_topic(group: str) -> str:
    """Return the topic in which a group's failed messages wait for redelivery."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of a group's messages that failed too often."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def _check(name: str, what: str, length_max: int) -> None:
    if not name or name.isspace():
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"The specified {what} is blank.")
    if len(name) > length_max:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR,
            f"The specified {what} is longer than {what} max length {length_max}.",
        )
    if _is_legal(name) is None:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR,
            f"The specified {what} {name!r:.80} contains illegal characters, allowing only "
            "%|a-zA-Z0-9_-",
        )
