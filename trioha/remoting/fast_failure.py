"""Rejects requests that have waited too long (BrokerFastFailure.java).

Theory of operation. A node has no queues of its own: a request waits in the kernel until its
connection is read, and behind the requests of the same read. The transport says how long the bytes
of a read have lain in the kernel. RocketMQ rejects what has waited longer than its queue's limit
with SYSTEM_BUSY, so that its client goes to another broker instead of waiting for its timeout.

A node that stood still for a moment finds requests that waited, and does them in less time than
their clients need to ask again. So a connection's requests are rejected only once all of
them have been late for as long as the shortest limit: then the node does not catch up (the rule of
CoDel, RFC 8289, section 4.2). A request that comes in time ends that. Requests that want no answer
are never rejected: nobody would send them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trioha.config import BrokerConfig
from trioha.wire.codes import SENDS, RequestCode

SILENCE_MS: Final = 10_000
"""Silence of a connection after which earlier late requests tell nothing about now."""
_NEVER_MS: Final = 1 << 62
_OTHER_QUEUES: Final = {RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
"""Java lets these wait."""


class WaitLimits:
    """Limits on the wait of requests, for all connections of a node; counts rejected requests."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        """Without `config` requests may wait forever."""
        self.shortest_ms = _NEVER_MS
        self.by_code: Mapping[int, tuple[int, str]] = {}
        """Request code → ms, and the key that sets it."""
        self.rejected_count = 0
        if config is not None:
            self.set(config)

    def set(self, config: BrokerConfig) -> None:
        """Take over a changed configuration."""
        sends = (config.wait_time_mills_in_send_queue, "waitTimeMillsInSendQueue")
        pulls = (config.wait_time_mills_in_pull_queue, "waitTimeMillsInPullQueue")
        acks = (config.wait_time_mills_in_ack_queue, "waitTimeMillsInAckQueue")
        self.by_code = {
            **dict.fromkeys(SENDS - _OTHER_QUEUES, sends),
            RequestCode.PULL_MESSAGE: pulls,
            RequestCode.LITE_PULL_MESSAGE: pulls,
            RequestCode.POP_MESSAGE: pulls,
            RequestCode.ACK_MESSAGE: acks,
            RequestCode.BATCH_ACK_MESSAGE: acks,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: acks,
            RequestCode.HEART_BEAT: (
                config.wait_time_mills_in_heartbeat_queue,
                "waitTimeMillsInHeartbeatQueue",
            ),
            RequestCode.END_TRANSACTION: (
                config.wait_time_mills_in_transaction_queue,
                "waitTimeMillsInTransactionQueue",
            ),
        }
        self.shortest_ms = (
            min(limit_ms for limit_ms, _ in self.by_code.values())
            if config.broker_fast_failure_enable
            else _NEVER_MS
        )


class Waits:
    """Lateness of the requests of one connection so far."""

    def __init__(self, limits: WaitLimits) -> None:
        self._limits = limits
        self._late_since_ms = -1
        """Time of the first late request in the current row; -1: the last request was in time."""
        self._seen_ms = 0

    def is_behind(self, waited_ms: int, now_ms: int) -> bool:
        """Note how long the next requests have waited; return whether to call `rejection`. HOT."""
        shortest_ms = self._limits.shortest_ms
        if waited_ms < shortest_ms:
            self._late_since_ms = -1
            return False
        if self._late_since_ms < 0 or now_ms - self._seen_ms > SILENCE_MS:
            self._late_since_ms = now_ms
        self._seen_ms = now_ms
        return now_ms - self._late_since_ms >= shortest_ms

    def rejection(self, code: int, waited_ms: int) -> str | None:
        """Return the remark with which a request is rejected; None if it is to be handled."""
        limit_ms, key = self._limits.by_code.get(code, (_NEVER_MS, ""))
        if waited_ms < limit_ms:
            return None
        self._limits.rejected_count += 1
        return (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {waited_ms}ms, limit: {limit_ms}ms ({key})"
        )
