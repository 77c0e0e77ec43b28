"""Samples counters into the journal that change too often for an event each.

Every ten seconds, and only what has changed: how far the broker is, what puts waited for slaves,
how far consumers are behind. A sample looks at a bounded number of groups and writes a bounded
number of events; a broker with more groups than that gets to each of them in turn. The journal of
an idle broker grows by one small event a minute: the sign of life by which an analysis knows, after
a power failure, until when the node was there.
"""

from __future__ import annotations

import trio

from trioha.broker.core import BrokerCore
from trioha.broker.wait_histogram import WAIT_BINS
from trioha.journal import EventSink
from trioha.services.loop.clock import Clock
from trioha.store.interface import MessageStore

INTERVAL_S = 10.0
LIFE_SIGN_MS = 60_000
LAGS_LOOKED_AT_MAX = 2_000  # some 10 ms of the loop's time
LAGS_TOLD_MAX = 16  # 1.5 KB every ten seconds: a day of it fits a journal four times
_TOLD_KEPT_MAX = 10_000


class JournalSamples:
    """The samples of one broker."""

    def __init__(
        self, core: BrokerCore, store: MessageStore, clock: Clock, events: EventSink
    ) -> None:
        self._core = core
        self._pipeline = core.pipeline
        self._store = store
        self._clock = clock
        self._events = events
        self._progress = (-1, 0, 0, 0)
        self._progress_ms = clock.now_ms()
        self._timeouts = 0
        self._unavailable = 0
        self._told_bins = [0] * WAIT_BINS
        self._told_waited_ms = 0
        self._lags_due: list[str] = []
        self._lags_told: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Sample until cancelled, and once more then: the totals of an orderly end are exact."""
        try:
            while True:
                await trio.sleep(INTERVAL_S)
                self.sample()
        finally:
            self.sample(last=True)

    def sample(self, *, last: bool = False) -> None:
        """Write what has changed."""
        self._sample_progress(last)
        self._sample_waits()
        self._sample_lags()

    def _sample_progress(self, last: bool) -> None:
        statistics = self._store.statistics()
        progress = (
            statistics.max_phy_offset,
            statistics.put_total,
            statistics.get_total,
            self._pipeline.refused_count,
        )
        now_ms = self._clock.now_ms()
        if last or progress != self._progress or now_ms - self._progress_ms >= LIFE_SIGN_MS:
            self._progress, self._progress_ms = progress, now_ms
            max_phy_offset, put_total, get_total, refused_total = progress
            self._events.event(
                "broker_progress",
                role=self._pipeline.role.value,
                max_phy_offset=max_phy_offset,
                put_total=put_total,
                get_total=get_total,
                refused_total=refused_total,
            )

    def _sample_waits(self) -> None:
        pipeline, waits = self._pipeline, self._pipeline.slave_waits
        bins = [now - told for now, told in zip(waits.bins, self._told_bins, strict=True)]
        puts = sum(bins)
        timeouts = pipeline.slave_timeout_count - self._timeouts
        unavailable = pipeline.slave_unavailable_count - self._unavailable
        if puts or timeouts or unavailable:
            self._events.event(
                "sync_waits",
                puts=puts,
                waited_ms=waits.waited_ms - self._told_waited_ms,
                longest_ms=waits.take_longest_ms(),
                bins=bins,
                timeouts=timeouts,
                unavailable=unavailable,
            )
            self._told_bins, self._told_waited_ms = list(waits.bins), waits.waited_ms
            self._timeouts += timeouts
            self._unavailable += unavailable

    def _sample_lags(self) -> None:
        if not self._lags_due:
            self._lags_due = self._core.offsets.keys()
        told = 0
        for _ in range(min(len(self._lags_due), LAGS_LOOKED_AT_MAX)):
            told += self._tell_lag(self._lags_due.pop())
            if told >= LAGS_TOLD_MAX:
                break

    def _tell_lag(self, key: str) -> bool:
        topic, _, group = key.partition("@")
        consumer_offset = broker_offset = worst_lag = 0
        worst_queue = -1
        queues = self._core.offsets.queues(group, topic)
        for queue_id, offset in queues.items():
            end = max(offset, self._store.max_offset_in_queue(topic, queue_id))
            consumer_offset += offset
            broker_offset += end
            if end - offset >= worst_lag:
                worst_lag, worst_queue = end - offset, queue_id
        if not queues or self._lags_told.get(key) == (consumer_offset, broker_offset):
            return False
        if len(self._lags_told) >= _TOLD_KEPT_MAX:
            self._lags_told.clear()
        self._lags_told[key] = (consumer_offset, broker_offset)
        self._events.event(
            "consumer_lag",
            topic=topic,
            group=group,
            lag=broker_offset - consumer_offset,
            consumer_offset=consumer_offset,
            broker_offset=broker_offset,
            queues=len(queues),
            worst_queue=worst_queue,
        )
        return True
