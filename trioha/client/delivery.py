"""Hands messages to who consumes them: handler tasks, or a loop that iterates.

Pulled messages wait in one queue; its length is bounded by the flow limits of the queues they came
from. A fixed number of worker tasks takes from it, so a message costs no task of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from trioha.client.cluster import log
from trioha.client.message import ReceivedMessage
from trioha.client.process_queue import ProcessQueue
from trioha.client.queue_requests import QueueRequests
from trioha.client.queue_task import PushConsumerConfig, QueueTask
from trioha.errors import TriohaError

Handler = Callable[[ReceivedMessage], Awaitable[None]]

_BUDGET = 64
"""Messages a worker takes in a row before it lets others run."""
_AGAIN_S = 5.0
"""Pause before a message that the broker does not take back is tried here again."""


class ConsumeLater(Exception):
    """Raised by a handler: redeliver this message after the delay of `delay_level`."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"consume later, delay level {delay_level}")
        self.delay_level = delay_level


@attrs.define(eq=False)
class Delivery:
    """Messages of all queues of one consumer, on their way to its handler."""

    _requests: QueueRequests
    _config: PushConsumerConfig
    _nursery: trio.Nursery
    _redeliver: bool = attrs.field(kw_only=True)
    _ready: deque[tuple[QueueTask, ProcessQueue, ReceivedMessage]] = attrs.field(
        factory=deque, init=False
    )
    _idle: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _since_checkpoint: int = attrs.field(default=0, init=False)

    def deliver(self, task: QueueTask, messages: Sequence[ReceivedMessage]) -> None:
        """Queue what a pull brought and wake as many workers as there are messages."""
        held = task.held
        assert held is not None, f"{task.queue} delivers before it holds anything"
        self._ready.extend([(task, held, message) for message in messages])
        self._idle.unpark(count=len(messages))

    async def take(self) -> tuple[QueueTask, ReceivedMessage]:
        """The next message that is still ours."""
        while True:
            self._since_checkpoint += 1
            if self._since_checkpoint >= _BUDGET:
                self._since_checkpoint = 0
                await trio.lowlevel.checkpoint()
            while self._ready:
                task, held, message = self._ready.popleft()
                if not held.dropped:
                    return task, message
            self._since_checkpoint = 0
            await self._idle.park()

    async def work(self, handler: Handler) -> None:
        """One worker: handle messages until cancelled."""
        while True:
            task, message = await self.take()
            try:
                await handler(message)
            except ConsumeLater as later:
                await self.hand_back(task, message, later.delay_level)
            except Exception:
                log.exception("handler failed on message %s", message.msg_id)
                await self.hand_back(task, message, self._config.retry_delay_level)
            else:
                task.ack(message)

    async def hand_back(self, task: QueueTask, message: ReceivedMessage, level: int) -> None:
        """Let the broker redeliver it; if that fails, redeliver it ourselves.

        A broadcast message is dropped instead, as in Java: there is no queue to redeliver to.
        """
        if self._redeliver:
            try:
                await self._requests.hand_back(message, level, self._config.reconsume_times_max)
            except TriohaError as error:
                log.warning("message %s not handed back: %s", message.msg_id, error)
                self._nursery.start_soon(
                    self._deliver_again, task, message, name=f"client.again[{message.msg_id}]"
                )
                return
        task.ack(message)

    async def _deliver_again(self, task: QueueTask, message: ReceivedMessage) -> None:
        await trio.sleep(_AGAIN_S)
        if not task.released:
            self.deliver(task, [message])
