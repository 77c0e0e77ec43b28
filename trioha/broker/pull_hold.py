"""Parked pulls: long polling (PullRequestHoldService.java), on top of `trioha.broker.parking`.

A pull that finds nothing new waits here under its (topic, queue). It becomes due when a message is
dispatched behind its offset whose tags code its filter takes, or at its deadline; then it is pulled
once more and answered with whatever that gives.

`on_dispatch` runs once per message or batch that became readable, masters and slaves alike, so it
does one dictionary look-up when no pull waits for that queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from trioha.broker.parking import LIMITS, Limits, ParkedRequest, Parking
from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import TagFilter
from trioha.wire.remoting_command import RemotingCommand


class ParkedPull(ParkedRequest):
    """One pull that waits."""

    def __init__(
        self,
        channel: Channel,
        request: RemotingCommand,
        topic: str,
        queue_id: int,
        offset: int,
        tag_filter: TagFilter | None,
        deadline_ms: int,
        size: int = 0,
    ) -> None:
        super().__init__(channel, request, topic, queue_id, tag_filter, deadline_ms, size)
        self.offset = offset
        """Queue offset from which the pull wants messages."""


class PullHold(Parking[ParkedPull]):
    """Pulls that wait for a message or for their deadline."""

    def __init__(self, budget: TrafficBudget | None = None, limits: Limits = LIMITS) -> None:
        super().__init__(budget, limits)
        self.by_queue: dict[tuple[str, int], dict[ParkedPull, None]] = {}
        """Parked pulls by queue; empty without any, so a caller may look before it calls."""

    def on_dispatch(
        self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]
    ) -> None:
        """Messages in a row are readable; `max_offset` is the offset behind the last. HOT."""
        pulls = self.by_queue.get((topic, queue_id))
        if pulls is None:
            return
        first_offset = max_offset - len(tags_codes)
        for pull in [pull for pull in pulls if max_offset > pull.offset]:
            tag_filter = pull.tag_filter
            wanted = tags_codes[max(0, pull.offset - first_offset) :]
            if tag_filter is None or any(map(tag_filter, wanted)):
                self._make_due(pull)

    def _file(self, parked: ParkedPull) -> None:
        queue = (parked.topic, parked.queue_id)
        pulls = self.by_queue.get(queue)
        if pulls is None:
            self.by_queue[queue] = {parked: None}
        else:
            pulls[parked] = None

    def _unfile(self, parked: ParkedPull) -> None:
        queue = (parked.topic, parked.queue_id)
        pulls = self.by_queue[queue]
        del pulls[parked]
        if not pulls:
            del self.by_queue[queue]
