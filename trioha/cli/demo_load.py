"""The senders and the reader of `trioha demo`, and the account of what became of each message."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from trioha.client import (
    ConsumeFrom,
    Message,
    NoRoute,
    Producer,
    ProducerConfig,
    PushConsumerConfig,
    SendOutcomeUnknown,
    SendRefused,
    SendStatus,
    open_admin,
    open_push_consumer,
)
from trioha.errors import Unreachable
from trioha.store.inspect import iter_records
from trioha.wire.record import Record

QUEUES = 4
TOPIC = "demo"
GROUP = "demo-readers"
BODY_BYTES = 128
SENDERS = 16
REST_S = 0.02
"""Pause after a send that was not stored."""
PRODUCER = ProducerConfig(send_timeout_s=2.0)


@attrs.define(eq=False)
class SentLedger:
    """Every message by its number: what its sender was told, and whether it arrived."""

    acknowledged: dict[int, tuple[int, int]] = attrs.Factory(dict)
    """Queue id and offset of each message that was answered SEND_OK."""
    unsafe: set[int] = attrs.Factory(set)
    """Messages that the master stored, but that are not known to be on a second machine."""
    refused: set[int] = attrs.Factory(set)
    """Messages that are surely not stored."""
    unknown: set[int] = attrs.Factory(set)
    """Messages without an answer: they may be stored or not."""
    received: set[int] = attrs.Factory(set)
    received_twice: int = 0
    next_number: int = 0
    stored_times_s: list[float] = attrs.Factory(list)
    """Time of each answer that says stored, in seconds of the monotonic clock."""
    _progress: trio.Event = attrs.Factory(trio.Event)

    async def wait_acknowledged(self, more: int) -> None:
        """Wait for so many SEND_OK from now on."""
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            await self._wait_answer()

    async def wait_stored(self, more: int) -> None:
        """Wait for so many answers that say stored, safe or not."""
        wanted = len(self.stored_times_s) + more
        while len(self.stored_times_s) < wanted:
            await self._wait_answer()

    async def _wait_answer(self) -> None:
        self._progress = trio.Event()
        await self._progress.wait()

    async def send_next(self, producer: Producer) -> bool:
        """Send one message; True when it is stored."""
        number = self.next_number
        self.next_number += 1
        body = b"message %d " % number
        try:
            result = await producer.send(Message(TOPIC, body.ljust(BODY_BYTES, b".")))
        except SendOutcomeUnknown:
            self.unknown.add(number)
            return False
        except (SendRefused, NoRoute, Unreachable):
            self.refused.add(number)
            return False
        self.stored_times_s.append(time.monotonic())
        if result.status is SendStatus.SEND_OK:
            self.acknowledged[number] = (result.queue.queue_id, result.queue_offset)
        else:
            self.unsafe.add(number)
        self._progress.set()
        return True

    async def send(self, namesrv: str, producer: Producer, count: int) -> float:
        """Make the topic and send `count` messages, many at a time; returns the seconds."""
        async with open_admin(namesrv) as admin:
            await admin.create_topic(TOPIC, queue_nums=QUEUES)
            await admin.wait_route(TOPIC, QUEUES)
        began_s = time.perf_counter()
        numbers = iter(range(count))

        async def send() -> None:
            for _ in numbers:
                await self.send_next(producer)

        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(send)
        return time.perf_counter() - began_s

    async def send_for_ever(self, producer: Producer) -> None:
        """One of the senders under load."""
        while True:
            if not await self.send_next(producer):
                await trio.sleep(REST_S)

    @asynccontextmanager
    async def senders_at_it(self, producer: Producer) -> AsyncIterator[None]:
        """Senders send until the block is left."""
        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(self.send_for_ever, producer)
            yield
            nursery.cancel_scope.cancel()

    async def consume(self, namesrv: str, wanted: set[int]) -> None:
        """Read on where the group stopped, until it has read all of `wanted`."""
        missing = wanted - self.received
        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST)
        async with open_push_consumer(namesrv, GROUP, {TOPIC: "*"}, config=config) as consumer:
            while missing:
                message = await anext(consumer)
                number = number_of(message.body)
                self.received_twice += number in self.received
                self.received.add(number)
                missing.discard(number)
                if not missing:
                    consumer.ack(message)

    def longest_gap_s(self, since_s: float) -> float:
        """Return the longest time without an answer that says stored, from `since_s` on."""
        times = [since_s, *(moment for moment in self.stored_times_s if moment > since_s)]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)

    def faults_of(self, commitlog: Path) -> Sequence[str]:
        """Return the places where a log contradicts this ledger. Blocks."""
        places: dict[int, list[tuple[int, int]]] = {}
        ends: dict[int, int] = {}
        faults = []
        for record in iter_records(commitlog):
            if not isinstance(record, Record) or record.topic != TOPIC:
                continue
            expected = ends.get(record.queue_id, 0)
            if record.queue_offset != expected:
                faults.append(f"queue {record.queue_id}: {record.queue_offset}, not {expected}")
            ends[record.queue_id] = record.queue_offset + 1
            place = (record.queue_id, record.queue_offset)
            places.setdefault(number_of(record.body), []).append(place)
        for number, place in self.acknowledged.items():
            if place not in places.get(number, ()):
                faults.append(f"message {number}, acknowledged for {place}, is not there")
        faults += [f"message {number}, refused, is there" for number in self.refused & {*places}]
        return faults


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 2)[1])
