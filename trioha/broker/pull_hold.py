"""Parked pulls: long polling (PullRequestHoldService.java).

Theory of operation. A pull that finds nothing new waits here under its (topic, queue). It becomes
due when a message is dispatched behind its offset whose tags code its filter takes, or at its
deadline; then it is pulled once more and answered with whatever that gives. RocketMQ sweeps every
five seconds; here `next_deadline_ms` is exact, and nothing is looked at before it is due.

`on_dispatch` runs once per message or batch that became readable, masters and slaves alike, so it
does one dictionary look-up when no pull waits for that queue. A pull that became due leaves the
tables at once, so it is answered once whatever comes after: another message, its deadline, its
connection's end.

Limits: `parked_max` pulls in all, `parked_per_channel_max` of one connection, `bytes_max` of memory
and the node's budget; beyond them `hold` refuses and the pull is answered at once. Deadlines lie in
a heap; a pull answered early leaves its place behind, and the heap is rebuilt when more than half
of it is such places.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import TagFilter
from trioha.wire.remoting_command import RemotingCommand

PARKED_MAX = 65_536
BYTES_MAX = 128 << 20
"""65,536 pulls of 2 KiB; one that brings a subscription of its own may take more."""
PARKED_PER_CHANNEL_MAX = 8_192  # a client parks one pull per queue it owns
_HEAP_SLACK = 64


class ParkedPull:
    """One pull that waits, with what it needs to be run again."""

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
        self.size = size
        """Bytes of memory."""
        self.channel = channel
        self.request = request
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        """It wants messages from here on."""
        self.tag_filter = tag_filter
        self.deadline_ms = deadline_ms
        self.is_parked = False
        """Kept by PullHold: in the tables, neither due nor gone."""


class PullHold:
    """Pulls that wait for a message or for their deadline."""

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
        # Dictionaries as ordered sets: first parked, first answered.
        self.by_queue: dict[tuple[str, int], dict[ParkedPull, None]] = {}
        """Parked pulls by queue; empty without any, so a caller may look before it calls."""
        self._by_channel: dict[Channel, dict[ParkedPull, None]] = {}
        self._due: dict[ParkedPull, None] = {}
        self._heap: list[tuple[int, int, ParkedPull]] = []
        self._serial = 0
        self._parked_count = 0

    def __len__(self) -> int:
        """Pulls that are parked and not yet due."""
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

    def hold(self, pull: ParkedPull) -> bool:
        """Park a pull; False when there is no room and it must be answered at once."""
        size = pull.size
        if (
            self._parked_count >= self._parked_max
            or self._bytes + size > self._bytes_max
            or not self._budget.has_room(size)
        ):
            return False
        channel_pulls = self._by_channel.get(pull.channel)
        if channel_pulls is None:
            self._by_channel[pull.channel] = {pull: None}
        elif len(channel_pulls) >= self._parked_per_channel_max:
            return False
        else:
            channel_pulls[pull] = None
        queue = (pull.topic, pull.queue_id)
        queue_pulls = self.by_queue.get(queue)
        if queue_pulls is None:
            self.by_queue[queue] = {pull: None}
        else:
            queue_pulls[pull] = None
        pull.is_parked = True
        self._bytes += size
        self._budget.waiting_bytes += size
        self._parked_count += 1
        self._serial += 1
        heapq.heappush(self._heap, (pull.deadline_ms, self._serial, pull))
        if len(self._heap) > 2 * self._parked_count + _HEAP_SLACK:
            self._heap = [entry for entry in self._heap if entry[2].is_parked]
            heapq.heapify(self._heap)
        return True

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

    def expire(self, now_ms: int) -> None:
        """Make due whose deadline has come."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            pull = heapq.heappop(heap)[2]
            if pull.is_parked:
                self._make_due(pull)

    def take_due(self) -> list[ParkedPull]:
        """Hand over what is to be pulled again now, in the order it became due."""
        due = list(self._due)
        self._due.clear()
        for pull in due:
            channel_pulls = self._by_channel[pull.channel]
            del channel_pulls[pull]
            if not channel_pulls:
                del self._by_channel[pull.channel]
        return due

    def channel_closed(self, channel: Channel) -> None:
        """Forget the parked pulls of a connection that ended."""
        for pull in self._by_channel.pop(channel, ()):
            if pull.is_parked:
                self._leave_queue(pull)
            else:
                del self._due[pull]

    def _make_due(self, pull: ParkedPull) -> None:
        self._leave_queue(pull)
        # It stays in its channel's table until it is taken, so that a close still drops it.
        self._due[pull] = None

    def _leave_queue(self, pull: ParkedPull) -> None:
        queue = (pull.topic, pull.queue_id)
        queue_pulls = self.by_queue[queue]
        del queue_pulls[pull]
        if not queue_pulls:
            del self.by_queue[queue]
        pull.is_parked = False
        self._bytes -= pull.size
        self._budget.waiting_bytes -= pull.size
        self._parked_count -= 1
