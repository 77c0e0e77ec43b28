"""Popped messages that no client has acknowledged yet, and when they become visible again.

Theory of operation (PopCheckPoint.java, PopReviveService.java). Each pop from a queue makes a
*checkpoint*: the queue offsets that a client received, when, and for how long they are invisible to
the other clients of the group. An acknowledgement names the checkpoint and one offset. When the
invisible time is over, the offsets without an acknowledgement are delivered again; until then, none
of them is, and an acknowledged offset never is.

A checkpoint is *live* until all of its offsets are acknowledged or the broker has put the rest into
the retry topic. A client that changes the invisible time of one message gets a checkpoint of its
own for it, and the offset counts as acknowledged in the old one.

Finished checkpoints are remembered for a while, so that a repeated acknowledgement is a success.

The table does no I/O. `next_due_ms` says when `take_due` has something.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import attrs

CHECKPOINTS_MAX: Final = 100_000
"""Live checkpoints of one broker, some 60 MB. A broker that takes over reads all of them first."""
MESSAGES_MAX: Final = 32
"""Messages of one checkpoint: Java keeps the acknowledgements in the bits of an int."""
_FINISHED_MAX: Final = 16_384
_HEAP_SLACK: Final = 64


class CheckpointKey(NamedTuple):
    """Identity of a checkpoint; a client's handle names the same five values."""

    topic: str
    """The topic that was popped from: the retry topic for what was delivered before."""
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    """Milliseconds since 1970."""


@attrs.define(eq=False)
class PopCheckpoint:
    """The messages that one pop took from one queue."""

    key: CheckpointKey
    invisible_ms: int
    offsets: tuple[int, ...]
    """Queue offsets, ascending."""
    acked: int = 0
    """Bit i: `offsets[i]` is acknowledged."""
    cursor_before: int = -1
    """Offset where the group's next pop would have begun; -1 if this one did not move it."""
    next_offset: int = -1
    """Offset where the group's next pop begins."""
    due_ms: int = 0
    """Wall clock at which the rest becomes visible."""
    revived: set[int] = attrs.field(factory=set)
    """Offsets that the retry topic or another checkpoint has: handles of this one are stale for
    them."""

    def __attrs_post_init__(self) -> None:
        self.due_ms = self.due_ms or self.key.pop_time + self.invisible_ms

    @property
    def is_done(self) -> bool:
        return self.acked == (1 << len(self.offsets)) - 1

    @property
    def open_offsets(self) -> list[int]:
        """Offsets without an acknowledgement."""
        return [offset for i, offset in enumerate(self.offsets) if not self.acked >> i & 1]

    def mark(self, offset: int) -> bool | None:
        """Acknowledge one offset; return False if it already was, None if it is none of these."""
        try:
            bit = 1 << self.offsets.index(offset)
        except ValueError:
            return None
        if self.acked & bit:
            return False
        self.acked |= bit
        return True


class AckOutcome(Enum):
    """Outcome of one acknowledgement."""

    TAKEN = "taken"
    REPEATED = "repeated"
    """The message was acknowledged before."""
    UNKNOWN = "unknown"
    """The handle is stale, forged or another group's: nothing has changed."""


class InFlight:
    """The live checkpoints of one broker."""

    def __init__(self, *, checkpoints_max: int = CHECKPOINTS_MAX) -> None:
        self._checkpoints_max = checkpoints_max
        self._live: dict[CheckpointKey, PopCheckpoint] = {}
        self._finished: dict[CheckpointKey, tuple[int, ...]] = {}
        self._heap: list[tuple[int, int, PopCheckpoint]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[PopCheckpoint]:
        return iter(self._live.values())

    @property
    def is_full(self) -> bool:
        return len(self._live) >= self._checkpoints_max

    @property
    def next_due_ms(self) -> int | None:
        """Wall clock at which `take_due` has something, or None."""
        heap = self._heap
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def find(self, key: CheckpointKey) -> PopCheckpoint | None:
        return self._live.get(key)

    def is_known(self, key: CheckpointKey) -> bool:
        """Return whether the key names a live checkpoint or one that was finished lately."""
        return key in self._live or key in self._finished

    def add(self, checkpoint: PopCheckpoint) -> None:
        """Add a checkpoint, or replace the one with its key."""
        if checkpoint.is_done:
            self.finish(checkpoint)
            return
        self._live[checkpoint.key] = checkpoint
        self._push(checkpoint)

    def look_up(self, key: CheckpointKey, offset: int) -> AckOutcome:
        """Return what `ack` would return; nothing changes."""
        checkpoint = self._live.get(key)
        if checkpoint is None:
            known = self._finished.get(key, ())
            return AckOutcome.REPEATED if offset in known else AckOutcome.UNKNOWN
        if offset not in checkpoint.offsets or offset in checkpoint.revived:
            return AckOutcome.UNKNOWN
        is_open = not checkpoint.acked >> checkpoint.offsets.index(offset) & 1
        return AckOutcome.TAKEN if is_open else AckOutcome.REPEATED

    def ack(self, key: CheckpointKey, offset: int) -> AckOutcome:
        """Acknowledge one message: it is not delivered again."""
        outcome = self.look_up(key, offset)
        if outcome is AckOutcome.TAKEN:
            checkpoint = self._live[key]
            checkpoint.mark(offset)
            if checkpoint.is_done:
                self.finish(checkpoint)
        return outcome

    def moved(self, key: CheckpointKey, offset: int) -> None:
        """Note that an acknowledged message has a checkpoint of its own now."""
        checkpoint = self._live.get(key)
        if checkpoint is not None:
            checkpoint.revived.add(offset)
        else:
            self._finished[key] = tuple(one for one in self._finished[key] if one != offset)

    def finish(self, checkpoint: PopCheckpoint) -> None:
        """Remove a checkpoint: its messages are acknowledged or in the retry topic."""
        key = checkpoint.key
        self._live.pop(key, None)
        finished = self._finished
        finished[key] = tuple(
            offset
            for i, offset in enumerate(checkpoint.offsets)
            if checkpoint.acked >> i & 1 and offset not in checkpoint.revived
        )
        if len(finished) > _FINISHED_MAX:
            del finished[next(iter(finished))]

    def take_due(self, wall_ms: int) -> PopCheckpoint | None:
        """Return a checkpoint whose time is over; `finish` or `postpone` it next."""
        due_ms = self.next_due_ms
        if due_ms is None or due_ms > wall_ms:
            return None
        return heapq.heappop(self._heap)[2]

    def postpone(self, checkpoint: PopCheckpoint, due_ms: int) -> None:
        """Look at a checkpoint again later: the store has rejected what is to be redelivered."""
        checkpoint.due_ms = due_ms
        self._push(checkpoint)

    def forget_queues(self, topic: str, group: str) -> list[PopCheckpoint]:
        """Remove and return the checkpoints of a group in a topic that was deleted."""
        gone = [one for key, one in self._live.items() if key[:2] == (topic, group)]
        for checkpoint in gone:
            del self._live[checkpoint.key]
        return gone

    def _push(self, checkpoint: PopCheckpoint) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (checkpoint.due_ms, self._serial, checkpoint))
        if len(self._heap) > 2 * len(self._live) + _HEAP_SLACK:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _is_current(self, entry: tuple[int, int, PopCheckpoint]) -> bool:
        due_ms, _, checkpoint = entry
        return self._live.get(checkpoint.key) is checkpoint and checkpoint.due_ms == due_ms
