"""Bytes and seconds that a running query is behind the stores that it follows.

Theory of operation. Spark has no place for the metrics of a Python source, but its reports of
progress hold two offsets of each: what the last batch ended with, and how far the log then was. So
a listener, which runs in the driver, has the bytes; the time comes from the first record that the
query has not read, and the driver must see the stores for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import attrs
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from trioha.analysis.scan import ScanFilter, plan_splits, scan_split
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import StoreFiles, open_store

_SPLIT_BYTES = 1 << 20


@attrs.frozen
class StoreLag:
    """Bytes and seconds that a query lacked of one store at the end of a batch."""

    query: str
    """Name of the query, or its id when it has none."""
    store: str
    bytes_behind: int
    seconds_behind: float | None
    """Age of the oldest record that it lacks; None when the driver cannot read that record."""


class LagListener(StreamingQueryListener):
    """Calls with a `StoreLag` for each store after each batch: `spark.streams.addListener`."""

    def __init__(
        self, report: Callable[[StoreLag], object], now: Callable[[], float] = time.time
    ) -> None:
        self._report = report
        self._now = now

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for lag in lags_of(event.progress, self._now()):
            self._report(lag)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def lags_of(progress: StreamingQueryProgress, now_s: float) -> list[StoreLag]:
    """The lag of each store, of a listener's event or of a query's `lastProgress`."""
    query = progress.name or str(progress.id)
    found = []
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for path in sorted(ends.keys() & latest.keys()):
            behind = max(0, latest[path] - max(0, ends[path]))
            seconds = _seconds_behind(path, ends[path], now_s) if behind else 0.0
            found.append(StoreLag(query, path, behind, seconds))
    return found


def _offsets(text: str | None) -> dict[str, int]:
    """Offsets by store; none of another source."""
    try:
        found: Any = json.loads(text or "")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {path: value for path, value in found.items() if isinstance(value, int)}


def _seconds_behind(path: str, offset: int, now_s: float) -> float | None:
    try:
        store_ms = _first_ms(open_store(path), offset)
    except AnalysisError:
        return None
    return None if store_ms is None else max(0.0, now_s - store_ms / 1000)


def _first_ms(store: StoreFiles, offset: int) -> int | None:
    """Store time of the first record at this offset or behind it."""
    behind = ScanFilter(phy_offset_from=offset)
    for split in plan_splits(store, behind, _SPLIT_BYTES):
        for batch in scan_split(split, filters=behind):
            if batch.row_count:
                return int(batch.numbers("store_ms")[0])
    return None
