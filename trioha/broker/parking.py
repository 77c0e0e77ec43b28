"""Parked requests: what long polls for messages and pops have in common.

Theory of operation. A request that finds nothing is parked until something makes it due: a message,
its deadline, or a wake-up. Then it is run once more, and answered or parked again. RocketMQ sweeps
every five seconds; here `next_deadline_ms` is exact, and nothing is looked at before it is due.

A request that became due leaves the tables at once, so it is answered once, also if another message
or its deadline comes after. It stays in its channel's table until it is taken, so that a close
still drops it.

Beyond `Limits` and the node's budget `hold` returns False and the request is answered at once.
Deadlines lie in a heap; a request answered early leaves its entry there, and the heap is rebuilt
when more than half of the entries are of that kind.

A subclass keeps the table of what requests wait for: `PullHold` by queue, `PopHold` by topic and
group.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, NamedTuple, TypeVar

from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import TagFilter
from trioha.wire.remoting_command import RemotingCommand

_HEAP_SLACK: Final = 64


class Limits(NamedTuple):
    """Limits of one table."""

    parked_max: int = 65_536
    parked_per_channel_max: int = 8_192
    """A client parks one pull per queue that it owns."""
    bytes_max: int = 128 << 20
    """65,536 requests of 2 KiB; one that brings a subscription of its own may take more."""


LIMITS = Limits()


class ParkedRequest:
    """One request that waits, with what it needs to be run again."""

    def __init__(
        self,
        channel: Channel,
        request: RemotingCommand,
        topic: str,
        queue_id: int,
        tag_filter: TagFilter | None,
        deadline_ms: int,
        size: int,
    ) -> None:
        self.channel = channel
        self.request = request
        self.topic = topic
        self.queue_id = queue_id
        self.tag_filter = tag_filter
        self.deadline_ms = deadline_ms
        """Latest time to run the request again, on the monotonic clock."""
        self.size = size
        """Bytes of memory."""
        self.is_parked = False
        """True while the request is in the tables, neither due nor gone; only Parking sets it."""


P = TypeVar("P", bound=ParkedRequest)


class Parking(Generic[P]):
    """Requests that wait for a message or for their deadline."""

    def __init__(self, budget: TrafficBudget | None = None, limits: Limits = LIMITS) -> None:
        """`budget` is the node's; without one, the limits of this table are all there are."""
        self._parked_max, self._parked_per_channel_max, self._bytes_max = limits
        self._budget = budget or TrafficBudget(self._bytes_max)
        self._bytes = 0
        # Dictionaries as ordered sets: first parked, first answered.
        self._by_channel: dict[Channel, dict[P, None]] = {}
        self._due: dict[P, None] = {}
        self._heap: list[tuple[int, int, P]] = []
        self._serial = 0
        self._parked_count = 0

    def _file(self, parked: P) -> None:
        """Enter a request into the table of what it waits for."""
        raise NotImplementedError

    def _unfile(self, parked: P) -> None:
        """Remove a request from the table of what it waits for."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Requests that are parked and not yet due."""
        return self._parked_count

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` has something to do next, or None."""
        heap = self._heap
        while heap and not heap[0][2].is_parked:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def hold(self, parked: P) -> bool:
        """Park a request; False when there is no room and it must be answered at once."""
        if self._parked_count >= self._parked_max or not self._has_room(parked.size):
            return False
        of_channel = self._by_channel.get(parked.channel)
        if of_channel is None:
            self._by_channel[parked.channel] = {parked: None}
        elif len(of_channel) >= self._parked_per_channel_max:
            return False
        else:
            of_channel[parked] = None
        self._file(parked)
        parked.is_parked = True
        self._count(parked.size)
        self._parked_count += 1
        self._serial += 1
        heapq.heappush(self._heap, (parked.deadline_ms, self._serial, parked))
        if len(self._heap) > 2 * self._parked_count + _HEAP_SLACK:
            self._heap = [entry for entry in self._heap if entry[2].is_parked]
            heapq.heapify(self._heap)
        return True

    def reserve(self, size: int) -> bool:
        """Count an answer of so many bytes that waits; False when there is no room."""
        if not self._has_room(size):
            return False
        self._count(size)
        return True

    def release(self, size: int) -> None:
        """Note that an answer waits no more."""
        self._count(-size)

    def expire(self, now_ms: int) -> None:
        """Make due every request whose deadline has come."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            parked = heapq.heappop(heap)[2]
            if parked.is_parked:
                self._make_due(parked)

    def wake_all(self) -> None:
        """Make everything due: this broker is no master any more."""
        for _, _, parked in self._heap:
            if parked.is_parked:
                self._make_due(parked)

    def take_due(self) -> list[P]:
        """Hand over what is to be run again now, in the order it became due."""
        due = list(self._due)
        self._due.clear()
        for parked in due:
            of_channel = self._by_channel[parked.channel]
            del of_channel[parked]
            if not of_channel:
                del self._by_channel[parked.channel]
        return due

    def channel_closed(self, channel: Channel) -> None:
        """Forget the parked requests of a connection that ended."""
        for parked in self._by_channel.pop(channel, ()):
            if parked.is_parked:
                self._leave(parked)
            else:
                del self._due[parked]

    def _make_due(self, parked: P) -> None:
        self._leave(parked)
        self._due[parked] = None

    def _leave(self, parked: P) -> None:
        self._unfile(parked)
        parked.is_parked = False
        self._count(-parked.size)
        self._parked_count -= 1

    def _has_room(self, size: int) -> bool:
        return self._bytes + size <= self._bytes_max and self._budget.has_room(size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._budget.waiting_bytes += size
