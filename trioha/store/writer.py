"""Puts: one record, its consume queue entry, a note of its keys (DefaultMessageStore.putMessage).

This is the hot path of a master. It does one dictionary look-up, one checksum, one pack into the
mapped log and one into the mapped queue; everything else waits for `dispatch`.
"""

from __future__ import annotations

from typing import Final

from trioha.errors import LocalProtocolError, StoreError
from trioha.store.commitlog import CommitLog
from trioha.store.consume_queue import ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues, is_storable
from trioha.store.dispatcher import Dispatcher
from trioha.store.index_files import IndexFiles
from trioha.store.put_values import PutBatch, PutMessage, PutResult, PutStatus
from trioha.store.record_bytes import V6_BITS, batch_bytes, record_bytes
from trioha.store.store_config import StoreConfig
from trioha.store.write_gate import WriteGate
from trioha.wire.codes import SysFlag
from trioha.wire.record import (
    BLANK_SIZE,
    PROPERTIES_BYTES_MAX,
    TOPIC_BYTES_MAX,
    RecordError,
)

# Looking a member up in its enum costs more than the comparison it is for.
_TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_MASK)
# Prepared and rolled back: in the log, but in no queue.
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_PUT_OK: Final = PutStatus.PUT_OK
_MESSAGE_ILLEGAL: Final = PutStatus.MESSAGE_ILLEGAL
_NOT_WRITABLE: Final = PutStatus.NOT_WRITABLE
_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX
_EVERYTHING: Final = 1 << 62


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
        self._log = log
        self._queues = queues
        self._table = queues.table
        self._index = index
        self._dispatcher = dispatcher
        self._gate = gate
        self._body_bytes_max = config.body_bytes_max
        self._record_bytes_max = min(config.segment_bytes - BLANK_SIZE, config.append_bytes_max)

    def put_message(self, message: PutMessage, wall_ms: int) -> PutResult:
        """Append one message and make it readable.

        Errors: LocalProtocolError when the log ends inside a record (a slave's; truncate it first).
        """
        gate = self._gate
        if gate.refusal is not None and not gate.has_resumed(wall_ms):
            return PutResult(_NOT_WRITABLE, reason=gate.refusal or "")
        queue = self._table.get((message.topic, message.queue_id))
        if queue is None:
            if not is_storable(message.topic, message.queue_id):
                return _illegal("topic or queue id is illegal")
            queue = self._queues.find_or_make(message.topic, message.queue_id)
        dispatcher, log = self._dispatcher, self._log
        body_size = len(message.body)
        properties_size = len(message.properties)
        size = queue.record_bytes_min + body_size + properties_size
        sys_flag = message.sys_flag
        if sys_flag & V6_BITS:
            size += _host_bytes_more(sys_flag)
        if (
            body_size > self._body_bytes_max
            or properties_size > _PROPERTIES_BYTES_MAX
            or queue.topic_size > TOPIC_BYTES_MAX
            or size > self._record_bytes_max
        ):
            return _illegal(self._excess(body_size, properties_size, size, queue))
        if dispatcher.offset != log.end:
            self._catch_up()
        timestamp = dispatcher.store_timestamp
        if wall_ms > timestamp:
            timestamp = wall_ms
        transaction = sys_flag & _TRANSACTION_MASK
        is_queued = transaction not in (_PREPARED, _ROLLBACK)
        index = queue.next_index if is_queued else 0
        try:
            if is_queued and not queue.has_room(1):
                queue.make_room(1)
            offset = log.room_for(size)
            log.append(record_bytes(message, queue.topic_field, size, index, offset, timestamp))
        except (StoreError, RecordError) as error:
            return self._refused(error, wall_ms)
        if is_queued:
            tags_code = message.tags_code
            if queue.is_schedule:
                # The delivery time may count from the store timestamp, which only we know.
                tags_code = dispatcher.delivery_time(queue.topic, message.properties, timestamp)
            queue.append(offset, size, tags_code)
            listener = dispatcher.listener
            if listener is not None:
                listener(queue.topic, queue.queue_id, index + 1, (tags_code,))
        dispatcher.store_timestamp = timestamp
        dispatcher.offset = offset + size
        if transaction != _ROLLBACK:
            for key in message.keys:
                self._index.note(offset, timestamp, queue.topic, key)
        self.put_total += 1
        self.put_bytes += size
        return PutResult(_PUT_OK, offset, size, index, timestamp)

    def put_batch(self, batch: PutBatch, wall_ms: int) -> PutResult:
        """All of them in one segment, consecutive in their queue, or none.

        Errors: LocalProtocolError as `put_message`.
        """
        gate = self._gate
        if gate.refusal is not None and not gate.has_resumed(wall_ms):
            return PutResult(_NOT_WRITABLE, reason=gate.refusal or "")
        topic, queue_id = batch.topic, batch.queue_id
        if not is_storable(topic, queue_id):
            return _illegal("topic or queue id is illegal")
        if batch.sys_flag & _TRANSACTION_MASK:
            return _illegal("a batch has no transactions")
        queue = self._queues.find_or_make(topic, queue_id)
        dispatcher, log = self._dispatcher, self._log
        if dispatcher.offset != log.end:
            self._catch_up()
        timestamp = max(wall_ms, dispatcher.store_timestamp)
        size_min = queue.record_bytes_min + _host_bytes_more(batch.sys_flag)
        count = total = 0
        for _, body, properties, _, _ in batch.entries:
            body_size = len(body)
            properties_size = len(properties)
            size = size_min + body_size + properties_size
            if (
                body_size > self._body_bytes_max
                or properties_size > _PROPERTIES_BYTES_MAX
                or queue.topic_size > TOPIC_BYTES_MAX
            ):
                return _illegal(self._excess(body_size, properties_size, size, queue))
            count += 1
            total += size
        if total > self._record_bytes_max:
            return _illegal(
                f"batch of {total} bytes is larger than the {self._record_bytes_max} that the log "
                "takes at once"
            )
        if queue.is_schedule:
            codes = [
                dispatcher.delivery_time(topic, entry[2], timestamp) for entry in batch.entries
            ]
        else:
            codes = [entry[3] for entry in batch.entries]
        index = queue.next_index
        try:
            if not queue.has_room(count):
                queue.make_room(count)
            offset = log.room_for(total)
            made = batch_bytes(batch, queue.topic_field, size_min, codes, offset, index, timestamp)
            log.append(made.records)
        except (StoreError, RecordError) as error:
            return self._refused(error, wall_ms)
        queue.append_all(made.entries, offset + total)
        listener = dispatcher.listener
        if listener is not None:
            listener(topic, queue_id, queue.next_index, codes)
        dispatcher.store_timestamp = timestamp
        dispatcher.offset = offset + total
        self._index.note_all(made.keyed)
        self.put_total += count
        self.put_bytes += total
        return PutResult(_PUT_OK, offset, total, index, timestamp, "", made.phy_offsets)

    def _excess(self, body_size: int, properties_size: int, size: int, queue: ConsumeQueue) -> str:
        """Return why a message of these sizes cannot be a record."""
        if body_size > self._body_bytes_max:
            return f"body of {body_size} bytes is over maxMessageSize {self._body_bytes_max}"
        if properties_size > _PROPERTIES_BYTES_MAX:
            return f"properties of {properties_size} bytes are over {PROPERTIES_BYTES_MAX}"
        if queue.topic_size > TOPIC_BYTES_MAX:
            return f"topic of {queue.topic_size} bytes is over {TOPIC_BYTES_MAX}"
        return (
            f"record of {size} bytes is larger than the {self._record_bytes_max} that the log "
            "takes at once"
        )

    def _catch_up(self) -> None:
        self._dispatcher.run(_EVERYTHING)
        if self._dispatcher.offset != self._log.end:
            raise LocalProtocolError(
                f"the log ends at {self._log.end}, inside the record at {self._dispatcher.offset}: "
                "truncate it before writing"
            )

    def _refused(self, error: StoreError | RecordError, wall_ms: int) -> PutResult:
        if isinstance(error, RecordError):
            return _illegal(str(error))
        self._gate.failed(error, wall_ms)
        return PutResult(_NOT_WRITABLE, reason=str(error))


def _illegal(reason: str) -> PutResult:
    return PutResult(_MESSAGE_ILLEGAL, reason=reason)


def _host_bytes_more(sys_flag: int) -> int:
    """Return the number of bytes that IPv6 hosts add to a record."""
    bits = sys_flag & V6_BITS
    if not bits:
        return 0
    return 24 if bits == V6_BITS else 12
