"""Traffic of the broker, its topics and groups in the last minute, hour and day (request 315).

Theory of operation. The ends of a topic's queues together count the messages put into it, and a
group's progress counts those that it has consumed. Bytes, and messages that consumers sent back,
are counted on their way, in tables that are given here. Every ten seconds the totals are compared
with those of before. A total that stands still needs no new sample.

RocketMQ counts at each put and pull (BrokerStatsManager.java). A group's messages are those pulled
there, and those consumed here. As there, bytes are known from the first traffic on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore

TOPIC_PUTS, TOPIC_BYTES = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GETS, GROUP_BYTES, SENT_BACK = "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"
BROKER_PUTS, BROKER_GETS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
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
        self,
        cluster: str,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsetTable,
        counted: Mapping[str, dict[str, int]],
    ) -> None:
        """`counted`: totals by topic or ``topic@group``, under the names of their figures."""
        self._cluster = cluster
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._counted = counted
        self._series: dict[tuple[str, str], _Series] = {}
        self._sampled_ms: int | None = None

    def sample(self, instant: Instant) -> None:
        """Compare every total with the one of before."""
        now_ms, before_ms = instant.now_ms, self._sampled_ms
        if before_ms is not None and now_ms - before_ms < SAMPLE_PERIOD_MS:
            return
        self._sampled_ms = now_ms
        self._forget_deleted()
        totals = dict(self._totals())
        for gone in self._series.keys() - totals.keys():
            del self._series[gone]
        for key, total in totals.items():
            series = self._series.get(key)
            if series is None and before_ms is not None and key[0] != GROUP_GETS:
                # A new topic began empty. The progress of a new group may begin anywhere.
                series = self._series[key] = _Series(before_ms, 0)
            if series is None or total < series.total:  # created again, or set back
                series = self._series[key] = _Series(now_ms, total)
            series.add(now_ms, total)

    def figures(self, stats: str, key: str, instant: Instant) -> Mapping[str, object] | None:
        """Return the figures as Java's BrokerStatsData; None where there are none.

        `key` is the cluster for a broker's figures, a topic, or ``topic@group``.
        """
        series = self._series.get((stats, key))
        if series is None:
            return None
        total = self._total(stats, key)
        figures: dict[str, object] = {}
        for name, (length_ms, _) in _WINDOWS.items():
            count = series.risen(name, instant.now_ms, total)
            figures[name] = {"avgpt": 1.0, "sum": count, "tps": count * 1000 / length_ms}
        return figures

    def _totals(self) -> Iterator[tuple[tuple[str, str], int]]:
        keys: dict[str, Iterable[str]] = {
            BROKER_PUTS: (self._cluster,),
            BROKER_GETS: (self._cluster,),
            TOPIC_PUTS: self._topics.topics,
            GROUP_GETS: self._offsets.table,
            **self._counted,
        }
        for stats, names in keys.items():
            for key in names:
                yield (stats, key), self._total(stats, key)

    def _total(self, stats: str, key: str) -> int:
        if stats == TOPIC_PUTS:
            config = self._topics.topics.get(key)
            queues = 0 if config is None else config.write_queue_nums
            return sum(self._store.max_offset_in_queue(key, queue) for queue in range(queues))
        if stats == GROUP_GETS:
            return sum(self._offsets.table.get(key, {}).values())
        if stats in self._counted:
            return self._counted[stats].get(key, 0)
        statistics = self._store.statistics()
        return statistics.put_total if stats == BROKER_PUTS else statistics.get_total

    def _forget_deleted(self) -> None:
        """Drop what was counted for topics and groups that are gone."""
        topics, groups = self._topics.topics, self._groups.groups
        for totals in self._counted.values():
            for key in list(totals):
                topic, _, group = key.partition("@")
                if topic not in topics or (group and group not in groups):
                    del totals[key]
