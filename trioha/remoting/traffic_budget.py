"""The bytes that one node keeps for its peers: one budget over all connections.

Three things count: frames of which a part has arrived, requests that wait, and answers that a peer
has not read. Each has limits of its own besides. When the budget is used up, new large frames and
new waiting requests are rejected with SYSTEM_BUSY, and a peer that does not read loses its
connection. Nothing that is stored or acknowledged depends on it: a frame is judged before its body
is read. Log bytes between nodes do not wait for it (`RemotingConnection.is_replication`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.define(eq=False)
class TrafficBudget:
    """The counts of one node."""

    bytes_max: int
    frames_bytes: int = 0
    """Sizes of the frames of which a part has arrived, or a part is done."""
    waiting_bytes: int = 0
    """Requests that wait: parked, held pulls, questions without proof, forwarded ones."""
    unsent_bytes: int = 0
    """Answers that the kernel has not taken."""
    rejected_count: int = 0
    """Frames and requests that were rejected for want of room."""
    too_large_count: int = 0
    """Frames that were rejected because their body exceeds the limit of their request code."""

    @property
    def used_bytes(self) -> int:
        return self.frames_bytes + self.waiting_bytes + self.unsent_bytes

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more may be kept; count a rejection if not."""
        if self.used_bytes + size <= self.bytes_max:
            return True
        self.rejected_count += 1
        return False


@attrs.frozen
class FrameLimits:
    """Limits of the frames that one node reads."""

    body_bytes: Mapping[int, int]
    """Limit of the body by request code (`trioha.security.requirements.body_limits`)."""
    budget: TrafficBudget
