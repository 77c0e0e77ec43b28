"""Messages per topic, and per group of a topic, in the last minute, hour and day (request 315).

Theory of operation. The ends of a topic's queues together count what was put into it, and a group's
progress counts what it has consumed. So nothing is counted on the way of a message: every ten
seconds the totals are compared with those of before. A total that stands still needs no new sample.

RocketMQ counts messages at each put and pull (BrokerStatsManager.java). A group's figure is of
what was pulled there, and of what was consumed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore

TOPIC_PUTS, GROUP_GETS = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"
SAMPLE_PERIOD_MS = 10_000
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_WINDOWS = {
    "statsMinute": (_MINUTE_MS, SAMPLE_PERIOD_MS),
    "statsHour": (_HOUR_MS, 10 * _MINUTE_MS),
    "statsDay": (_DAY_MS, _HOUR_MS),
}
"""Length of each window, and how far apart its samples are."""


class _Series:
    """One total, as it was at moments that each window needs."""

    def __init__(self, now_ms: int, total: int) -> None:
        self.total = total
        self._samples = {name: deque([(now_ms, total)]) for name in _WINDOWS}

    def add(self, now_ms: int, total: int) -> None:
        """Note the total of this moment."""
        self.total = total
        for name, (length_ms, period_ms) in _WINDOWS.items():
            samples = self._samples[name]
            at_ms, before = samples[-1]
            if total != before and now_ms - at_ms >= period_ms:
                samples.append((now_ms, total))
            while len(samples) > 1 and now_ms - samples[1][0] >= length_ms:
                samples.popleft()

    def risen(self, name: str, now_ms: int, total: int) -> int:
        """Return by how much the total has risen in the window that ends now."""
        begin_ms = now_ms - _WINDOWS[name][0]
        samples = self._samples[name]
        before = samples[0][1]
        for at_ms, value in samples:
            if at_ms > begin_ms:
                break
            before = value
        return max(0, total - before)


class TrafficStats:
    """The totals over time. `sample` is called every ten seconds or so."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, offsets: ConsumerOffsetTable
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._series: dict[tuple[str, str], _Series] = {}
        self._sampled_ms: int | None = None

    def sample(self, instant: Instant) -> None:
        """Compare every total with the one of before."""
        now_ms, before_ms = instant.now_ms, self._sampled_ms
        if before_ms is not None and now_ms - before_ms < SAMPLE_PERIOD_MS:
            return
        self._sampled_ms = now_ms
        totals = dict(self._totals())
        for gone in self._series.keys() - totals.keys():
            del self._series[gone]
        for key, total in totals.items():
            series = self._series.get(key)
            if series is None and before_ms is not None and key[0] == TOPIC_PUTS:
                # A new topic began empty. A new group may begin anywhere.
                series = self._series[key] = _Series(before_ms, 0)
            if series is None or total < series.total:  # created again, or set back
                series = self._series[key] = _Series(now_ms, total)
            series.add(now_ms, total)

    def figures(self, stats: str, key: str, instant: Instant) -> Mapping[str, object] | None:
        """Return the figures as Java's BrokerStatsData; None where there are none.

        `stats` is TOPIC_PUT_NUMS with a topic as `key`, or GROUP_GET_NUMS with ``topic@group``.
        """
        series = self._series.get((stats, key))
        if series is None:
            return None
        if stats == TOPIC_PUTS:
            total = self._put_total(key)
        else:
            total = sum(self._offsets.table.get(key, {}).values())
        figures: dict[str, object] = {}
        for name, (length_ms, _) in _WINDOWS.items():
            count = series.risen(name, instant.now_ms, total)
            figures[name] = {"avgpt": 1.0, "sum": count, "tps": count * 1000 / length_ms}
        return figures

    def _totals(self) -> Iterator[tuple[tuple[str, str], int]]:
        for topic in self._topics.topics:
            yield (TOPIC_PUTS, topic), self._put_total(topic)
        for key, queues in self._offsets.table.items():
            yield (GROUP_GETS, key), sum(queues.values())

    def _put_total(self, topic: str) -> int:
        config = self._topics.topics.get(topic)
        queues = 0 if config is None else config.write_queue_nums
        return sum(self._store.max_offset_in_queue(topic, queue) for queue in range(queues))
