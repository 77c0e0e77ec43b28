"""Reads a backlog to its end as fast as one pull per queue allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs

from trioha.bench.loop import LoadConnection, LoadLoop
from trioha.bench.pulls import PullReader, QueueCursor, record_bodies
from trioha.client.message import MessageQueue
from trioha.errors import RemoteProtocolError, Unreachable
from trioha.security.signature import Credentials

_NS = 1_000_000_000
_SILENCE_S = 10.0


@attrs.frozen(kw_only=True)
class DrainReport:
    """Result of draining a backlog, from the first request to the last answer."""

    messages: int
    seconds: float
    messages_per_s: float
    looked_at_per_s: float
    """Messages that the broker looked at, with a filter: more than those that it delivers."""
    body_mb_per_s: float
    best_second: int
    """Messages of the best whole second; all of them when it took less than one."""
    client_cpu_us_per_message: float


Progress = Callable[[float, int, int], None]
"""Called once a second: seconds since start, messages in it, messages so far."""


class _Puller:
    """One connection and the queues read through it."""

    def __init__(self, drain: DrainLoad, connection: LoadConnection, reader: PullReader) -> None:
        self.connection = connection
        self.reader = reader
        self._drain = drain

    def begin(self) -> None:
        requests = [self.reader.request(index) for index in range(len(self.reader.cursors))]
        self.connection.send(b"".join(requests))

    def receive(self, data: bytes, now_ns: int) -> None:
        requests = []
        for index, offsets, records in self.reader.answers(data):
            self._drain.received(offsets, records, now_ns)
            cursor = self.reader.cursors[index]
            if cursor.offset < cursor.max_offset:
                requests.append(self.reader.request(index))
            else:
                self._drain.queue_ended()
        if requests:
            self.connection.send(b"".join(requests))


class DrainLoad:
    """One run of the consume benchmark over queues with a backlog."""

    def __init__(
        self,
        targets: Sequence[tuple[MessageQueue, str]],
        *,
        group: str = "trioha_bench",
        count: int = 32,
        begin_offsets: Sequence[int] | None = None,
        progress: Progress | None = None,
        credentials: Credentials | None = None,
        sql: str = "",
    ) -> None:
        """With `credentials` every pull is signed. `sql`: an SQL92 filter of the consumer."""
        self._loop = LoadLoop()
        self._progress = progress
        self._is_filtered = bool(sql)
        self._messages = 0
        self._looked_at = 0
        self._body_bytes = 0
        self._last_total = 0
        self._best = 0
        self._queues_left = len(targets)
        self._begin_ns = self._last_ns = self._next_second_ns = 0
        begins = begin_offsets or [0] * len(targets)
        by_address: dict[str, list[QueueCursor]] = {}
        for (queue, address), begin in zip(targets, begins, strict=True):
            by_address.setdefault(address, []).append(QueueCursor(queue, begin))
        self._pullers = []
        for address, cursors in by_address.items():
            connection = self._loop.connect(address, lambda data, now_ns: None)
            reader = PullReader(
                group, cursors, count=count, suspend_ms=0, credentials=credentials, sql=sql
            )
            puller = _Puller(self, connection, reader)
            connection.on_data = puller.receive
            self._pullers.append(puller)

    def run(self) -> DrainReport:
        """Read to the end. Errors: Unreachable, CommandError, RemoteProtocolError."""
        cpu_s = time.process_time()
        try:
            self._loop.run(self._on_time)
        finally:
            self._loop.close()
        cpu_s = time.process_time() - cpu_s
        seconds = (self._last_ns - self._begin_ns) / _NS
        messages = self._messages
        return DrainReport(
            messages=messages,
            seconds=round(seconds, 3),
            messages_per_s=round(messages / seconds, 1) if seconds else 0.0,
            looked_at_per_s=round(self._looked_at / seconds, 1) if seconds else 0.0,
            body_mb_per_s=round(self._body_bytes / seconds / 1e6, 2) if seconds else 0.0,
            best_second=self._best or messages,
            client_cpu_us_per_message=round(cpu_s / messages * 1e6, 2) if messages else 0.0,
        )

    def stop(self) -> None:
        """End the run before the next second; callable from another thread."""
        self._loop.stopped = True

    def received(self, offsets: int, records: bytes | bytearray | memoryview, now_ns: int) -> None:
        """One answer."""
        bodies = record_bodies(records)
        if len(bodies) > offsets or (len(bodies) < offsets and not self._is_filtered):
            raise RemoteProtocolError(f"{len(bodies)} records where offsets moved by {offsets}")
        self._messages += len(bodies)
        self._looked_at += offsets
        self._body_bytes += sum(map(len, bodies))
        self._last_ns = now_ns

    def queue_ended(self) -> None:
        self._queues_left -= 1
        if not self._queues_left:
            self._loop.stopped = True

    def _on_time(self, now_ns: int) -> int:
        if not self._begin_ns:
            self._begin_ns = self._last_ns = now_ns
            self._next_second_ns = now_ns + _NS
            for puller in self._pullers:
                puller.begin()
            return self._next_second_ns
        if now_ns - self._last_ns > _SILENCE_S * _NS:
            raise Unreachable(f"no answer to a pull for {_SILENCE_S:g} s")
        fresh = self._messages - self._last_total
        self._best = max(self._best, fresh)
        self._last_total = self._messages
        if self._progress is not None:
            self._progress((now_ns - self._begin_ns) / _NS, fresh, self._messages)
        self._next_second_ns += _NS
        return self._next_second_ns
