"""Names in a registration: what a broker would refuse, the name server refuses with the same words.

RocketMQ's broker makes three topics without asking TopicValidator: those named like its cluster and
itself, and the cluster's reply topic. Its own name is the machine's unless it is configured, so it
may have dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trioha.errors import CommandError
from trioha.wire.codes import ResponseCode
from trioha.wire.names import DLQ_PREFIX, RETRY_PREFIX, check_group, check_topic

_is_broker_name = re.compile(r"[%|a-zA-Z0-9_.-]+").fullmatch
_is_address = re.compile(r"[!-~]*").fullmatch


def check_registered_names(
    cluster: str, broker_name: str, addresses: Iterable[str], topics: Iterable[str]
) -> None:
    """Accept the names of a registration. Errors: CommandError(SYSTEM_ERROR)."""
    for what, name in (("cluster", cluster), ("broker name", broker_name)):
        if _is_broker_name(name) is None:
            raise _illegal(what, name, "%|a-zA-Z0-9_.-")
    for address in addresses:
        if _is_address(address) is None:
            raise _illegal("address", address, "printable ASCII")
    unasked = (cluster, broker_name, f"{cluster}_REPLY_TOPIC")
    for topic in topics:
        if topic in unasked:
            continue
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if topic.startswith(prefix):
                # RocketMQ does not ask TopicValidator either: the group may be longer than a topic.
                # ``%RETRY%group+topic`` is a group's retry topic of POP (enableRetryTopicV2).
                check_group(topic.removeprefix(prefix).replace("+", "_", 1))
                break
        else:
            check_topic(topic)


def _illegal(what: str, name: str, allowed: str) -> CommandError:
    return CommandError(
        ResponseCode.SYSTEM_ERROR,
        f"The specified {what} {name!r:.80} contains illegal characters, allowing only {allowed}",
    )
