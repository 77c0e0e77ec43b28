"""A message that no handler survives: it ends in the dead letter queue, the others are handled."""

from __future__ import annotations

import trio

from trioha.client import ConsumeFrom, Message, PushConsumerConfig, ReceivedMessage
from trioha.testing import TriohaCluster

LAYOUT = "pair"
ATTEMPTS = 5


async def scenario(cluster: TriohaCluster) -> None:
    """Send ten messages, one of which no handler survives."""
    handled: list[ReceivedMessage] = []
    attempts = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal attempts
        if message.body == b"poison":
            attempts += 1
            raise ValueError("this message cannot be handled")
        handled.append(message)

    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, reconsume_times_max=ATTEMPTS)
    async with cluster.producer() as producer:
        poison = await producer.send(Message("orders", b"poison"))
        good = [await producer.send(Message("orders", b"%d" % number)) for number in range(9)]
    async with cluster.consumer("orders", handle, group="billing", config=config):
        await trio.sleep(600)
        await cluster.wait_level("billing")
    assert attempts == 1 + ATTEMPTS, await cluster.story()
    dead = await cluster.messages("%DLQ%billing")
    assert [message.msg_id for message in dead] == [poison.msg_id], await cluster.story()
    await cluster.assert_nothing_lost(good, handled=handled)
