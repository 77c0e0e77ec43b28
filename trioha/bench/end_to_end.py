"""Latency from send to receipt at a fixed rate: one loop sends on schedule and keeps parked pulls.

The body of each message begins with the moment its send was due, on this process's own clock, so
nothing has to be matched and a late send is charged to the latency. With `delay_ms` all are timer
messages: what they were to wait for is taken off, and the broker's own notes in each record tell
how late it delivered, to the millisecond.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

import attrs

from trioha.bench.frames import ResponseReader, SendFrame
from trioha.bench.histogram import Histogram, LatencySummary
from trioha.bench.loop import LoadConnection, LoadLoop
from trioha.bench.pulls import PullReader, QueueCursor, record_bodies
from trioha.client.message import MessageQueue
from trioha.credentials import current_credentials
from trioha.errors import Unreachable
from trioha.security.signature import Credentials
from trioha.wire.properties import Property
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import Buffer

_NS = 1_000_000_000
_STAMP = struct.Struct(">q")
_SLOTS = 1024
_LAST_ARRIVALS_S = 5.0
_SUSPEND_MS = 15_000


@attrs.frozen(kw_only=True)
class EndToEndOptions:
    group: str = "trioha_bench"
    size: int = 128
    rate: float = 1000.0
    seconds: float = 10.0
    warm_up_s: float = 2.0
    delay_ms: int = 0
    id_prefix: str = "0" * 24
    credentials: Credentials | None = attrs.field(factory=current_credentials)
    """The account that signs every send and pull; None: none is signed."""


@attrs.frozen(kw_only=True)
class EndToEndReport:
    """Result of a run, after its warm-up."""

    sent: int
    received: int
    seconds: float
    rate: float
    end_to_end_latency: LatencySummary
    send_latency: LatencySummary
    refusals: dict[int, int]


@attrs.frozen(kw_only=True)
class TimerReport(EndToEndReport):
    """The same of timer messages; `end_to_end_latency` is without their delay."""

    delivery_lateness: LatencySummary
    """Time from the moment a message was due to its delivery, by the broker's clock."""


Progress = Callable[[float, int, Histogram], None]
"""Called once a second: seconds since start, messages received in it, their latencies."""


