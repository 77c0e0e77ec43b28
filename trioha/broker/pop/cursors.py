"""Offsets at which each group's next pop of each queue begins.

Theory of operation. A pop moves the *cursor* of its group in the queue at once, and appends a
checkpoint for what it took. The offset of the group follows when the checkpoint is on disk and held
by a slave: if a crash left the offset without the checkpoint, the messages between would be lost.
After a crash the checkpoints beyond the offset move the cursor on again, each one from where the
one before it had ended, so that no message is delivered twice.

In a DLEDGER group both are records of one log, and the offset follows at once.

If the group's offset is not the one committed here, an operator has set it, or the topic was
deleted: the cursor moves to it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

import attrs

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pop.order import OrderKey
from trioha.errors import CommandError
from trioha.store.interface import MessageStore

QueueKey = OrderKey


@attrs.define(eq=False)
class Cursor:
    """Progress of one group in one queue."""

    next_offset: int
    """Offset where the next pop begins."""
    logged: int
    """`next_offset` of the newest checkpoint, or the offset that the cursor began with."""
    committed: int
    """The group's offset when it was committed or read here last."""


class PopCursors:
    """The cursors of one master."""

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsetTable, *, by_quorum: bool
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._by_quorum = by_quorum
        self._cursors: dict[QueueKey, Cursor] = {}
        self._waiting: deque[tuple[int, QueueKey, Cursor, int]] = deque()
        """End of the log that must be safe, queue, its cursor, offset to commit."""

    @property
    def has_waiting(self) -> bool:
        """Offsets wait until their checkpoints are safe."""
        return bool(self._waiting)

    @property
    def safe_offset(self) -> int:
        """End of the log, in bytes, that is on disk and that readers may see."""
        return min(self._store.flushed_offset, self._store.readable_offset)

    def clear(self) -> None:
        self._cursors.clear()
        self._waiting.clear()

    def get(self, key: QueueKey) -> Cursor | None:
        """Return the cursor; None where an operator has set the group's offset since, or it is
        new."""
        cursor = self._cursors.get(key)
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        return cursor if cursor is not None and cursor.committed == committed else None

    def is_moved(self, key: QueueKey) -> bool:
        """Return whether a request has set the offset of a queue that has a cursor."""
        return key in self._cursors and self.get(key) is None

    def moved_keys(self) -> list[QueueKey]:
        """Return the queues of which a request has set the offset."""
        return [key for key in self._cursors if self.get(key) is None]

    def begin(self, key: QueueKey, offset: int) -> Cursor:
        """Make the cursor of a queue; `offset` becomes the group's if it has none.

        Errors: CommandError when the table of offsets is full.
        """
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        if committed < 0:
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
            committed = offset
        cursor = self._cursors[key] = Cursor(committed, committed, committed)
        return cursor

    def resume(self, key: QueueKey, next_offset: int) -> None:
        """Move the cursor to where the checkpoints of the log end, after a change of masters."""
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        if committed >= 0:
            cursor = self._cursors[key] = Cursor(next_offset, next_offset, committed)
            self._commit_later(key, cursor)

    def move(self, key: QueueKey, next_offset: int, *, is_logged: bool) -> None:
        """Move the cursor; `is_logged` when a checkpoint was appended that says so."""
        cursor = self._cursors[key]
        cursor.next_offset = next_offset
        if is_logged:
            cursor.logged = next_offset
        self._commit_later(key, cursor)

    def settle(self) -> None:
        """Commit the offsets whose checkpoints are safe by now."""
        waiting = self._waiting
        safe_offset = self.safe_offset
        while waiting and (self._by_quorum or waiting[0][0] <= safe_offset):
            _, key, cursor, offset = waiting.popleft()
            if self.get(key) is cursor:
                # A follower rejects it: then this broker is no master any more.
                with suppress(CommandError):
                    self._offsets.commit(key.group, key.topic, key.queue_id, offset)
                    cursor.committed = offset

    def _commit_later(self, key: QueueKey, cursor: Cursor) -> None:
        self._waiting.append((self._store.max_phy_offset, key, cursor, cursor.next_offset))
        if self._by_quorum:
            self.settle()
