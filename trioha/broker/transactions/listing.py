"""Request 30050: the open transactions of a master, for `trioha transactions list`.

The answer is JSON: `open` counts all of them, `transactions` shows the oldest copies first, at most
`count`. Records are read for those alone that are shown, or looked at for their group.
"""

from __future__ import annotations

from typing import Final

import attrs

from trioha.broker.clients import ProducerManager
from trioha.broker.put_message import PutPipeline
from trioha.broker.transactions.pending import HalfCopy
from trioha.broker.transactions.queues import TransactionQueues
from trioha.broker.transactions.records import producer_group
from trioha.broker.transactions.service import Transactions
from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.properties import KEYS, REAL_QID, REAL_TOPIC, UNIQ_KEY
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand

SHOWN_MAX: Final = 1_000
READ_MAX: Final = 10_000
"""Records that one question reads: some 0.2 s in which the broker does nothing else."""


@attrs.define(eq=False)
class OpenTransactionsProcessor:
    """Lists open transactions."""

    _transactions: Transactions
    _queues: TransactionQueues
    _pipeline: PutPipeline
    _producers: ProducerManager

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.TRIOHA_TRANSACTIONS: self.list}

    def list(self, channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        """Return the open transactions, or those of one producer `group`.

        Errors: CommandError(SERVICE_NOT_AVAILABLE) at a slave: it does not keep the table.
        """
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        group = request.ext_str("group", "")
        count = max(0, min(request.ext_int("count", SHOWN_MAX), SHOWN_MAX))
        shown: list[dict[str, object]] = []
        for number, copy in enumerate(self._transactions.pending):
            if len(shown) >= count or number >= READ_MAX:
                break
            record = self._queues.record_at(copy.phy_offset)
            if record is not None and group in ("", producer_group(record)):
                shown.append(self._describe(copy, record))
        return request.response(
            body=fastjson.dumps({"open": len(self._transactions.pending), "transactions": shown})
        )

    def _describe(self, copy: HalfCopy, record: Record) -> dict[str, object]:
        properties, group = record.properties, producer_group(record)
        return {
            "group": group,
            "producers": len(self._producers.members(group)),
            "topic": properties.get(REAL_TOPIC, ""),
            "queueId": properties.get(REAL_QID, ""),
            "uniqueKey": properties.get(UNIQ_KEY, ""),
            "keys": properties.get(KEYS, ""),
            "bornTimestamp": copy.born_ms,
            "checkTimes": copy.check_times,
            "nextCheckTimestamp": copy.due_ms,
            "queueOffset": copy.queue_offset,
            "commitLogOffset": copy.phy_offset,
        }
