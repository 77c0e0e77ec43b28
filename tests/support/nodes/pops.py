"""Clients of whole nodes on virtual time that pop, and the verdict on what they received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import attrs
import trio

from support.handlers.popping import Popped, popped
from support.nodes.live_node import SUCCESS, send_request
from support.nodes.transactions import answer_of
from trioha.services.loop.clock import Clock
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

TOPIC, GROUP = "T", "popping"
INVISIBLE_MS = 2_000
_CHECKED_AFTER_S = 3.0
Ask = Callable[[RemotingCommand], Awaitable[RemotingCommand]]


@attrs.define(eq=False)
class PopLoad:
    """Producers and popping consumers at the nodes of one set or group."""

    clock: Clock
    rng: Random
    stored: set[str] = attrs.Factory(set)
    """Bodies that were answered with SEND_OK."""
    acked_s: dict[str, float] = attrs.Factory(dict)
    """Body -> when its acknowledgement was answered with SUCCESS."""
    perhaps_acked: set[str] = attrs.Factory(set)
    """Bodies with an acknowledgement that got no clear answer: they may come again, or not."""
    deliveries: int = 0
    serial: int = 0

    async def send(self, ask: Ask) -> None:
        """Send one message."""
        self.serial += 1
        body = f"pop-{self.serial}"
        answer = await answer_of(ask, send_request(body.encode(), topic=TOPIC))
        if answer is not None and answer.code == SUCCESS:
            self.stored.add(body)

    async def pop(self, ask: Ask, ack_share: float) -> int:
        """Pop once, and acknowledge some of it; return how many messages came."""
        asked_s = trio.current_time()
        answer = await answer_of(ask, pop_request(self.clock))
        if answer is None or answer.code:
            return 0
        messages = popped(answer)
        for message in messages:
            body = message.body
            self.deliveries += 1
            acked_s = self.acked_s.get(body)
            assert acked_s is None or asked_s < acked_s, f"{body} came after its acknowledgement"
            if self.rng.random() < ack_share:
                reply = await answer_of(ask, ack_request(message))
                if reply is not None and reply.code == SUCCESS:
                    self.acked_s.setdefault(body, trio.current_time())
                elif reply is None or reply.code != ResponseCode.NO_MESSAGE:
                    self.perhaps_acked.add(body)
        return len(messages)

    async def drain(self, find_master: Callable[[], Awaitable[Ask]]) -> None:
        """Acknowledge all that is left."""
        with trio.move_on_after(60):
            while self._missing():
                if not await self.pop(await find_master(), 1.0):
                    await trio.sleep(0.1)
        assert not self._missing(), f"never acknowledged: {sorted(self._missing())}"
        await trio.sleep(_CHECKED_AFTER_S)
        await self.pop(await find_master(), 1.0)
        assert len(self.stored) > 20, "hardly any was stored"
        assert self.deliveries > len(self.stored), "hardly any came again"
        assert len(self.perhaps_acked) < len(self.stored) / 4, "hardly any answer was clear"

    def _missing(self) -> set[str]:
        return self.stored - self.acked_s.keys() - self.perhaps_acked


def pop_request(clock: Clock) -> RemotingCommand:
    fields: dict[str, ExtValue] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": -1,
        "maxMsgNums": 8,
        "invisibleTime": INVISIBLE_MS,
        "pollTime": 500,
        "bornTime": 0,
        "initMode": 0,
    }
    return RemotingCommand(RequestCode.POP_MESSAGE, fields)


def ack_request(message: Popped) -> RemotingCommand:
    record = message.record
    fields: dict[str, ExtValue] = {
        "consumerGroup": GROUP,
        "topic": record.topic,
        "queueId": record.queue_id,
        "offset": record.queue_offset,
        "extraInfo": message.handle,
    }
    return RemotingCommand(RequestCode.ACK_MESSAGE, fields)
