"""Lists a master's pending timer messages.

Request 30051, for `trioha timers list`: JSON; `pending` counts all of them, `timers` shows those
that are due next, at most `count`. Records are read for those alone.

Requests 60 and 61, for slaves of RocketMQ 5: where a new master begins, and counts by topic. The
counts are left out: nothing keeps them, and a slave shows them only.
"""

from __future__ import annotations

from typing import Final

import attrs

from trioha.broker.put_message import PutPipeline
from trioha.broker.timers.service import Timers
from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.properties import KEYS, REAL_QID, REAL_TOPIC, UNIQ_KEY, Property
from trioha.wire.record import Record
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.timers import SLOT_MS, TimerCheckpoint

SHOWN_MAX: Final = 1_000


@attrs.define(eq=False)
class PendingTimersProcessor:
    """Lists pending timer messages, and tells where a new master begins."""

    _timers: Timers
    _pipeline: PutPipeline

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.TRIOHA_TIMERS: self.list,
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def list(self, channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        """Return how many messages are pending, and the next of them.

        Errors: CommandError(SERVICE_NOT_AVAILABLE) at a slave: it does not keep them in order.
        """
        self._check_master()
        count = max(0, min(request.ext_int("count", SHOWN_MAX), SHOWN_MAX))
        body = {
            "pending": self._timers.pending_count,
            "isLoaded": self._timers.is_loaded,
            "timers": [_describe(*one) for one in self._timers.nearest(count)],
        }
        return request.response(body=fastjson.dumps(body))

    def checkpoint(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Return where a broker that becomes master begins (`TimerCheckpoint`).

        Errors: CommandError(SYSTEM_ERROR) while this master still counts, as RocketMQ's words it.
        """
        self._check_master()
        if not self._timers.is_loaded:
            raise system_error("The checkpoint is null")
        checkpoint = self._timers.checkpoint(instant.wall_ms)
        if checkpoint is None:  # no timer message was ever stored
            checkpoint = TimerCheckpoint(instant.wall_ms // SLOT_MS * SLOT_MS, 0)
        return request.response(body=checkpoint.encode())

    def metrics(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Return a table of counts without rows, under the version of one that never changed."""
        self._check_master()
        version = {**DataVersion().to_dict(), "stateVersion": 0}
        return request.response(body=fastjson.dumps({"dataVersion": version, "timingCount": {}}))

    def _check_master(self) -> None:
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)


def _describe(due_ms: int, offset: int, record: Record) -> dict[str, object]:
    properties = record.properties
    return {
        "deliverTimestamp": due_ms,
        "topic": properties.get(REAL_TOPIC, ""),
        "queueId": properties.get(REAL_QID, ""),
        "uniqueKey": properties.get(UNIQ_KEY, ""),
        "keys": properties.get(KEYS, ""),
        "cancels": properties.get(Property.TIMER_DEL_UNIQKEY, ""),
        "bornTimestamp": record.born_timestamp,
        "queueOffset": offset,
        "commitLogOffset": record.phy_offset,
    }
