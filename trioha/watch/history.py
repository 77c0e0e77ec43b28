"""Series of numbers for sparklines, rates and the time to catch up, while a viewer looks.

Series are bounded: fifteen minutes at one point a second. A node that did not answer adds no point,
so a line has a gap there, not a zero.
"""

from __future__ import annotations

from collections import deque

import attrs

from trioha.watch.catch_up import catch_up_s
from trioha.watch.condition import condition_of
from trioha.watch.rebalances import RebalanceHistory
from trioha.watch.snapshot import ClusterSnapshot

POINTS_MAX = 900
_RATE_WINDOW_MS = 5_000
_ETA_MIN_BYTES_PER_S = 1.0
_LAG_WINDOW_MS = 60_000
"""Window of the lag's rate, as in `trioha group describe`: brokers count by the minute."""


@attrs.define(eq=False)
class TimeSeries:
    """One number over time."""

    points: deque[tuple[int, float]] = attrs.field(factory=lambda: deque(maxlen=POINTS_MAX))
    """(wall ms, value), oldest first."""

    def add(self, wall_ms: int, value: float | None) -> None:
        """Add a point; None, or a point that is not later than the last, is left out."""
        if value is not None and (not self.points or wall_ms > self.points[-1][0]):
            self.points.append((wall_ms, value))

    def per_second(self, window_ms: int = _RATE_WINDOW_MS) -> float | None:
        """Return the change per second from the first point in the window to the newest."""
        if len(self.points) < 2:
            return None
        end_ms, end = self.points[-1]
        start_ms, start = self.points[-2]
        for wall_ms, value in reversed(self.points):
            if end_ms - wall_ms > window_ms:
                break
            start_ms, start = wall_ms, value
        return (end - start) * 1000 / (end_ms - start_ms) if end_ms > start_ms else None

    def last(self, count: int, step_ms: int, at_wall_ms: int) -> list[float | None]:
        """Return the newest value of each of the last `count` steps; None in an empty step."""
        values: list[float | None] = [None] * count
        start_ms = at_wall_ms - count * step_ms
        for wall_ms, value in reversed(self.points):
            if wall_ms <= start_ms:
                break
            index = min(count - 1, (wall_ms - start_ms - 1) // step_ms)
            if values[index] is None:
                values[index] = value
        return values


@attrs.define(eq=False)
class SumSeries:
    """A sum over queues. It begins anew when a queue comes or goes.

    Brokers answer one after the other: the sum over two of them is no growth over that of one.
    """

    sums: TimeSeries = attrs.field(factory=TimeSeries)
    _parts: object = None

    def add(self, wall_ms: int, total: int | None, parts: object) -> None:
        """Add the sum over `parts`, which name the queues in it."""
        if parts != self._parts:
            self._parts = parts
            self.sums.points.clear()
        self.sums.add(wall_ms, total)


@attrs.define(eq=False)
class ReplicaHistory:
    """Series of one node, and of its link if it is a slave."""

    end: TimeSeries = attrs.field(factory=TimeSeries)
    """max_phy_offset"""
    puts: TimeSeries = attrs.field(factory=TimeSeries)
    gets: TimeSeries = attrs.field(factory=TimeSeries)
    put_rate: TimeSeries = attrs.field(factory=TimeSeries)
    get_rate: TimeSeries = attrs.field(factory=TimeSeries)
    gap: TimeSeries = attrs.field(factory=TimeSeries)
    """Bytes of log that a slave lacks."""
    heard: TimeSeries = attrs.field(factory=TimeSeries)
    """Seconds since the other end's last message."""
    state: str = ""
    """Word of its condition; a change of it starts `since_ms` anew."""
    since_ms: int = 0
    since_is_known: bool = False
    """False until the first change seen: until then the condition is older than `since_ms`."""

    @property
    def eta_s(self) -> float | None:
        """Seconds until the gap is closed at the present rate; 0 if it is closed, None if never."""
        if not self.gap.points:
            return None
        gap = self.gap.points[-1][1]
        closing = -(self.gap.per_second() or 0.0)
        return catch_up_s(gap, closing if closing >= _ETA_MIN_BYTES_PER_S else None)


class History:
    """Series of every replica, by address, and of topics and groups while a viewer looks."""

    def __init__(self) -> None:
        self._replicas: dict[str, ReplicaHistory] = {}
        self._topics: dict[str, SumSeries] = {}
        self._lags: dict[str, SumSeries] = {}
        self._rebalances: dict[str, RebalanceHistory] = {}
        self._at_wall_ms: int | None = None
        # Tables that no new answer has changed are the same objects.
        self._queues_seen: object = None
        self._groups_seen: object = None

    def topic(self, name: str) -> TimeSeries:
        """Series of the sum of the ends of a topic's queues."""
        return _series(self._topics, name).sums

    def lag(self, group: str) -> TimeSeries:
        """Series of the count of messages that a group has not consumed."""
        return _series(self._lags, group).sums

    def rebalances(self, group: str) -> RebalanceHistory:
        """Return what was seen of a group's members and queues; empty until it looks."""
        found = self._rebalances.get(group)
        if found is None:
            found = self._rebalances[group] = RebalanceHistory(group)
        return found

    def lag_growth(self, group: str) -> float | None:
        """Return the messages per second by which a group's lag grew in the last minute."""
        return self.lag(group).per_second(_LAG_WINDOW_MS)

    def group_eta_s(self, group: str) -> float | None:
        """Return the seconds until a group has caught up at the pace of the last minute.

        0.0 if it has; None if the pace is not known, or if the lag does not shrink.
        """
        points, growth = self.lag(group).points, self.lag_growth(group)
        if not points:
            return None
        return catch_up_s(points[-1][1], None if growth is None else -growth)

    def of(self, address: str) -> ReplicaHistory:
        """Return the series of one replica; empty ones if nothing is known."""
        history = self._replicas.get(address)
        if history is None:
            history = self._replicas[address] = ReplicaHistory()
        return history

    def clear(self) -> None:
        """Drop all series, after a jump in a replay."""
        self._replicas.clear()
        self._topics.clear()
        self._lags.clear()
        self._rebalances.clear()
        self._queues_seen = self._groups_seen = None
        self._at_wall_ms = None

    def add(self, snapshot: ClusterSnapshot) -> None:
        """Add the numbers of a newer snapshot. An older one is left out."""
        if self._at_wall_ms is not None and snapshot.at_wall_ms <= self._at_wall_ms:
            return
        self._at_wall_ms = snapshot.at_wall_ms
        for replica in snapshot.replicas:
            history = self.of(replica.address)
            told_ms = replica.answer.wall_ms
            if told_ms is not None:
                history.end.add(told_ms, replica.max_phy_offset)
                _add_rate(history.puts, history.put_rate, told_ms, replica.put_total)
                _add_rate(history.gets, history.get_rate, told_ms, replica.get_total)
            history.gap.add(snapshot.at_wall_ms, replica.gap_bytes)
            history.heard.add(snapshot.at_wall_ms, replica.heard_age_s)
            state = condition_of(replica).word
            if history.state != state:
                history.since_is_known = bool(history.state)
                history.since_ms = snapshot.at_wall_ms
                history.state = state

    def add_topics(self, snapshot: ClusterSnapshot) -> None:
        """Add the ends of queues; slow, so only while a screen of topics is shown."""
        if snapshot.queues is self._queues_seen:
            return
        self._queues_seen = snapshot.queues
        for name, ends in snapshot.ends.items():
            _series(self._topics, name).add(ends.wall_ms, ends.total, ends.places)

    def add_groups(self, snapshot: ClusterSnapshot) -> None:
        """Add the lags of groups, while a screen of groups is shown."""
        if snapshot.groups is self._groups_seen:
            return
        self._groups_seen = snapshot.groups
        for name, group in snapshot.groups.items():
            _series(self._lags, name).add(group.told_ms, group.lag, group.places_hash)


def _series(table: dict[str, SumSeries], name: str) -> SumSeries:
    # Not setdefault(): that makes a series each time, to throw it away.
    series = table.get(name)
    if series is None:
        series = table[name] = SumSeries()
    return series


def _add_rate(totals: TimeSeries, rates: TimeSeries, wall_ms: int, total: int | None) -> None:
    before = totals.points[-1] if totals.points else None
    if total is None or (before is not None and wall_ms <= before[0]):
        return
    totals.add(wall_ms, total)
    if before is not None and total >= before[1]:
        # A counter that fell has started anew: that is no rate.
        rates.add(wall_ms, (total - before[1]) * 1000 / (wall_ms - before[0]))
