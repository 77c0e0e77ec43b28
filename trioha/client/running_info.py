"""A consumer's answer to an operator: its settings, subscriptions and queues (ConsumerRunningInfo).

`mqadmin consumerStatus`, `trioha client describe` and the console ask for it by way of a broker:
they show from it which member holds which queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trioha.client.message import MessageQueue
from trioha.wire import fastjson
from trioha.wire.heartbeat import ConsumeType, SubscriptionData

_MIB = 1 << 20


@attrs.frozen
class HeldProgress:
    """The progress of a consumer in a queue that it holds."""

    queue: MessageQueue
    commit_offset: int
    cached_messages: int
    """Pulled, and not handled yet."""
    cached_bytes: int
    locked: bool
    """The broker gives the queue to nobody else: its messages are handled in order."""


def encode_running_info(
    namesrv: str,
    start_ms: int,
    orderly: bool,
    concurrency: int,
    subscriptions: Iterable[SubscriptionData],
    held: Iterable[HeldProgress],
) -> bytes:
    """Return the body of the answer. `start_ms` is when the consumer began, on its wall clock."""
    properties: Mapping[str, str] = {
        "PROP_NAMESERVER_ADDR": namesrv,
        "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
        "PROP_CONSUMEORDERLY": str(orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(start_ms),
        "PROP_CLIENT_VERSION": "V4_9_8",
    }
    queues = [(one.queue.to_dict(), _queue_info(one)) for one in held]
    return fastjson.dumps(
        {
            "properties": properties,
            "subscriptionSet": [one.to_dict() for one in subscriptions],
            "mqTable": fastjson.ObjectKeyMap(queues),
            "statusTable": {},
        }
    )


def _queue_info(one: HeldProgress) -> dict[str, object]:
    """ProcessQueueInfo.java."""
    return {
        "commitOffset": one.commit_offset,
        "cachedMsgCount": one.cached_messages,
        "cachedMsgSizeInMiB": one.cached_bytes // _MIB,
        "locked": one.locked,
        "droped": False,
    }
