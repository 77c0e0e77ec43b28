"""Samples counters into the journal that change too often for an event each.

Every ten seconds, and only what has changed: how far the broker is, what puts waited for slaves,
how far consumers are behind. A sample looks at a bounded number of groups and writes a bounded
number of events; a broker with more groups than that gets to each of them in turn. A group's sample
names every queue whose committed offset has changed since its last one, so the samples together are
a history of the commits: read in order, they give each queue's offset at each sample. The journal
of an idle broker grows by one small event a minute: the sign of life by which an analysis knows,
after a power failure, until when the node was there.
"""

from __future__ import annotations

import trio

from trioha.broker.core import BrokerCore
from trioha.broker.wait_histogram import WAIT_BINS
from trioha.journal import EventSink
from trioha.services.loop.clock import Clock
from trioha.store.interface import MessageStore
from trioha.wire.names import BROKER_GROUPS

INTERVAL_S = 10.0
LIFE_SIGN_MS = 60_000
LAGS_LOOKED_AT_MAX = 2_000  # some 10 ms of the loop's time
LAGS_TOLD_MAX = 16  # 2.4 KB every ten seconds, and with their offsets
OFFSETS_TOLD_MAX = 128  # 3.6 KB: two days of it fit a journal
_TOLD_KEPT_MAX = 10_000
_OFFSETS_KEPT_MAX = 100_000  # 10 MiB


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
        self._lags_told: dict[str, tuple[int, dict[int, int]]] = {}
        self._offsets_kept = 0

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
        self._tell_set_back()
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

    def _tell_set_back(self) -> None:
        """Report progress that moved backwards since the last sample: messages come again."""
        found, others = self._core.offsets.take_set_back()
        moves: dict[str, list[int]] = {}
        for (key, queue_id), move in found.items():
            moves.setdefault(key, []).extend((queue_id, move.before, move.after))
        for key, queues in moves.items():
            topic, _, group = key.partition("@")
            if group not in BROKER_GROUPS:
                self._events.event(
                    "progress_set_back", topic=topic, group=group, queues=queues, others=others
                )

    def _sample_lags(self) -> None:
        if not self._lags_due:
            self._lags_due = self._core.offsets.keys()
        told, room = 0, OFFSETS_TOLD_MAX
        for _ in range(min(len(self._lags_due), LAGS_LOOKED_AT_MAX)):
            offsets = self._tell_lag(self._lags_due.pop(), room)
            if offsets is not None:
                told, room = told + 1, room - offsets
            if told >= LAGS_TOLD_MAX or room <= 0:
                break

    def _tell_lag(self, key: str, room: int) -> int | None:
        """Report one group's progress; return count of offsets written, None without a report."""
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
        known_end, known = self._lags_told.get(key, (-1, {}))
        if not queues or (known_end == broker_offset and known == queues):
            return None
        if known.keys() - queues.keys():  # a topic that was deleted and is there again
            known = {queue_id: known[queue_id] for queue_id in known.keys() & queues.keys()}
        changed = [entry for entry in queues.items() if known.get(entry[0]) != entry[1]]
        self._keep(key, broker_offset, known, dict(changed[:room]))
        self._events.event(
            "consumer_lag",
            topic=topic,
            group=group,
            lag=broker_offset - consumer_offset,
            consumer_offset=consumer_offset,
            broker_offset=broker_offset,
            queues=len(queues),
            worst_queue=worst_queue,
            offsets=[number for entry in changed[:room] for number in entry],
            offsets_left=max(0, len(changed) - room),
        )
        return min(len(changed), room)

    def _keep(self, key: str, end: int, known: dict[int, int], told: dict[int, int]) -> None:
        """Remember what was reported of a group. A forgotten group is reported whole again."""
        is_full = self._offsets_kept >= _OFFSETS_KEPT_MAX
        if is_full or len(self._lags_told) >= _TOLD_KEPT_MAX:
            self._lags_told.clear()
            self._offsets_kept, known = 0, {}
        self._offsets_kept += len(told.keys() - known.keys())
        self._lags_told[key] = end, known | told
