"""Messages of one queue that one consumer holds, and the offset that it may commit.

Theory of operation (ProcessQueue.java). Messages enter in offset order and leave in any order. The
committable offset is the lowest one still here, or, when none is, the offset of the next pull:
everything below it has been handled or did not match. A queue taken from us is `dropped`: what is
still being handled finishes, but its progress is the business of the new owner.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.client.message import MessageQueue, ReceivedMessage


@attrs.frozen
class FlowLimits:
    """Limits of what one queue holds before its pulls pause. Java's: 1000 messages, 100 MiB."""

    messages_max: int = 1000
    bytes_max: int = 64 << 20


class ProcessQueue:
    """The messages of one queue that are handed out or wait to be."""

    def __init__(self, queue: MessageQueue, next_offset: int, limits: FlowLimits) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """The offset of the next pull."""
        self.dropped = False
        self._limits = limits
        # Insertion order is offset order, so the first key is the lowest.
        self._outstanding: dict[int, int] = {}
        self.bytes = 0
        """Size of the records that are handed out or wait to be."""
        self._committed = -1

    @property
    def has_room(self) -> bool:
        return (
            len(self._outstanding) < self._limits.messages_max
            and self.bytes < self._limits.bytes_max
        )

    @property
    def message_count(self) -> int:
        return len(self._outstanding)

    @property
    def commit_offset(self) -> int:
        """Offset below which all messages have been handled."""
        return next(iter(self._outstanding), self.next_offset)

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Take what a pull brought; the next one continues at `next_offset`."""
        outstanding = self._outstanding
        for message in messages:
            record = message.record
            outstanding[record.queue_offset] = record.size
            self.bytes += record.size
        self.next_offset = next_offset

    def remove(self, message: ReceivedMessage) -> None:
        """The message has been handled or handed back. Twice is as good as once."""
        self.bytes -= self._outstanding.pop(message.record.queue_offset, 0)

    def uncommitted(self) -> int | None:
        """The offset to commit, or None when the master has it already."""
        offset = self.commit_offset
        return offset if offset != self._committed else None

    def committed(self, offset: int) -> None:
        """Note that the master has this offset."""
        self._committed = offset

    def forget_committed(self) -> None:
        """Forget the committed offset: the master may have lost it."""
        self._committed = -1
