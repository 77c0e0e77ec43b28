"""Clients that send without a pause for as long as they are let, and note what became of each send.

The stock clients run in processes of their own (`support.peers.clients`), trioha's own in a thread
with Trio. One message after the other, each tried once as far as the client can be told so: a
client that tries again by itself may store a message twice, which is at least once, not a fault.
"""

from __future__ import annotations

import itertools
import threading
import time

import attrs
import trio

from support.histories.messages import Place, Put, make_body
from support.peers.clients import SendFailed, StockProducer
from support.processes.worker import Worker
from trioha.client import (
    Message,
    Producer,
    ProducerConfig,
    SendRefused,
    open_producer,
)
from trioha.errors import TriohaError

PAUSE_S = 0.01
WAIT_S = 60.0
STORED = ("SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT", "FLUSH_DISK_TIMEOUT")
_BODY_BYTES = 200


@attrs.frozen
class Attempt:
    """One send as its client saw it."""

    name: str
    began_s: float
    ended_s: float
    status: str
    """SEND_OK, another status, "refused" (surely not stored), or "unknown"."""
    detail: str = ""
    queue_offset: int | None = None
    queue_id: int | None = None

    @property
    def is_ok(self) -> bool:
        return self.status == "SEND_OK"

    @property
    def put(self) -> Put:
        """Put for the judge. A client may have tried again by itself."""
        client = self.name.rpartition("-")[0]
        put = Put(
            name=self.name, client=client, began_s=self.began_s, retries=True, detail=self.detail
        )
        if self.status == "refused":
            return attrs.evolve(put, ended_s=self.ended_s, outcome="refused")
        if not self.is_ok:
            return put
        queue_id = -1 if self.queue_id is None else self.queue_id
        place = None if self.queue_offset is None else Place(queue_id, self.queue_offset, -1)
        return attrs.evolve(put, ended_s=self.ended_s, outcome="acknowledged", place=place)

    @property
    def is_stored(self) -> bool:
        """Whether the broker said stored; perhaps on one machine only."""
        return self.status in STORED


def body_of(name: str) -> bytes:
    return make_body(name, _BODY_BYTES)


class Sender(Worker):
    """Sends in a thread of its own until it is stopped."""

    def __init__(self, label: str) -> None:
        super().__init__(f"sender[{label}]", WAIT_S)
        self.label = label
        self.attempts: list[Attempt] = []
        self._changed = threading.Condition()
        self._paused = False
        self._resting = False
        self._ok_count = 0
        self._stored_count = 0

    @property
    def ok_count(self) -> int:
        """Number of sends that were answered with SEND_OK."""
        return self._ok_count

    def pause(self) -> None:
        """Send nothing more for now; returns when what is under way has its answer."""
        with self._changed:
            self._paused = True
            done = self._changed.wait_for(
                lambda: self._resting or not self._thread.is_alive(), WAIT_S
            )
        assert done, f"{self.label} hangs"

    def resume(self) -> None:
        with self._changed:
            self._paused = self._resting = False

    def _rests(self) -> bool:
        """Is the sender to wait before its next message?"""
        with self._changed:
            self._resting = self._paused and not self._stopping.is_set()
            self._changed.notify_all()
            return self._resting

    def wait_for_more(self, count: int = 20, within_s: float = WAIT_S) -> None:
        """Wait for `count` SEND_OK from now on."""
        with self._changed:
            wanted = self._ok_count + count
            done = self._changed.wait_for(
                lambda: self._ok_count >= wanted or not self._thread.is_alive(), within_s
            )
            assert done, f"{self.label}: {self._ok_count} of {wanted} OK, last {self.attempts[-3:]}"
        assert self._ok_count >= wanted, f"{self.label} ended: {self._failure!r}"

    def wait_for_stored(self, count: int = 20, within_s: float = WAIT_S) -> None:
        """Wait for `count` answers from now on that say stored, safe or not."""
        with self._changed:
            wanted = self._stored_count + count
            done = self._changed.wait_for(lambda: self._stored_count >= wanted, within_s)
        assert done, f"{self.label}: {self._stored_count} of {wanted}, last {self.attempts[-3:]}"

    def first_stored_after(self, moment_s: float) -> Attempt | None:
        """The first send that began after that moment and was stored."""
        for attempt in self.attempts:
            if attempt.began_s >= moment_s and attempt.is_stored:
                return attempt
        return None

    def gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time without such an answer that touches this span."""
        ends = [attempt.ended_s for attempt in self.attempts if attempt.is_stored]
        longest = 0.0
        for before, after in itertools.pairwise(ends):
            if after >= since_s and before <= until_s:
                longest = max(longest, after - before)
        return longest

    def gaps_over(self, seconds: float) -> list[float]:
        """Every longer time without such an answer, from the first to the last."""
        ends = [attempt.ended_s for attempt in self.attempts if attempt.is_stored]
        gaps = [after - before for before, after in itertools.pairwise(ends)]
        return [gap for gap in gaps if gap > seconds]

    def _note(self, attempt: Attempt) -> None:
        with self._changed:
            self.attempts.append(attempt)
            self._ok_count += attempt.is_ok
            self._stored_count += attempt.is_stored
            self._changed.notify_all()

    def _ended(self) -> None:
        with self._changed:
            self._changed.notify_all()


class StockSender(Sender):
    """A C++ or JavaScript producer."""

    def __init__(self, label: str, producer: StockProducer, topic: str) -> None:
        super().__init__(label)
        self._producer = producer
        self._topic = topic

    def _work(self) -> None:
        number = 0
        while not self._stopping.is_set():
            time.sleep(PAUSE_S)
            if self._rests():
                continue
            name = f"{self.label}-{number}"
            number += 1
            began_s = time.monotonic()
            queue_offset, detail = None, ""
            try:
                sent = self._producer.send(self._topic, body_of(name).decode())
                status, queue_offset = sent.status, sent.queue_offset
            except SendFailed as error:
                # Neither client says whether the message was stored.
                status, detail = "unknown", str(error)
            self._note(Attempt(name, began_s, time.monotonic(), status, detail, queue_offset))


class OwnSender(Sender):
    """trioha's own producer."""

    def __init__(self, label: str, namesrv: str, topic: str) -> None:
        super().__init__(label)
        self._namesrv = namesrv
        self._topic = topic

    def _work(self) -> None:
        trio.run(self._send_on_trio)

    async def _send_on_trio(self) -> None:
        config = ProducerConfig(send_timeout_s=4.0)
        async with open_producer(self._namesrv, group=self.label, config=config) as producer:
            number = 0
            while not self._stopping.is_set():
                await trio.sleep(PAUSE_S)
                if self._rests():
                    continue
                self._note(await self._send_one(producer, f"{self.label}-{number}"))
                number += 1

    async def _send_one(self, producer: Producer, name: str) -> Attempt:
        began_s = time.monotonic()
        queue_offset, queue_id, detail = None, None, ""
        try:
            result = await producer.send(Message(self._topic, body_of(name)))
            status, queue_offset = result.status.name, result.queue_offset
            queue_id = result.queue.queue_id
        except SendRefused as error:
            status, detail = "refused", str(error)
        except TriohaError as error:
            status, detail = "unknown", str(error)
        return Attempt(name, began_s, time.monotonic(), status, detail, queue_offset, queue_id)
