"""Transactional messages: a producer's side (DefaultMQProducerImpl.sendMessageInTransaction).

Theory of operation. A *half message* is sent, which no consumer sees. Then the application does
its local transaction, and the producer tells the broker to commit or to roll back. If that word is
lost, or the application does not know, the broker asks a producer of the group later (a *check*).
The application's `check` has to answer from what its database says: the producer that is asked may
be another one than the sender, and another broker may ask.

The end of a transaction is sent again only if it certainly was not handled: RocketMQ's broker
stores the message once for each commit that it gets. What remains unknown is left to the checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from enum import Enum

import attrs
import trio

from trioha.client.cluster import ClusterConfig, log
from trioha.client.decode import received_messages
from trioha.client.errors import NoRoute
from trioha.client.message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from trioha.client.producer import (
    NOT_MASTER,
    Producer,
    ProducerConfig,
    ProducerMembership,
    open_membership,
)
from trioha.client.send_header import DEFAULT_TOPIC_QUEUE_NUMS
from trioha.errors import RemoteProtocolError, TriohaError, Unreachable
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.codes import RequestCode, ResponseCode, SysFlag
from trioha.wire.message_id import decode_message_id
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.properties import Property
from trioha.wire.remoting_command import RemotingCommand

CHECKS_MAX = 1_000
"""Checks that one producer works on or keeps; the broker repeats what is dropped."""
_RETRY_PAUSE_S = 0.5
_NOT_HANDLED = {*NOT_MASTER, ResponseCode.SYSTEM_BUSY}


class TransactionState(Enum):
    """Outcome of a local transaction."""

    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK
    UNKNOWN = 0
    """The broker is to ask again later."""


Execute = Callable[[SendResult], Awaitable[TransactionState]]
"""Does the local transaction of a half message that is stored."""
Check = Callable[[ReceivedMessage], Awaitable[TransactionState]]
"""Returns the outcome of the local transaction of a half message, which another process may have
sent. UNKNOWN, or an exception: the broker asks again."""


@attrs.frozen
class TransactionResult:
    """One transaction, as far as its sender knows it."""

    sent: SendResult
    """The half message. Where the message lies after a commit is not known."""
    outcome: TransactionState
    reason: str = ""
    """Reason that the broker has not confirmed the outcome, so checks decide. Empty once it has."""


@attrs.frozen
class _Half:
    """Fields by which END_TRANSACTION names a half message."""

    queue_offset: int
    phy_offset: int
    msg_id: str


class TransactionalProducer(Producer):
    """A member of a producer group whose messages are committed or rolled back."""

    def __init__(
        self, member: ProducerMembership, group: str, config: ProducerConfig, check: Check
    ) -> None:
        super().__init__(member.cluster, member.routes, group, config)
        self._check = check
        self._nursery = member.nursery
        self._checking: set[str] = set()

    async def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
    ) -> TransactionResult:
        """Send a half message, await `execute`, and end the transaction as it says.

        `execute` is not called, and the message is rolled back, if the half message is less safe
        than the broker's role promises (any status but SEND_OK), as in RocketMQ.
        Errors: as `send`; then `execute` was not called, but after SendOutcomeUnknown `check` may
        be. TriohaError for a delayed message. What `execute` raises comes out as it is.
        Cancellation: the transaction stays open, and checks decide.
        """
        if message.delay_level or message.delay_s or message.deliver_at_ms:
            raise TriohaError("a transactional message cannot be delayed")
        half = attrs.evolve(
            message,
            properties={
                **message.properties,
                Property.TRAN_MSG: "true",
                Property.PGROUP: self.group,
            },
            sys_flag=message.sys_flag | SysFlag.TRANSACTION_PREPARED,
        )
        sent = await self.send(half, queue=queue, key=key)
        outcome = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            outcome = await execute(sent)
        phy_offset = decode_message_id(sent.offset_msg_id)[2]
        where = _Half(sent.queue_offset, phy_offset, sent.msg_id)
        reason = await self._end(message.topic, sent.queue.broker_name, where, outcome)
        return TransactionResult(sent, outcome, reason)

    async def _end(
        self, topic: str, broker_name: str, half: _Half, outcome: TransactionState
    ) -> str:
        """End a transaction; return why that is not confirmed, or nothing."""
        if outcome is TransactionState.UNKNOWN:
            return "the local transaction's outcome is unknown"
        reason = ""
        for attempt in range(self._config.attempts_max):
            if attempt:
                await trio.sleep(_RETRY_PAUSE_S)
                await self._refresh(topic)
            try:
                address = (await self._route(topic)).master(broker_name)
                if address is None:
                    reason = f"no master of {broker_name} is known"
                    continue
                client = await self._cluster.connection(address)
            except (NoRoute, Unreachable) as error:
                reason = str(error)
                continue
            with trio.move_on_after(self._config.send_timeout_s) as patience:
                try:
                    response = await client.request(self._end_command(half, outcome, checked=False))
                except Unreachable as error:
                    return str(error)
            if patience.cancelled_caught:
                return f"{address} did not answer within {self._config.send_timeout_s:g} s"
            if response.code == ResponseCode.SUCCESS:
                return ""
            reason = f"{address}: {response.remark or response.code}"
            if response.code not in _NOT_HANDLED or OUTCOME_UNKNOWN in reason:
                break
        return reason

    def _end_command(
        self, half: _Half, outcome: TransactionState, *, checked: bool
    ) -> RemotingCommand:
        return RemotingCommand(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": self.group,
                "tranStateTableOffset": half.queue_offset,
                "commitLogOffset": half.phy_offset,
                "commitOrRollback": int(outcome.value),
                "fromTransactionCheck": "true" if checked else "false",
                "msgId": half.msg_id,
                "transactionId": half.msg_id,
            },
        )

    def on_check(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Tell the broker, in a request of its own, what became of a transaction it asks about."""
        try:
            (message,) = received_messages(request.body_bytes())
            half = _Half(
                request.ext_int("tranStateTableOffset"),
                request.ext_int("commitLogOffset"),
                request.ext_str("transactionId", "") or message.msg_id,
            )
        except (RemoteProtocolError, ValueError) as error:
            log.warning("%s asks about a transaction that cannot be read: %s", channel.peer, error)
            return
        if half.msg_id in self._checking or len(self._checking) >= CHECKS_MAX:
            return
        self._checking.add(half.msg_id)
        self._nursery.start_soon(
            self._answer, channel.peer, message, half, name=f"client.check[{half.msg_id}]"
        )

    async def _answer(self, address: str, message: ReceivedMessage, half: _Half) -> None:
        try:
            outcome = await self._check(message)
            if outcome is TransactionState.UNKNOWN:
                return
            response = await self._cluster.request(
                address, self._end_command(half, outcome, checked=True)
            )
            if response.code != ResponseCode.SUCCESS:
                log.warning("transaction %s at %s: %s", half.msg_id, address, response.remark)
        except Unreachable as error:
            log.warning("transaction %s is not ended: %s", half.msg_id, error)
        except Exception:
            log.exception("the check of transaction %s failed", half.msg_id)
        finally:
            self._checking.discard(half.msg_id)


@asynccontextmanager
async def open_transactional_producer(
    namesrv: str,
    check: Check,
    *,
    group: str = "DEFAULT_PRODUCER",
    topics: Collection[str] = (),
    config: ProducerConfig | None = None,
    cluster_config: ClusterConfig | None = None,
) -> AsyncIterator[TransactionalProducer]:
    """Open a producer of transactional messages.

    It registers with the brokers of `topics` at once, and of other topics when it first sends to
    them: brokers ask only registered producers about open transactions.
    Errors: NoRoute and Unreachable for `topics`.
    """
    handlers: dict[int, Handler] = {
        RequestCode.CHECK_TRANSACTION_STATE: lambda *asked: producer.on_check(*asked)
    }
    async with open_membership(namesrv, group, cluster_config, handlers=handlers) as member:
        producer = TransactionalProducer(member, group, config or ProducerConfig(), check)
        for topic in topics:
            await member.routes.get_for_send(topic, DEFAULT_TOPIC_QUEUE_NUMS)
        if topics:
            await member.heartbeat.send()
        yield producer
