"""Transactional producers of whole nodes on virtual time, and the verdict on what they did.

Each transaction has an outcome that its producer knows from the start. Some producers say it at
once, the others when they are asked; producers are connected to every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any

import attrs
import trio

from support.handlers.transactions import COMMIT, ROLL_BACK, half
from trioha.broker.transactions.service import Transactions
from trioha.errors import Unreachable
from trioha.remoting.channel import Channel, Instant
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.services.remoting.client import RemotingClient, open_remoting_client
from trioha.wire.codes import RequestCode, SysFlag
from trioha.wire.heartbeat import HeartbeatData, ProducerData
from trioha.wire.message_id import decode_message_id
from trioha.wire.names import TRANS_HALF_TOPIC
from trioha.wire.properties import UNIQ_KEY, decode_properties
from trioha.wire.record import Record, decode_record
from trioha.wire.remoting_command import RemotingCommand

TOPIC, GROUP = "T", "pg"
QUICK_CHECKS: dict[str, Any] = {
    "transaction_time_out": 1_000,
    "transaction_check_interval": 2_000,
    "transaction_check_max": 10_000,
}
_HEARTBEAT_S = 1.0
_PATIENCE_S = 5.0
_AGE_MS = 60_000
"""Old enough for a check at once, too young to be discarded for its age when a producer did not
hear its first check."""


@attrs.define(eq=False)
class TransactionLoad:
    """Producers of one group at the nodes of one set or group."""

    clock: Clock
    connect: Callable[[str, int], Awaitable[Transport]]
    rng: Random = attrs.Factory(lambda: Random(1))
    outcomes: dict[str, int] = attrs.Factory(dict)
    """Key of each half message that was sent -> what its local transaction came to."""
    acknowledged: set[str] = attrs.Factory(set)
    answered: int = 0
    """Checks that were answered."""

    async def serve_producer(self, host: str, port: int) -> None:
        """Stay connected to one node, and answer its checks."""
        while True:
            try:
                transport = await self.connect(host, port)
                async with open_remoting_client(
                    host,
                    port,
                    self.clock,
                    transport=transport,
                    handlers={RequestCode.CHECK_TRANSACTION_STATE: self._checked},
                ) as client:
                    await self._beat(client)
            except (OSError, Unreachable):
                await trio.sleep(_HEARTBEAT_S)

    async def _beat(self, client: RemotingClient) -> None:
        body = HeartbeatData("producer@1", producers=(ProducerData(GROUP),)).encode()
        while not client.closed:
            client.oneway_nowait(RemotingCommand(RequestCode.HEART_BEAT, body=body))
            await trio.sleep(_HEARTBEAT_S)

    def _checked(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        record = decode_record(request.body_bytes())
        assert (record.topic, request.is_oneway) == (TOPIC, True)
        self.answered += 1
        fields = request.ext_fields
        where = int(str(fields["tranStateTableOffset"])), int(str(fields["commitLogOffset"]))
        command = end_request(where, self.outcomes[record.properties[UNIQ_KEY]])
        command.ext_fields["fromTransactionCheck"] = "true"
        command.flag |= 2
        channel.send_nowait(command)

    async def transact(self, ask: Callable[[RemotingCommand], Awaitable[RemotingCommand]]) -> None:
        """Send a half message, and end it at once, later or twice."""
        key = f"K{len(self.outcomes)}"
        self.outcomes[key] = self.rng.choice([COMMIT, COMMIT, ROLL_BACK])
        born_ms = self.clock.wall_ms() - _AGE_MS
        command = half(key, topic=TOPIC, group=GROUP, queue_id=0, born_ms=born_ms)
        answer = await answer_of(ask, command)
        if answer is None or answer.code:
            return
        self.acknowledged.add(key)
        where = answer.ext_int("queueOffset"), decode_message_id(answer.ext_str("msgId"))[2]
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            await answer_of(ask, end_request(where, self.outcomes[key]))

    def check(self, records: Iterable[Record]) -> None:
        """Compare the log that counts with what the producers know. All is finished by now."""
        committed: Counter[str] = Counter()
        held = set()
        for record in records:
            key = record.properties.get(UNIQ_KEY, "")
            if record.topic == TOPIC and key in self.outcomes:
                assert record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
                committed[key] += 1
            elif record.topic == TRANS_HALF_TOPIC:
                held.add(decode_properties(record.raw_properties)[UNIQ_KEY])
        twice = [key for key, times in committed.items() if times > 1]
        assert not twice, f"committed twice: {twice}"
        lost = self.acknowledged - held
        assert not lost, f"half messages lost: {lost}"
        wanted = {key for key in held if self.outcomes[key] == COMMIT}
        assert set(committed) == wanted, set(committed) ^ wanted
        assert len(self.acknowledged) > 20, "hardly any was acknowledged"
        assert self.answered > 5, "hardly any was asked for"


def end_request(where: tuple[int, int], outcome: int) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": GROUP,
            "tranStateTableOffset": str(where[0]),
            "commitLogOffset": str(where[1]),
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": "false",
            "msgId": "",
        },
    )


async def answer_of(
    ask: Callable[[RemotingCommand], Awaitable[RemotingCommand]], request: RemotingCommand
) -> RemotingCommand | None:
    """Return the answer; None when there is none."""
    try:
        with trio.fail_after(_PATIENCE_S):
            return await ask(request)
    except (trio.TooSlowError, OSError, Unreachable):
        return None


def is_finished(transactions: Transactions) -> bool:
    """Has a master nothing open, and nothing to write?"""
    return not len(transactions.pending) and not transactions.owes