class EndToEndLoad:
    """One run over the queues of one broker."""

    def __init__(
        self,
        queues: Sequence[MessageQueue],
        begin_offsets: Sequence[int],
        address: str,
        options: EndToEndOptions,
        progress: Progress | None = None,
    ) -> None:
        self._options = options
        self._progress = progress
        self._loop = LoadLoop()
        self._responses = ResponseReader()
        self._sending: LoadConnection = self._loop.connect(address, self._on_responses)
        self._pulling: LoadConnection = self._loop.connect(address, self._on_pulled)
        cursors = [
            QueueCursor(queue, begin) for queue, begin in zip(queues, begin_offsets, strict=True)
        ]
        self._pulls = PullReader(
            options.group,
            cursors,
            count=32,
            suspend_ms=_SUSPEND_MS,
            credentials=options.credentials,
        )
        delay_ms = options.delay_ms
        self._delay_ns = delay_ms * 1_000_000
        body = b"\x00" * max(options.size, _STAMP.size)
        self._frames = [
            SendFrame(
                slot,
                queues[slot % len(queues)],
                body,
                group=options.group,
                id_prefix=options.id_prefix,
                properties=[{Property.TIMER_DELAY_MS: str(delay_ms)}] if delay_ms else (),
                credentials=options.credentials,
            )
            for slot in range(_SLOTS)
        ]
        self._due_ns_of_slot = [0] * _SLOTS
        # Slots take turns, so that queues do; a slot still outstanding means 1024 unanswered sends.
        self._busy = bytearray(_SLOTS)
        self._histogram = Histogram()
        self._sends = Histogram()
        self._lateness = Histogram()
        self._second = Histogram()
        self._serial = self._sent = 0
        self._begin_ns = self._measure_from_ns = self._end_ns = 0
        self._next_second_ns = 0
        self._due_ns = 0.0

    def run(self) -> EndToEndReport:
        """Run to the end. Errors: Unreachable, CommandError."""
        try:
            self._loop.run(self._on_time)
        finally:
            self._loop.close()
        if not self._histogram.count:
            raise Unreachable("no message arrived while it was measured")
        report = EndToEndReport(
            sent=self._sent,
            received=self._histogram.count,
            seconds=self._options.seconds,
            rate=self._options.rate,
            end_to_end_latency=self._histogram.summary(),
            send_latency=self._sends.summary(),
            refusals=dict(self._responses.refusals),
        )
        if not self._delay_ns:
            return report
        facts = {field.name: getattr(report, field.name) for field in attrs.fields(EndToEndReport)}
        return TimerReport(**facts, delivery_lateness=self._lateness.summary())

    def stop(self) -> None:
        """End the run before the next second; callable from another thread."""
        self._loop.stopped = True

    def _on_time(self, now_ns: int) -> int:
        if not self._begin_ns:
            self._begin(now_ns)
        if now_ns >= self._next_second_ns:
            if self._progress is not None:
                elapsed_s = (now_ns - self._begin_ns) / _NS
                self._progress(elapsed_s, self._second.count, self._second)
            self._second = Histogram()
            self._next_second_ns += _NS
        last_ns = self._end_ns + int(_LAST_ARRIVALS_S * _NS) + self._delay_ns
        if now_ns >= self._end_ns:
            if self._histogram.count >= self._sent or now_ns >= last_ns:
                self._loop.stopped = True
            return min(self._next_second_ns, last_ns)
        self._send_due(now_ns)
        return min(self._next_second_ns, self._end_ns, max(int(self._due_ns), now_ns + 1))

    def _begin(self, now_ns: int) -> None:
        self._begin_ns = now_ns
        self._due_ns = float(now_ns)
        self._measure_from_ns = now_ns + int(self._options.warm_up_s * _NS)
        self._end_ns = self._measure_from_ns + int(self._options.seconds * _NS)
        self._next_second_ns = now_ns + _NS
        pulls = [self._pulls.request(index) for index in range(len(self._pulls.cursors))]
        self._pulling.send(b"".join(pulls))

    def _send_due(self, now_ns: int) -> None:
        interval_ns = _NS / self._options.rate
        while self._due_ns <= now_ns:
            slot = self._serial % _SLOTS
            if self._busy[slot]:
                return
            due_ns = int(self._due_ns)
            self._due_ns += interval_ns
            born = b"%d" % (time.time_ns() // 1_000_000)
            pieces: list[bytes] = []
            stamp = _STAMP.pack(due_ns)
            self._frames[slot].append_to(pieces, born, self._serial & 0x7FFFFFFF, stamp)
            self._serial += 1
            self._busy[slot] = 1
            self._due_ns_of_slot[slot] = due_ns
            self._sent += due_ns >= self._measure_from_ns
            self._sending.send(b"".join(pieces))

    def _on_responses(self, data: bytes, now_ns: int) -> None:
        for slot in self._responses.slots(data):
            self._busy[slot] = 0
            due_ns = self._due_ns_of_slot[slot]
            if due_ns >= self._measure_from_ns:
                self._sends.record(now_ns - due_ns)

    def _on_pulled(self, data: bytes, now_ns: int) -> None:
        requests = []
        for index, _, records in self._pulls.answers(data):
            requests.append(self._pulls.request(index))
            for body in record_bodies(records):
                (due_ns,) = _STAMP.unpack_from(body)
                due_ns += self._delay_ns
                self._second.record(now_ns - due_ns)
                if due_ns - self._delay_ns >= self._measure_from_ns:
                    self._histogram.record(now_ns - due_ns)
            if self._delay_ns:
                self._note_lateness(records)
        self._pulling.send(b"".join(requests))
        if now_ns >= self._end_ns and self._histogram.count >= self._sent:
            self._loop.stopped = True

    def _note_lateness(self, records: Buffer) -> None:
        for record in decode_records(bytes(records)):
            if _STAMP.unpack_from(record.body)[0] < self._measure_from_ns:
                continue
            properties = record.properties
            due_ms = int(properties[Property.TIMER_ENQUEUE_MS]) + self._options.delay_ms
            late_ms = int(properties[Property.TIMER_DEQUEUE_MS]) - due_ms
            self._lateness.record(late_ms * 1_000_000)
