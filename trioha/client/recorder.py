"""Records a cluster into a file, round by round, until it is told to stop.

The file is written whole records at a time with one `write`, never fsynced and never rewritten:
a reader sees every frame that was finished. When it has reached its size, it
becomes FILE.1 and a new one is begun, so the last hours are always there and the disk never fills.

Errors: a full disk ends the recording with an OSError; what was written stays readable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.client.watching import Asker
from trioha.errors import TriohaError
from trioha.watch.alerts import Alerts
from trioha.watch.collector import Collector, Interest
from trioha.watch.marks import Mark, MarkFinder
from trioha.watch.recording import Encoder
from trioha.watch.rules import RULES, Rule
from trioha.watch.snapshot import ClusterSnapshot, Tables
from trioha.wire.address import parse_namesrvs

_WAIT_SHARE = 0.5
"""Share of an interval that a frame waits for answers on their way."""


@attrs.frozen(kw_only=True)
class RecordOptions:
    path: Path
    namesrv: str
    interval_s: float = 1.0
    for_s: float | None = None
    size_max: int | None = None
    overwrite: bool = False
    timeout_s: float = 3.0
    interest: Interest = attrs.field(factory=lambda: Interest(topics=True))
    rules: Mapping[str, Rule] = RULES
    facts: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Recorded:
    """Counts of a finished recording."""

    frame_count: int
    mark_count: int
    byte_count: int
    file_count: int


def earlier_file(path: Path) -> Path:
    """Return the path of the file before this one."""
    return path.with_name(f"{path.name}.1")


class RecordingFile:
    """The file, and its successor when it is full."""

    def __init__(self, options: RecordOptions, wall_ms: int) -> None:
        self.byte_count = 0
        self.frame_count = 0
        self.mark_count = 0
        self.file_count = 0
        self._options = options
        for path in (options.path, earlier_file(options.path)):
            if not path.exists():
                continue
            if not options.overwrite:
                raise TriohaError(
                    f"{path} is there already; --overwrite replaces it, or name another file"
                )
            # A process that still reads or writes the old file keeps it as it is.
            path.unlink()
        self._encoder = Encoder()
        self._file = -1
        self._size = 0
        self._begin(wall_ms)

    def frame(self, raw: dict[str, Any]) -> None:
        if self._options.size_max is not None and self._size >= self._options.size_max:
            self.close()
            os.replace(self._options.path, earlier_file(self._options.path))
            self._encoder = Encoder()
            self._begin(int(raw["at_wall_ms"]))
        self._append(self._encoder.frame(raw))
        self.frame_count += 1

    def mark(self, mark: Mark) -> None:
        self._append(self._encoder.mark(mark))
        self.mark_count += 1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, wall_ms: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._options.path, flags | os.O_EXCL, 0o640)
        self._size = 0
        self.file_count += 1
        self._append(self._encoder.begin(wall_ms, self._options.facts))

    def _append(self, data: bytes) -> None:
        written = 0
        with memoryview(data) as view:
            try:
                while written < len(view):
                    written += os.write(self._file, view[written:])
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._options.path)) from error
        self._size += len(data)
        self.byte_count += len(data)


async def record(
    options: RecordOptions,
    shutdown: trio.Event,
    *,
    config: ClusterConfig | None = None,
    on_started: Callable[[], None] = lambda: None,
    on_mark: Callable[[Mark], None] = lambda mark: None,
) -> Recorded:
    """Record until `shutdown`, or for as long as the options say.

    Errors: TriohaError when the file is there already or no name server is given; OSError.
    """
    config = config or ClusterConfig(
        connect_timeout_s=options.timeout_s, request_timeout_s=options.timeout_s
    )
    namesrvs = parse_namesrvs(options.namesrv)
    collector = Collector(
        namesrvs, period_ms=round(options.interval_s * 1000), interest=options.interest
    )
    async with open_cluster(options.namesrv, config) as cluster:
        file = RecordingFile(options, cluster.clock.wall_ms())
        try:
            with trio.move_on_after(options.for_s or float("inf")):
                on_started()
                async with trio.open_nursery() as nursery:
                    asker = Asker(cluster, collector, nursery)
                    rounds = partial(_rounds, options, cluster, collector, asker, file, on_mark)
                    nursery.start_soon(rounds, name="record.rounds")
                    await shutdown.wait()
                    nursery.cancel_scope.cancel()
        finally:
            file.close()
    return Recorded(file.frame_count, file.mark_count, file.byte_count, file.file_count)


async def _rounds(
    options: RecordOptions,
    cluster: Cluster,
    collector: Collector,
    asker: Asker,
    file: RecordingFile,
    on_mark: Callable[[Mark], None],
) -> None:
    finder, alerts, tables = MarkFinder(), Alerts(options.rules), Tables()
    next_s = trio.current_time()
    while True:
        asker.ask_due()
        with trio.move_on_after(options.interval_s * _WAIT_SHARE):
            await asker.wait_quiet()
        raw = collector.raw(cluster.clock.wall_ms())
        file.frame(raw)
        snapshot = ClusterSnapshot.of(raw, tables)
        for mark in finder.look(snapshot, alerts.look(snapshot)):
            file.mark(mark)
            on_mark(mark)
        # A round that took too long is not made up for.
        next_s = max(next_s + options.interval_s, trio.current_time())
        await trio.sleep_until(next_s)
