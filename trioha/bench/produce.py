"""Sends as fast as so many concurrent senders can, or at a fixed rate, and measures each send.

Theory of operation. A closed loop keeps `concurrency` sends outstanding: each answer releases the
next send of its slot. An open loop sends when the schedule says so and counts latency from that
moment, so a broker that stalls is charged for the sends it delayed (no coordinated omission).
All answers of one read release their next sends in one write.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import attrs

from trioha.bench.frames import ResponseReader, SendFrame
from trioha.bench.histogram import Histogram, LatencySummary
from trioha.bench.loop import LoadConnection, LoadLoop
from trioha.bench.transactions import CommittingReader, half_properties
from trioha.client.message import MessageQueue
from trioha.credentials import current_credentials
from trioha.errors import Unreachable
from trioha.security.signature import Credentials
from trioha.wire.codes import SerializeType, SysFlag
from trioha.wire.properties import Property

_NS = 1_000_000_000
_DRAIN_S = 5.0
_SECOND = _NS


@attrs.frozen(kw_only=True)
class ProduceOptions:
    """Messages of a load, and the way in which they are sent."""

    group: str = "trioha_bench"
    size: int = 128
    batch: int = 1
    concurrency: int = 64
    connections: int = 1
    """Per broker."""
    rate: float = 0.0
    """Sends per second of an open loop; 0: a closed loop."""
    seconds: float = 10.0
    count: int = 0
    """Messages to measure; 0: as many as fit into `seconds`."""
    warm_up_s: float = 2.0
    serialize_type: SerializeType = SerializeType.JSON
    id_prefix: str = "0" * 24
    """First 24 digits of every UNIQ_KEY."""
    transactional: bool = False
    """Each message is a half message, committed once it is acknowledged."""
    is_numbered: bool = False
    """The messages of a batch and of all slots take the values 0 to 99 of the property `n` in turn,
    for filters."""
    delay_s: int = 0
    """Each message is a timer message, due so many seconds after it was sent."""
    credentials: Credentials | None = attrs.field(factory=current_credentials)
    """The account that signs every send; None: none is signed."""


@attrs.frozen(kw_only=True)
class ProduceReport:
    """Measurements of a run, without its warm-up."""

    messages: int
    seconds: float
    messages_per_s: float
    body_mb_per_s: float
    send_latency: LatencySummary
    refusals: dict[int, int]
    """Response codes other than 0, the whole run."""
    unanswered: int
    client_cpu_us_per_message: float


Progress = Callable[[float, int, Histogram, int], None]
"""Called once a second: seconds since start, messages in it, their latencies, refusals so far."""


def _properties(options: ProduceOptions, number: int) -> dict[str, str]:
    """Return the properties of a message that is this one of all slots together."""
    properties = half_properties(options.group) if options.transactional else {}
    if options.is_numbered:
        properties["n"] = str(number % 100)
    if options.delay_s:
        properties[Property.TIMER_DELAY_SEC] = str(options.delay_s)
    return properties


def _reader(options: ProduceOptions) -> ResponseReader:
    if not options.transactional:
        return ResponseReader()
    return CommittingReader(options.group, options.serialize_type, options.credentials)


class _Sender:
    """One connection and its slots."""

    def __init__(
        self, load: ProduceLoad, connection: LoadConnection, slots: range, reader: ResponseReader
    ) -> None:
        self.connection = connection
        self.reader = reader
        self.idle = deque(slots)
        self._load = load

    def receive(self, data: bytes, now_ns: int) -> None:
        slots = self.reader.slots(data)
        if self.reader.follow_ups:
            self.connection.send(b"".join(self.reader.follow_ups))
            self.reader.follow_ups.clear()
        self._load.answered(self, slots, now_ns)


class ProduceLoad:
    """One run of the produce benchmark against the masters of a topic."""

    def __init__(
        self,
        targets: Sequence[tuple[MessageQueue, str]],
        options: ProduceOptions,
        progress: Progress | None = None,
        body: bytes | None = None,
    ) -> None:
        self._options = options
        self._progress = progress
        self._loop = LoadLoop()
        self._histogram = Histogram()
        self._second = Histogram()
        self._second_messages = 0
        self._serial = 0
        self._outstanding = 0
        self._measured = 0
        self._measuring = False
        self._stopping = False
        self._stop_asked = False
        self._cpu_s = 0.0
        self._begin_ns = self._measure_from_ns = self._end_ns = self._next_second_ns = 0
        self._due_ns = 0
        self._held_up = False
        body = body or bytes(65 + index % 26 for index in range(options.size))
        self._frames: list[SendFrame] = []
        self._sent_ns: list[int] = []
        self._senders = self._connect(targets, body)

    def run(self) -> ProduceReport:
        """Run to the end. Errors: Unreachable when a broker goes away."""
        try:
            self._loop.run(self._on_time)
        finally:
            self._loop.close()
        return self._report()

    def stop(self) -> None:
        """End the run within a second, as if its time were over; callable from another thread."""
        self._stop_asked = True

    def answered(self, sender: _Sender, slots: list[int], now_ns: int) -> None:
        """All that one read brought."""
        self._outstanding -= len(slots)
        batch = self._options.batch
        if self._measuring:
            self._record(slots, now_ns)
            self._measured += len(slots) * batch
            if 0 < self._options.count <= self._measured:
                self._end_measuring(now_ns)
        self._second_messages += len(slots) * batch
        if self._stopping:
            self._loop.stopped = self._outstanding == 0
        elif self._options.rate:
            sender.idle.extend(slots)
            if self._held_up:
                self._loop.hurry()
        else:
            self._send(sender, slots, now_ns)

    def _connect(self, targets: Sequence[tuple[MessageQueue, str]], body: bytes) -> list[_Sender]:
        options = self._options
        queues: dict[str, list[MessageQueue]] = {}
        for queue, address in targets:
            queues.setdefault(address, []).append(queue)
        places = [(address, number) for number in range(options.connections) for address in queues]
        if len(places) > options.concurrency:
            places = places[: options.concurrency]
        senders = []
        first = 0
        for index, (address, number) in enumerate(places):
            share = options.concurrency // len(places)
            share += index < options.concurrency % len(places)
            slots = range(first, first + share)
            first += share
            for slot in slots:
                at = queues[address]
                self._frames.append(
                    SendFrame(
                        slot,
                        at[(slot + number) % len(at)],
                        body,
                        group=options.group,
                        id_prefix=options.id_prefix,
                        batch=options.batch,
                        properties=[
                            _properties(options, slot * options.batch + index)
                            for index in range(options.batch)
                        ],
                        sys_flag=SysFlag.TRANSACTION_PREPARED if options.transactional else 0,
                        serialize_type=options.serialize_type,
                        credentials=options.credentials,
                    )
                )
                self._sent_ns.append(0)
            connection = self._loop.connect(address, lambda data, now_ns: None)
            sender = _Sender(self, connection, slots, _reader(options))
            connection.on_data = sender.receive
            senders.append(sender)
        return senders

    def _record(self, slots: list[int], now_ns: int) -> None:
        # Sends of one write have one send time, and their answers mostly come together.
        sent = self._sent_ns
        record = self._second.record
        times = 0
        last_ns = sent[slots[0]] if slots else 0
        for slot in slots:
            if sent[slot] == last_ns:
                times += 1
            else:
                record(now_ns - last_ns, times)
                last_ns, times = sent[slot], 1
        if times:
            record(now_ns - last_ns, times)

    def _send(self, sender: _Sender, slots: Sequence[int], sent_ns: int) -> None:
        """Send once from each of these slots, in one write."""
        if not slots:
            return
        born = b"%d" % (time.time_ns() // 1_000_000)
        serial = self._serial
        step = self._options.batch
        frames = self._frames
        times = self._sent_ns
        out: list[bytes] = []
        for slot in slots:
            frames[slot].append_to(out, born, serial)
            serial = serial + step & 0x7FFFFFFF
            times[slot] = sent_ns
        self._serial = serial
        self._outstanding += len(slots)
        sender.connection.send(b"".join(out))

    def _on_time(self, now_ns: int) -> int:
        """Begin, end, report, and send what the schedule has made due; returns the next time."""
        if not self._begin_ns:
            self._begin(now_ns)
        if self._stopping:
            if now_ns >= self._end_ns + int(_DRAIN_S * _NS) or not self._outstanding:
                self._loop.stopped = True
            return self._end_ns + int(_DRAIN_S * _NS)
        if not self._measuring and now_ns >= self._measure_from_ns:
            self._measuring = True
            self._measure_from_ns = now_ns
            self._cpu_s = time.process_time()
        if self._stop_asked or now_ns >= self._end_ns:
            self._end_measuring(now_ns)
            return now_ns
        if now_ns >= self._next_second_ns:
            self._tell_progress(now_ns)
        due = min(self._next_second_ns, self._end_ns)
        if not self._measuring:
            due = min(due, self._measure_from_ns)
        if self._options.rate and self._send_due(now_ns):
            due = min(due, self._due_ns)
        return due

    def _begin(self, now_ns: int) -> None:
        options = self._options
        self._begin_ns = self._due_ns = now_ns
        self._measure_from_ns = now_ns + int(options.warm_up_s * _NS)
        measured_s = options.seconds if not options.count else 86_400.0
        self._end_ns = self._measure_from_ns + int(measured_s * _NS)
        self._next_second_ns = now_ns + _SECOND
        if not options.rate:
            for sender in self._senders:
                self._send(sender, list(sender.idle), now_ns)

    def _send_due(self, now_ns: int) -> bool:
        """Send what the schedule has made due, each stamped with its own due time.

        False when every slot is outstanding: the schedule waits for an answer, latency does not.
        """
        interval_ns = _NS / self._options.rate
        while self._due_ns <= now_ns:
            sender = max(self._senders, key=lambda candidate: len(candidate.idle))
            if not sender.idle:
                self._held_up = True
                return False
            self._send(sender, (sender.idle.popleft(),), int(self._due_ns))
            self._due_ns = int(self._due_ns + interval_ns)
        self._held_up = False
        return True

    def _end_measuring(self, now_ns: int) -> None:
        self._measuring = False
        self._stopping = True
        self._end_ns = now_ns
        self._cpu_s = time.process_time() - self._cpu_s
        self._begin_second()

    def _tell_progress(self, now_ns: int) -> None:
        if self._progress is not None:
            elapsed_s = (now_ns - self._begin_ns) / _NS
            refusals = sum(self._refusals().values())
            self._progress(elapsed_s, self._second_messages, self._second, refusals)
        self._begin_second()
        self._next_second_ns += _SECOND

    def _begin_second(self) -> None:
        self._histogram.merge(self._second)
        self._second = Histogram()
        self._second_messages = 0

    def _refusals(self) -> Counter[int]:
        return sum((sender.reader.refusals for sender in self._senders), Counter())

    def _report(self) -> ProduceReport:
        if not self._histogram.count:
            raise Unreachable("no send was answered while it was measured")
        seconds = (self._end_ns - self._measure_from_ns) / _NS
        messages = self._measured
        return ProduceReport(
            messages=messages,
            seconds=round(seconds, 3),
            messages_per_s=round(messages / seconds, 1),
            body_mb_per_s=round(messages * self._options.size / seconds / 1e6, 2),
            send_latency=self._histogram.summary(),
            refusals=dict(self._refusals()),
            unanswered=self._outstanding,
            client_cpu_us_per_message=round(self._cpu_s / messages * 1e6, 2),
        )
