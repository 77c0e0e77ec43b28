"""Puts: one record, its consume queue entry, a note of its keys (DefaultMessageStore.putMessage).

This is the hot path of a master. It does one dictionary look-up, one checksum, one pack into the
mapped log and one into the mapped queue; everything else waits for `dispatch`.
"""

from __future__ import annotations

from collections.abc import Sequence

from trioha.errors import LocalProtocolError, StoreError
from trioha.store.commitlog import CommitLog
from trioha.store.consume_queue import ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues, is_storable
from trioha.store.dispatcher import Dispatcher
from trioha.store.index_files import IndexFiles
from trioha.store.interface import PutMessage, PutResult, PutStatus
from trioha.store.store_config import StoreConfig
from trioha.store.write_gate import WriteGate
from trioha.wire.codes import SysFlag
from trioha.wire.record import (
    BLANK_SIZE,
    FIXED_SIZE,
    PROPERTIES_BYTES_MAX,
    TOPIC_BYTES_MAX,
    RecordError,
)

_V6_BITS = SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6
_TRANSACTION_MASK = SysFlag.TRANSACTION_MASK
# Prepared and rolled back: in the log, but in no queue.
_UNQUEUED = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
_ROLLBACK = SysFlag.TRANSACTION_ROLLBACK
_EVERYTHING = 1 << 62


