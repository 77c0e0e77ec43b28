"""The transactions that are neither committed nor rolled back: the core of the checks.

Theory of operation. A transaction is known by its *origin*, the queue offset of its half message.
Each check appends a *copy* of the half message to the half queue, so the newest copy is what
counts, and the open transactions are in the order of their newest copies. Their first copy is the
*progress*: no record before it is needed any more, and a broker that becomes master reads the half
queue from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class HalfCopy(NamedTuple):
    """A record of the half queue: a half message, or a later copy of it."""

    origin: int
    """Queue offset of the half message itself."""
    queue_offset: int
    phy_offset: int
    end_offset: int
    """End of the record in the log, in bytes."""
    check_times: int
    """Number of checks so far."""
    born_ms: int
    due_ms: int
    """Time of the next check, on the wall clock."""


class CheckAction(Enum):
    """Next step for a half message whose check is due."""

    WAIT = "wait"
    """Readers may not see it yet: it may vanish with this master."""
    CHECK = "check"
    DISCARD = "discard"


def action_of(
    copy: HalfCopy, wall_ms: int, readable_offset: int, check_max: int, reserved_ms: int
) -> CheckAction:
    """Decide about a half message that is due. Each is checked once at least."""
    if copy.end_offset > readable_offset:
        return CheckAction.WAIT
    is_old = wall_ms - copy.born_ms > reserved_ms
    if copy.check_times and (copy.check_times >= check_max or is_old):
        return CheckAction.DISCARD
    return CheckAction.CHECK


class PendingTransactions:
    """The open transactions of one broker, by origin."""

    def __init__(self) -> None:
        self.end = 0
        """Queue offset behind the newest record."""
        # In the order of the newest copies: a copy goes to the end.
        self._copies: dict[int, HalfCopy] = {}
        # (due_ms, queue offset, origin); entries of finished or copied ones are left to lie.
        self._due: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._copies)

    def __iter__(self) -> Iterator[HalfCopy]:
        """Return the open transactions, the oldest copy first."""
        return iter(self._copies.values())

    def get(self, origin: int) -> HalfCopy | None:
        return self._copies.get(origin)

    def add(self, copy: HalfCopy) -> HalfCopy | None:
        """Add the next record of the half queue; return the copy that it replaces."""
        assert copy.queue_offset >= self.end, (copy.queue_offset, self.end)
        self.end = copy.queue_offset + 1
        older = self._copies.pop(copy.origin, None)
        self._copies[copy.origin] = copy
        self._push(copy)
        return older

    def postpone(self, copy: HalfCopy, due_ms: int) -> None:
        """Look at a copy again at `due_ms`."""
        later = copy._replace(due_ms=due_ms)
        self._copies[copy.origin] = later
        self._push(later)

    def finish(self, origin: int) -> None:
        """Note that a transaction is committed, rolled back or discarded."""
        self._copies.pop(origin, None)

    @property
    def next_due_ms(self) -> int | None:
        """Time of the next check, or None."""
        while self._due and not self._is_current(self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def take_due(self, wall_ms: int) -> HalfCopy | None:
        """Return a half message that is due; the caller copies, postpones or finishes it."""
        due_ms = self.next_due_ms
        if due_ms is None or due_ms > wall_ms:
            return None
        return self._copies[heappop(self._due)[2]]

    @property
    def oldest(self) -> HalfCopy | None:
        """The copy that holds the progress back."""
        return next(iter(self._copies.values()), None)

    @property
    def progress(self) -> int:
        """Queue offset from which on the half queue is needed."""
        oldest = self.oldest
        return self.end if oldest is None else oldest.queue_offset

    def _push(self, copy: HalfCopy) -> None:
        if len(self._due) > 2 * len(self._copies) + 1024:
            self._due = [one for one in self._due if self._is_current(one)]
            heapify(self._due)
        heappush(self._due, (copy.due_ms, copy.queue_offset, copy.origin))

    def _is_current(self, entry: tuple[int, int, int]) -> bool:
        due_ms, queue_offset, origin = entry
        copy = self._copies.get(origin)
        return copy is not None and copy.queue_offset == queue_offset and copy.due_ms == due_ms
