"""Commits the progress in the half queue and the op queue, as offsets of CID_RMQ_SYS_TRANS.

Progress rests on what was appended later: op messages, committed messages, and copies of half
messages. A table of offsets that is ahead of them would lose a transaction, so progress is noted
first, together with the end of the log, and committed once everything below that end is on disk and
readers may see it: a slave or a majority holds it. A table that is behind only costs time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.transactions.queues import TransactionQueues
from trioha.broker.transactions.records import finished_offsets
from trioha.errors import CommandError
from trioha.store.interface import MessageStore
from trioha.wire.names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

INTERVAL_MS: Final = 5_000
"""Consumers commit as often."""
_OP_MESSAGES_MAX: Final = 2_048
"""Number read at a time, some 40 ms of work."""


class TransactionProgress:
    """Progress of one master; `due_ms` says when to call `advance`."""

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsetTable, queues: TransactionQueues
    ) -> None:
        self.due_ms: int | None = None
        self._store = store
        self._offsets = offsets
        self._queues = queues
        self._noted: tuple[int, int] | None = None
        """Progress in the half queue, and the end of the log that it rests on."""

    def forget(self) -> None:
        self.due_ms = self._noted = None

    def changed(self, wall_ms: int) -> None:
        """Note that a record of the half queue is not needed any more."""
        if self.due_ms is None:
            self.due_ms = wall_ms + INTERVAL_MS

    def advance(self, progress: int, wall_ms: int) -> None:
        """Commit what was noted a while ago, if it is safe, and note `progress`."""
        if self.due_ms is None or wall_ms < self.due_ms:
            return
        self.due_ms = None
        if self._noted is not None:
            noted, log_end = self._noted
            if min(self._store.flushed_offset, self._store.readable_offset) < log_end:
                self.changed(wall_ms)
                return
            self._noted = None
            self._commit(TRANS_HALF_TOPIC, noted)
        committed = self._offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0)
        if self._pass_op_messages(committed):
            self.changed(wall_ms)
        if progress > committed:
            self._noted = progress, self._store.max_phy_offset
            self.changed(wall_ms)

    def _pass_op_messages(self, progress: int) -> bool:
        """Move on over op messages of records before `progress`; True if more may follow."""
        begin, end = self._queues.spans()[1]
        offset = begin
        for record in self._queues.records(
            TRANS_OP_HALF_TOPIC, begin, min(end, begin + _OP_MESSAGES_MAX)
        ):
            if any(done >= progress for done in finished_offsets(record).offsets):
                break
            offset = record.queue_offset + 1
        if offset > begin:
            self._commit(TRANS_OP_HALF_TOPIC, offset)
        return offset == begin + _OP_MESSAGES_MAX

    def _commit(self, topic: str, offset: int) -> None:
        # Refused if the table of offsets is full: then the next master reads more.
        with suppress(CommandError):
            self._offsets.commit(TRANS_GROUP, topic, 0, offset)