class Writer:
    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexFiles,
        dispatcher: Dispatcher,
        gate: WriteGate,
    ) -> None:
        self.put_total = 0
        self.put_bytes = 0
        self._config = config
        self._log = log
        self._queues = queues
        self._table = queues.table
        self._index = index
        self._dispatcher = dispatcher
        self._gate = gate

    def put_message(self, message: PutMessage, wall_ms: int) -> PutResult:
        """Append one message and make it readable.

        Errors: LocalProtocolError when the log ends inside a record (a slave's; truncate it first).
        """
        gate = self._gate
        if gate.refusal is not None and not gate.has_resumed(wall_ms):
            return PutResult(PutStatus.NOT_WRITABLE, reason=gate.refusal or "")
        queue = self._table.get((message.topic, message.queue_id))
        if queue is None:
            if not is_storable(message.topic, message.queue_id):
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="topic or queue id is illegal")
            queue = self._queues.find_or_make(message.topic, message.queue_id)
        dispatcher, log = self._dispatcher, self._log
        size = self._size_of(message, queue)
        if isinstance(size, str):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=size)
        if dispatcher.offset != log.end:
            self._catch_up()
        timestamp = dispatcher.store_timestamp
        if wall_ms > timestamp:
            timestamp = wall_ms
        transaction = message.sys_flag & _TRANSACTION_MASK
        try:
            if transaction in _UNQUEUED:
                index = 0
                offset = log.append(message, size, 0, timestamp)
            else:
                if not queue.has_room(1):
                    queue.make_room(1)
                index = queue.next_index
                offset = log.append(message, size, index, timestamp)
                self._enqueue(queue, message, offset, size, timestamp)
        except (StoreError, RecordError) as error:
            return self._refused(error, wall_ms)
        dispatcher.store_timestamp = timestamp
        dispatcher.offset = offset + size
        if message.keys and transaction != _ROLLBACK:
            self._index.note(offset, timestamp, message.topic, message.keys)
        self.put_total += 1
        self.put_bytes += size
        return PutResult(PutStatus.PUT_OK, offset, size, index, timestamp)

    def put_batch(self, messages: Sequence[PutMessage], wall_ms: int) -> list[PutResult]:
        """All of them in one segment, consecutive in the queue of the first, or none.

        Errors: LocalProtocolError as `put_message`.
        """
        gate = self._gate
        if gate.refusal is not None and not gate.has_resumed(wall_ms):
            return [PutResult(PutStatus.NOT_WRITABLE, reason=gate.refusal or "")] * len(messages)
        topic, queue_id = messages[0].topic, messages[0].queue_id
        illegal = ""
        sizes = []
        if not is_storable(topic, queue_id):
            illegal = "topic or queue id is illegal"
        else:
            queue = self._queues.find_or_make(topic, queue_id)
            for message in messages:
                size = self._size_of(message, queue)
                if isinstance(size, str):
                    illegal = size
                    break
                if message.topic != topic or message.queue_id != queue_id:
                    illegal = "a batch is of one queue"
                if message.sys_flag & _TRANSACTION_MASK:
                    illegal = "a batch has no transactions"
                sizes.append(size)
            if not illegal and sum(sizes) + BLANK_SIZE > self._config.segment_bytes:
                illegal = f"batch of {sum(sizes)} bytes is larger than a segment of the log"
        if illegal:
            return [PutResult(PutStatus.MESSAGE_ILLEGAL, reason=illegal)] * len(messages)
        dispatcher, log = self._dispatcher, self._log
        if dispatcher.offset != log.end:
            self._catch_up()
        timestamp = max(wall_ms, dispatcher.store_timestamp)
        try:
            queue.make_room(len(messages))
            index = queue.next_index
            offset = log.append_batch(messages, sizes, index, timestamp)
        except (StoreError, RecordError) as error:
            return [self._refused(error, wall_ms)] * len(messages)
        results = []
        for message, size in zip(messages, sizes, strict=True):
            results.append(PutResult(PutStatus.PUT_OK, offset, size, queue.next_index, timestamp))
            self._enqueue(queue, message, offset, size, timestamp)
            dispatcher.store_timestamp = timestamp
            dispatcher.offset = offset + size
            if message.keys:
                self._index.note(offset, timestamp, topic, message.keys)
            self.put_bytes += size
            offset += size
        self.put_total += len(messages)
        return results

    def _enqueue(
        self, queue: ConsumeQueue, message: PutMessage, offset: int, size: int, timestamp: int
    ) -> None:
        tags_code = message.tags_code
        if queue.is_schedule:
            # The delivery time counts from the store timestamp, which only we know.
            tags_code = self._dispatcher.delivery_time(message.properties, timestamp)
        queue.append(offset, size, tags_code)
        listener = self._dispatcher.listener
        if listener is not None:
            listener(queue.topic, queue.queue_id, queue.next_index, tags_code)

    def _size_of(self, message: PutMessage, queue: ConsumeQueue) -> int | str:
        """Bytes of the record, or why it cannot be one."""
        body_size = len(message.body)
        properties_size = len(message.properties)
        size = FIXED_SIZE + body_size + queue.topic_size + properties_size
        bits = message.sys_flag & _V6_BITS
        if bits:
            size += 24 if bits == _V6_BITS else 12
        if body_size > self._config.body_bytes_max:
            return f"body of {body_size} bytes is over maxMessageSize {self._config.body_bytes_max}"
        if properties_size > PROPERTIES_BYTES_MAX:
            return f"properties of {properties_size} bytes are over {PROPERTIES_BYTES_MAX}"
        if queue.topic_size > TOPIC_BYTES_MAX:
            return f"topic of {queue.topic_size} bytes is over {TOPIC_BYTES_MAX}"
        if size + BLANK_SIZE > self._config.segment_bytes:
            return f"record of {size} bytes is larger than a segment of the log"
        return size

    def _catch_up(self) -> None:
        self._dispatcher.run(_EVERYTHING)
        if self._dispatcher.offset != self._log.end:
            raise LocalProtocolError(
                f"the log ends at {self._log.end}, inside the record at {self._dispatcher.offset}: "
                "truncate it before writing"
            )

    def _refused(self, error: StoreError | RecordError, wall_ms: int) -> PutResult:
        if isinstance(error, RecordError):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        self._gate.failed(error, wall_ms)
        return PutResult(PutStatus.NOT_WRITABLE, reason=str(error))
