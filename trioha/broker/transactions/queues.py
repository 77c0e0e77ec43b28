"""Reads the half queue, the op queue, and the ends of the queues that commits go to.

Everything that was appended is read, whether or not readers may see it: the broker that asks is the
master, and decides about its own log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.store.interface import MessageStore
from trioha.wire.codes import SysFlag
from trioha.wire.names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from trioha.wire.record import Record, RecordError, decode_record, peek

_TOPICS: Final = (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
TAIL_ENTRIES: Final = 16
"""Messages at the end of a queue that are looked through for a commit without its op message. Of a
trioha broker it is the last; Java's broker may append others before the op message."""


class TransactionQueues:
    """The queues of transactions in one store."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetTable) -> None:
        self._store = store
        self._offsets = offsets

    def spans(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the offsets between which the half queue and the op queue have to be read.

        Progress beyond the end of a queue belongs to another log: then both are read from the
        start, since progress in the one says nothing without progress in the other.
        """
        ends = [self._store.appended_max_offset(topic, 0) for topic in _TOPICS]
        begins = [self._offsets.query(TRANS_GROUP, topic, 0) for topic in _TOPICS]
        if any(begin > end for begin, end in zip(begins, ends, strict=True)):
            begins = [0, 0]
        half, op = (
            (max(begin, self._store.min_offset_in_queue(topic, 0)), end)
            for topic, begin, end in zip(_TOPICS, begins, ends, strict=True)
        )
        return half, op

    def records(
        self, topic: str, begin: int, end: int, without: Collection[int] = ()
    ) -> Iterator[Record]:
        """Yield the records of queue 0 of a topic that can be read."""
        for offset in range(begin, end):
            if offset not in without:
                record = self.record_of(topic, 0, offset)
                if record is not None:
                    yield record

    def record_of(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """Return the record at an offset of a queue, or None."""
        entry = self._store.appended_entry(topic, queue_id, offset)
        return None if entry is None else self.record_at(entry[0])

    def record_at(self, phy_offset: int) -> Record | None:
        """Return the record at an offset of the log, or None."""
        view = self._store.appended_record(phy_offset)
        try:
            return None if view is None else decode_record(view)
        except RecordError:
            return None

    def commits_at_end(self, topic: str, queue_id: int) -> Iterator[int]:
        """Yield the offsets of half messages whose commits are the last of a queue."""
        end = self._store.appended_max_offset(topic, queue_id)
        for offset in range(max(0, end - TAIL_ENTRIES), end):
            entry = self._store.appended_entry(topic, queue_id, offset)
            view = None if entry is None else self._store.appended_record(entry[0])
            if view is not None:
                header = peek(view, 0)
                if header.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
                    yield header.prepared_offset
