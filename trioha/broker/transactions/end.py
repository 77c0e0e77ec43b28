"""Request 37: a producer ends a transaction (EndTransactionProcessor.java).

Java's broker reads the record at the offset that the request names, and puts it into the topic that
the record names. It does so for every such request, even if the offset points into the body of
another message. Here the half message must be in the half queue, and its transaction open.

Stock producers send the request oneway: they never see an answer. A producer that asks for one gets
it when the outcome is as safe as a message would be.
"""

from __future__ import annotations

from typing import Final

from trioha.broker.put_message import PutPipeline, remark_of
from trioha.broker.transactions.service import Transactions
from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.codes import RequestCode, ResponseCode, SysFlag
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

_UNDECIDED: Final = 0


class EndTransactionProcessor:
    """Commits and rolls back."""

    def __init__(self, transactions: Transactions, pipeline: PutPipeline) -> None:
        self._transactions = transactions
        self._pipeline = pipeline

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end}

    def end(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Commit or roll back one transaction; the answer, or None when it comes later.

        Errors: CommandError when the request names no open transaction of its group.
        """
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        outcome_wanted = request.ext_int("commitOrRollback")
        if outcome_wanted == _UNDECIDED:
            # The producer does not know the outcome yet; it is asked again.
            return request.response(remark="the transaction stays open")
        if outcome_wanted not in (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            raise system_error(f"commitOrRollback field wrong: {outcome_wanted}")
        copy, record = self._transactions.find(
            request.ext_int("tranStateTableOffset"),
            request.ext_int("commitLogOffset"),
            request.ext_str("producerGroup"),
        )
        wait = not request.is_oneway
        if outcome_wanted == SysFlag.TRANSACTION_COMMIT:
            outcome = self._transactions.commit(copy, record, wait, instant)
        else:
            outcome = self._transactions.roll_back(copy, wait, instant)
        if not outcome.is_stored:
            return request.response(outcome.code, outcome.remark)
        response = request.response(outcome.code, remark_of(outcome.code) if outcome.code else None)
        if wait and outcome.must_wait:
            self._pipeline.when_safe(outcome, instant, channel, response)
            return None
        return response
