"""Producers that send all the time while a test hurts the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import trio

from trioha.client import Message, Producer, SendResult, SendStatus
from trioha.errors import TriohaError
from trioha.services.loop.background import open_background_nursery
from trioha.testing.timeline import NotSeen

_AFTER_FAILURE_S = 0.1


class Load:
    """Sends of a load and their results."""

    def __init__(self, story: Callable[[], str]) -> None:
        self.sent: list[SendResult] = []
        """Answers that say stored, whatever their status."""
        self.failures: list[TriohaError] = []
        self._story = story
        self._grown = trio.Event()

    @property
    def safe(self) -> list[SendResult]:
        """Every SEND_OK: the loss of one broker of a synchronous set takes none of these."""
        return [one for one in self.sent if one.status is SendStatus.SEND_OK]

    async def more(self, messages: int = 50, *, within_s: float = 60.0) -> None:
        """Wait until so many more messages are stored.

        Errors: NotSeen with the last failures.
        """
        wanted = len(self.sent) + messages
        with trio.move_on_after(within_s):
            while len(self.sent) < wanted:
                await self._grown.wait()
            return
        missing = wanted - len(self.sent)
        last = "\n".join(f"  {failure}" for failure in self.failures[-3:])
        raise NotSeen(
            f"{missing} of {messages} more messages were not stored within {within_s:g} s;"
            f" the last failures of {len(self.failures)}:\n{last}\n{self._story()}"
        )

    def add(self, result: SendResult) -> None:
        """Count an answer."""
        self.sent.append(result)
        self._grown.set()
        self._grown = trio.Event()


@asynccontextmanager
async def serve_load(
    producer: Producer, topic: str, tasks: int, pause_s: float, story: Callable[[], str]
) -> AsyncIterator[Load]:
    """Send with so many tasks while the block runs; sends in progress end before it does."""
    load = Load(story)
    numbers = count(1)
    over = trio.Event()

    async def send() -> None:
        while not over.is_set():
            message = Message(topic, b"%s %d" % (topic.encode(), next(numbers)))
            try:
                load.add(await producer.send(message))
            except TriohaError as error:
                load.failures.append(error)
                await trio.sleep(_AFTER_FAILURE_S)
            await trio.sleep(pause_s)

    async with open_background_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(send, name=f"load[{topic} {number}]")
        yield load
        over.set()
