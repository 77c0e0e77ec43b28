"""Parked pops and notifications: long polling for a group (PopLongPollingService.java).

Theory of operation. A pop that finds nothing waits here under the topics that it takes messages
from: the topic itself and the group's retry topic. Each message that becomes readable makes one
parked pop of each group due, the one that has waited longest and wants it; a notification takes
nothing, so it does not count. What became due is popped once more, and parks again if another pop
was quicker.

A pop is also looked at again at its `wake_ms`: when an ordered queue is free, or at once if the
store stopped before the end of what it had to filter. The rest is as in `trioha.broker.pull_hold`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import attrs

from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import TagFilter
from trioha.wire.remoting_command import RemotingCommand

PARKED_MAX = 65_536
PARKED_PER_CHANNEL_MAX = 8_192
BYTES_MAX = 128 << 20
_HEAP_SLACK = 64


@attrs.define(eq=False)
class ParkedPop:
    """One request that waits, with what it needs to be run again."""

    channel: Channel
    request: RemotingCommand
    group: str
    topic: str
    retry_topic: str
    queue_id: int
    """The queue of `topic` that it takes from; -1: all."""
    tag_filter: TagFilter | None
    wake_ms: int
    """When to look again at the latest, on the monotonic clock."""
    until_ms: int
    """When to answer at the latest."""
    size: int
    """Bytes of memory."""
    is_notification: bool = False
    is_parked: bool = False

    def wants(self, topic: str, queue_id: int, tags_codes: Sequence[int]) -> bool:
        if topic == self.topic and 0 <= self.queue_id != queue_id:
            return False
        return self.tag_filter is None or any(map(self.tag_filter, tags_codes))


class PopHold:
    """Requests that wait for a message or for their deadline."""

    def __init__(
        self,
        budget: TrafficBudget | None = None,
        *,
        parked_max: int = PARKED_MAX,
        parked_per_channel_max: int = PARKED_PER_CHANNEL_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`budget` is the node's; without one, the limits of this table are all there are."""
        self._budget = budget or TrafficBudget(bytes_max)
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parked_max = parked_max
        self._parked_per_channel_max = parked_per_channel_max
        self.by_topic: dict[str, dict[str, dict[ParkedPop, None]]] = {}
        """Topic -> group -> parked; empty without any, so a caller may look before it calls."""
        self._by_channel: dict[Channel, dict[ParkedPop, None]] = {}
        self._due: dict[ParkedPop, None] = {}
        self._heap: list[tuple[int, int, ParkedPop]] = []
        self._serial = 0
        self._parked_count = 0

    def __len__(self) -> int:
        """Requests that are parked and not yet due."""
        return self._parked_count

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do next."""
        heap = self._heap
        while heap and not heap[0][2].is_parked:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """Return the number of parked pops of a group that take from a queue."""
        parked = self.by_topic.get(topic, {}).get(group, {})
        return sum(pop.queue_id in (queue_id, -1) for pop in parked if not pop.is_notification)

    def hold(self, pop: ParkedPop) -> bool:
        """Park a request; False when there is no room and it must be answered at once."""
        if (
            self._parked_count >= self._parked_max
            or self._bytes + pop.size > self._bytes_max
            or not self._budget.has_room(pop.size)
        ):
            return False
        of_channel = self._by_channel.get(pop.channel)
        if of_channel is None:
            self._by_channel[pop.channel] = {pop: None}
        elif len(of_channel) >= self._parked_per_channel_max:
            return False
        else:
            of_channel[pop] = None
        for topic in (pop.topic, pop.retry_topic):
            self.by_topic.setdefault(topic, {}).setdefault(pop.group, {})[pop] = None
        pop.is_parked = True
        self._bytes += pop.size
        self._budget.waiting_bytes += pop.size
        self._parked_count += 1
        self._serial += 1
        heapq.heappush(self._heap, (min(pop.wake_ms, pop.until_ms), self._serial, pop))
        if len(self._heap) > 2 * self._parked_count + _HEAP_SLACK:
            self._heap = [entry for entry in self._heap if entry[2].is_parked]
            heapq.heapify(self._heap)
        return True

    def reserve(self, size: int) -> bool:
        """Count an answer of so many bytes that waits; False when there is no room."""
        if self._bytes + size > self._bytes_max or not self._budget.has_room(size):
            return False
        self._bytes += size
        self._budget.waiting_bytes += size
        return True

    def release(self, size: int) -> None:
        """Note that an answer waits no more."""
        self._bytes -= size
        self._budget.waiting_bytes -= size

    def on_dispatch(self, topic: str, queue_id: int, tags_codes: Sequence[int]) -> None:
        """Messages of a queue are readable. HOT."""
        groups = self.by_topic.get(topic)
        if groups is None:
            return
        for parked in list(groups.values()):
            found: list[ParkedPop] = []
            room = len(tags_codes)
            for pop in parked:
                if pop.wants(topic, queue_id, tags_codes):
                    found.append(pop)
                    room -= not pop.is_notification
                    if room <= 0:
                        break
            for pop in found:
                self._make_due(pop)

    def wake(self, group: str, topic: str, queue_id: int) -> None:
        """Make the group's longest parked pop due: an ordered queue is free."""
        for pop in self.by_topic.get(topic, {}).get(group, {}):
            if pop.queue_id in (-1, queue_id):
                self._make_due(pop)
                return

    def wake_all(self) -> None:
        """Make everything due: this broker is no master any more."""
        for _, _, pop in self._heap:
            if pop.is_parked:
                self._make_due(pop)

    def expire(self, now_ms: int) -> None:
        """Make due whose time has come."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            pop = heapq.heappop(heap)[2]
            if pop.is_parked:
                self._make_due(pop)

    def take_due(self) -> list[ParkedPop]:
        """Hand over what is to be popped again now, in the order it became due."""
        due = list(self._due)
        self._due.clear()
        for pop in due:
            of_channel = self._by_channel[pop.channel]
            del of_channel[pop]
            if not of_channel:
                del self._by_channel[pop.channel]
        return due

    def channel_closed(self, channel: Channel) -> None:
        """Forget the parked requests of a connection that ended."""
        for pop in self._by_channel.pop(channel, ()):
            if pop.is_parked:
                self._leave(pop)
            else:
                del self._due[pop]

    def _make_due(self, pop: ParkedPop) -> None:
        self._leave(pop)
        # It stays in its channel's table until it is taken, so that a close still drops it.
        self._due[pop] = None

    def _leave(self, pop: ParkedPop) -> None:
        for topic in (pop.topic, pop.retry_topic):
            groups = self.by_topic[topic]
            del groups[pop.group][pop]
            if not groups[pop.group]:
                del groups[pop.group]
                if not groups:
                    del self.by_topic[topic]
        pop.is_parked = False
        self._bytes -= pop.size
        self._budget.waiting_bytes -= pop.size
        self._parked_count -= 1
