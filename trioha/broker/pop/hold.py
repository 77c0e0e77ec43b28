"""Parked pops and notifications (PopLongPollingService.java), on top of `trioha.broker.parking`.

Theory of operation. A pop that finds nothing waits here under the topics that it takes messages
from: the topic itself and the group's retry topics. Each message that becomes readable makes one
parked pop of each group due: the one that has waited longest among those that want the message. A
notification takes no message, so it does not count. A request that became due runs once more, and
parks again if another pop was quicker.

A pop is also looked at again when an ordered queue is free, or at once if the store stopped before
the end of what it had to filter: its `deadline_ms` is that time, if it is before `until_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from trioha.broker.parking import ParkedRequest, Parking
from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import TagFilter
from trioha.wire.remoting_command import RemotingCommand


class ParkedPop(ParkedRequest):
    """One pop or notification that waits. `queue_id` is -1 if it takes from all queues."""

    def __init__(
        self,
        channel: Channel,
        request: RemotingCommand,
        group: str,
        topic: str,
        retry_topics: tuple[str, str],
        queue_id: int,
        tag_filter: TagFilter | None,
        wake_ms: int,
        until_ms: int,
        size: int,
        is_notification: bool = False,
    ) -> None:
        """`wake_ms` is when to look again, `until_ms` when to answer, both at the latest."""
        super().__init__(
            channel, request, topic, queue_id, tag_filter, min(wake_ms, until_ms), size
        )
        self.group = group
        self.topics = (topic, *retry_topics)
        self.until_ms = until_ms
        self.is_notification = is_notification

    def wants(self, topic: str, queue_id: int, tags_codes: Sequence[int]) -> bool:
        if topic == self.topic and 0 <= self.queue_id != queue_id:
            return False
        return self.tag_filter is None or any(map(self.tag_filter, tags_codes))


class PopHold(Parking[ParkedPop]):
    """Pops and notifications that wait for a message or for their deadline."""

    def __init__(self, budget: TrafficBudget | None = None) -> None:
        super().__init__(budget)
        self.by_topic: dict[str, dict[str, dict[ParkedPop, None]]] = {}
        """Topic -> group -> parked; empty without any, so a caller may look before it calls."""

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """Return the number of parked pops of a group that take from a queue."""
        parked = self.by_topic.get(topic, {}).get(group, {})
        return sum(pop.queue_id in (queue_id, -1) for pop in parked if not pop.is_notification)

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

    def _file(self, parked: ParkedPop) -> None:
        for topic in parked.topics:
            self.by_topic.setdefault(topic, {}).setdefault(parked.group, {})[parked] = None

    def _unfile(self, parked: ParkedPop) -> None:
        for topic in parked.topics:
            groups = self.by_topic[topic]
            del groups[parked.group][parked]
            if not groups[parked.group]:
                del groups[parked.group]
                if not groups:
                    del self.by_topic[topic]
