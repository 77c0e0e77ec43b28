"""Request 30051: the pending timer messages of a master, for `trioha timers list`.

The answer is JSON: `pending` counts all of them, `timers` shows those that are due next, at most
`count`. Records are read for those alone.
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
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.properties import KEYS, REAL_QID, REAL_TOPIC, UNIQ_KEY, Property
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand

SHOWN_MAX: Final = 1_000


@attrs.define(eq=False)
class PendingTimersProcessor:
    """Tells what is pending."""

    _timers: Timers
    _pipeline: PutPipeline

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.TRIOHA_TIMERS: self.list}

    def list(self, channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        """Return how many messages are pending, and the next of them.

        Errors: CommandError(SERVICE_NOT_AVAILABLE) at a slave: it does not keep them in order.
        """
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        count = max(0, min(request.ext_int("count", SHOWN_MAX), SHOWN_MAX))
        body = {
            "pending": self._timers.pending_count,
            "isLoaded": self._timers.is_loaded,
            "timers": [_describe(*one) for one in self._timers.nearest(count)],
        }
        return request.response(body=fastjson.dumps(body))


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
