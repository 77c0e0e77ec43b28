"""Ordered pops of one queue (ConsumerOrderInfoManager.java).

Theory of operation. An ordered pop takes a *batch* from where the group's offset is, and the offset
stays there. Until every message of the batch is acknowledged or visible again, no other pop of the
group gets anything of the queue. The offset moves on over the acknowledged beginning of the batch.
A later pop that meets messages of the batch again tells the client how often they were delivered.

A pop with the attempt id of the batch is the same pop once more: its answer was lost. It gets the
batch again at once, and that does not count as a delivery. If it brings less than the batch, the
counts of the others are kept for later pops. RocketMQ tells them all in its answer; here the answer
has the counts of what it brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import attrs


class OrderKey(NamedTuple):
    """A queue that a group consumes in order."""

    topic: str
    group: str
    queue_id: int


@attrs.define(eq=False)
class OrderBatch:
    """The messages that one ordered pop took."""

    key: OrderKey
    attempt_id: str
    pop_time: int
    invisible_ms: int
    offsets: tuple[int, ...]
    """Queue offsets, ascending; at least one."""
    acked: int = 0
    """Bit i: `offsets[i]` is acknowledged."""
    visible_ms: dict[int, int] = attrs.field(factory=dict)
    """Offset -> wall clock from which on it is visible, where a client has changed that."""
    times: dict[int, int] = attrs.field(factory=dict)
    """Offset -> deliveries before this one, at least 1. The same attempt may have brought more
    messages before: their counts are kept."""

    @property
    def next_offset(self) -> int:
        """The group's offset: first message without an acknowledgement, or behind the last."""
        for i, offset in enumerate(self.offsets):
            if not self.acked >> i & 1:
                return offset
        return self.offsets[-1] + 1

    @property
    def is_done(self) -> bool:
        return self.acked == (1 << len(self.offsets)) - 1

    def blocked_until_ms(self, wall_ms: int, attempt_id: str) -> int | None:
        """Return when the queue is free for a pop with this attempt id; None if it is now."""
        if attempt_id and attempt_id == self.attempt_id:
            return None
        until_ms = max(
            (
                self.visible_ms.get(offset, self.pop_time + self.invisible_ms)
                for i, offset in enumerate(self.offsets)
                if not self.acked >> i & 1
            ),
            default=0,
        )
        return until_ms if until_ms > wall_ms else None

    def ack(self, offset: int) -> bool:
        """Acknowledge one message; return False if it is not one of the batch."""
        if offset not in self.offsets:
            return False
        self.acked |= 1 << self.offsets.index(offset)
        return True

    def follow(self, previous: OrderBatch | None) -> None:
        """Count the deliveries of messages that were in the previous batch of the queue as well."""
        if previous is None:
            return
        if self.attempt_id and self.attempt_id == previous.attempt_id:
            self.times = dict(previous.times)
            return
        self.times = {
            offset: previous.times.get(offset, 0) + 1
            for offset in self.offsets
            if offset in previous.offsets
        }

    @property
    def counts(self) -> Mapping[int, int]:
        """Offset -> deliveries before this one, of each message of the batch."""
        return {offset: self.times.get(offset, 0) for offset in self.offsets}
