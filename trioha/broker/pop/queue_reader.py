"""Reads queues for pops: from where, how much, and where the next pop begins."""

from __future__ import annotations

import struct
from typing import Final

import attrs

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pop.cursors import QueueKey
from trioha.broker.pop.service import PopService
from trioha.broker.pull import BODY_BYTES_MAX, cut_to_frame
from trioha.remoting.channel import Instant
from trioha.store.interface import GetResult, GetStatus, MessageFilter, MessageStore
from trioha.wire.names import is_retry_topic

_MAX_MODE: Final = 1
_ROUNDS_MAX: Final = 4
"""Looks at one queue in one pop, if a filter takes none of the messages that it looked at."""
_RECORD_HEAD: Final = struct.Struct(">i16xq")  # total size, then the queue offset at byte 20
_PASSED_OVER: Final = frozenset(
    {
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.OFFSET_TOO_SMALL,
    }
)


@attrs.frozen
class FoundMessages:
    """Messages of one queue for a pop."""

    key: QueueKey
    offsets: tuple[int, ...] = ()
    buffers: list[memoryview] = attrs.Factory(list)
    size: int = 0
    next_offset: int = 0
    rest: int = 0
    """Messages from `next_offset` to the end."""
    is_unfinished: bool = False
    """The store stopped before the end, with nothing found yet."""
    on_disk: GetResult | None = None
    """Part of the queue or log that has to be read from disk first."""


@attrs.define(eq=False)
class QueueReader:
    """Reads for the pops of one broker."""

    _store: MessageStore
    _offsets: ConsumerOffsetTable
    _service: PopService

    def key(self, topic: str, group: str, queue_id: int) -> QueueKey:
        return QueueKey(topic, group, queue_id)

    def read(
        self,
        topic: str,
        group: str,
        queue_id: int,
        count_max: int,
        init_mode: int,
        message_filter: MessageFilter | None,
        in_memory_only: bool,
        instant: Instant,
    ) -> FoundMessages:
        """Find messages at the group's cursor, which moves over messages that the filter rejects.

        Errors: CommandError when the store rejects the record of that move.
        """
        key = QueueKey(topic, group, queue_id)
        begin = self.first_offset(key, init_mode)
        cursor = self._service.cursor(key, begin, instant)
        for _ in range(_ROUNDS_MAX):
            offset = cursor.next_offset
            result = self._store.get_message(
                topic, queue_id, offset, count_max, message_filter, in_memory_only
            )
            next_offset = self._next(key, result, offset)
            if result.status is GetStatus.FOUND:
                return _found(key, result)
            if result.status is GetStatus.NOT_IN_MEMORY:
                return FoundMessages(key, on_disk=result)
            if next_offset == offset:
                break
            self._service.pass_over(key, next_offset)
        rest = max(0, result.max_offset - cursor.next_offset)
        return FoundMessages(key, rest=rest, is_unfinished=rest > 0)

    def read_ordered(
        self,
        key: QueueKey,
        count_max: int,
        init_mode: int,
        message_filter: MessageFilter | None,
        in_memory_only: bool,
    ) -> FoundMessages:
        """Find messages at the group's offset, which moves over messages that the filter rejects.

        Errors: CommandError when the table of offsets takes nothing new.
        """
        offset = self._offsets.query(key.group, key.topic, key.queue_id)
        if offset < 0:
            offset = self.first_offset(key, init_mode)
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
        for _ in range(_ROUNDS_MAX):
            result = self._store.get_message(
                key.topic, key.queue_id, offset, count_max, message_filter, in_memory_only
            )
            next_offset = self._next(key, result, offset)
            if result.status is GetStatus.FOUND:
                found = _found(key, result)
                # The filter may have rejected messages before the first.
                self._offsets.commit(key.group, key.topic, key.queue_id, found.offsets[0])
                return found
            if result.status is GetStatus.NOT_IN_MEMORY:
                return FoundMessages(key, on_disk=result)
            if next_offset == offset:
                break
            offset = next_offset
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
        rest = max(0, result.max_offset - offset)
        return FoundMessages(key, rest=rest, is_unfinished=rest > 0)

    def peek(self, topic: str, group: str, queue_id: int, count_max: int) -> FoundMessages:
        """Find messages at the group's cursor; nothing changes."""
        key = QueueKey(topic, group, queue_id)
        offset = self._next_offset(key, 0)
        result = self._store.get_message(topic, queue_id, offset, count_max, None)
        if result.status is GetStatus.FOUND:
            return _found(key, result)
        return FoundMessages(key)

    def rest(self, topic: str, group: str, queue_id: int, init_mode: int) -> int:
        """Return the number of messages behind the group's cursor."""
        offset = self._next_offset(QueueKey(topic, group, queue_id), init_mode)
        return max(0, self._store.max_offset_in_queue(topic, queue_id) - offset)

    def first_offset(self, key: QueueKey, init_mode: int) -> int:
        """Return where a group begins that has no offset in a queue.

        With mode 1 (MAX) that is the last message, as in Java's broker; but the first one of a
        young queue, whose messages are all in memory.
        """
        store, topic, queue_id = self._store, key.topic, key.queue_id
        begin = max(0, store.min_offset_in_queue(topic, queue_id))
        if init_mode != _MAX_MODE or is_retry_topic(topic):
            return begin
        if begin == 0:
            entry = store.consume_queue_entry(topic, queue_id, 0)
            if entry is None or store.is_in_memory_window(entry[0]):
                return 0
        return max(begin, store.max_offset_in_queue(topic, queue_id) - 1)

    def _next_offset(self, key: QueueKey, init_mode: int) -> int:
        cursor = self._service.cursors.get(key)
        if cursor is not None:
            return cursor.next_offset
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        return self.first_offset(key, init_mode) if committed < 0 else committed

    def _next(self, key: QueueKey, result: GetResult, offset: int) -> int:
        if result.status in _PASSED_OVER:
            return max(0, result.next_begin_offset)
        if result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
            # Before a change of masters the group may have popped what readers cannot see yet.
            return min(offset, self._store.appended_max_offset(key.topic, key.queue_id))
        return offset


def _found(key: QueueKey, result: GetResult) -> FoundMessages:
    next_offset = result.next_begin_offset
    if result.size > BODY_BYTES_MAX:
        next_offset = cut_to_frame(result)
    offsets: list[int] = []
    size = 0
    for view in result.buffers:
        position = 0
        while position < len(view):
            record_size, queue_offset = _RECORD_HEAD.unpack_from(view, position)
            offsets.append(queue_offset)
            position += record_size
        size += len(view)
    return FoundMessages(
        key,
        tuple(offsets),
        result.buffers,
        size,
        next_offset,
        max(0, result.max_offset - next_offset),
    )
