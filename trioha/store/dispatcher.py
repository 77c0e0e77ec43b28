"""Reads on in the log and brings consume queues and index up to it (ReputMessageService).

On a master a put does this itself, message by message; here come the bytes that arrive from a
master, and those that recovery found. A record whose end has not arrived yet simply waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)

from trioha.errors import CommitLogCorrupted
from trioha.store.commitlog import CommitLog
from trioha.store.consume_queue import ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues, QueueKey, is_storable
from trioha.store.index_file import Keyed
from trioha.store.index_files import IndexFiles, keys_of
from trioha.store.interface import DispatchListener
from trioha.store.mapped_file import MappedFile
from trioha.store.record_scan import resynchronise
from trioha.store.store_config import StoreConfig
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import string_hash
from trioha.wire.names import RAFT_TOPICS, TIMER_TOPIC
from trioha.wire.properties import Property, decode_properties
from trioha.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIXED_SIZE,
    MAGIC,
    PRELUDE,
    DispatchFields,
    RecordError,
    dispatch_fields,
)
from trioha.wire.timers import timer_code
from trioha.wire.unique_id import PROPERTY_END, id_place

# Looking a member up in its enum costs more than the comparison it is for.
_TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_MASK)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_SPECIAL_BITS: Final = _TRANSACTION_MASK | int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)
_MAGIC_I32: Final = MAGIC - (1 << 32)
_TAGS_START: Final = b"TAGS\x01"
_TAGS_INNER: Final = b"\x02TAGS\x01"
_HEAD_SIZE: Final = 88
_PIECE_BYTES: Final = 65_536
_TAG_CODES_MAX: Final = 4096

QUEUE_INDEX_MAX: Final = 1 << 58
"""A file's name holds 20 digits of byte offset; damaged or hostile records ask for more."""


class _Run:
    """Entries that a piece of log brings to one consume queue."""

    __slots__ = ("codes", "end_phy_offset", "entries", "next_index", "queue")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.next_index = queue.next_index
        self.end_phy_offset = queue.max_phy_offset
        self.entries = BytesWriter()
        self.codes: list[int] = []

    def file(self) -> None:
        """Put the entries into the queue. Errors: DiskFull; it has none of them then."""
        if not self.queue.has_room(len(self.codes)):
            self.queue.make_room(len(self.codes))
        self.queue.append_all(self.entries.getvalue(), self.end_phy_offset)


class Dispatcher:
    """`offset`: consume queues hold every record below it. It only moves behind their entries."""

    def __init__(
        self, config: StoreConfig, log: CommitLog, queues: ConsumeQueues, index: IndexFiles
    ) -> None:
        self.offset = 0
        self.store_timestamp = 0
        """Store timestamp of the newest dispatched record, in milliseconds."""
        self.listener: DispatchListener | None = None
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._tag_codes: dict[bytes, int] = {}
        self._only: frozenset[QueueKey] | None = None
        """The queues that are rebuilt; others get no entries from `_dispatch`."""

    def run(self, bytes_max: int) -> bool:
        """Build queues for about `bytes_max` bytes of log; True if whole records may be left.

        Errors: DiskFull, StoreError; `offset` stands before the record that did not fit.
        CommitLogCorrupted when what follows is no record.
        """
        log = self._log
        budget_end = self.offset + bytes_max
        while self.offset < log.end:
            segment = log.files.find(self.offset)
            assert segment is not None, (self.offset, log.end)
            more = self._run_segment(segment, min(log.end, segment.end_offset), budget_end)
            if more is not None:
                return more
        return False

    def rebuild(self, keys: frozenset[QueueKey], bytes_max: int) -> Iterator[int]:
        """Give the queues, which are empty, all their entries from the log; yields offsets on the
        way. The others keep theirs, and `offset` stays as it was.

        Errors: as `run`.
        """
        offset, timestamp = self.offset, self.store_timestamp
        self.offset, self._only = self._log.min_offset, keys
        try:
            while self.run(bytes_max):
                yield self.offset
        finally:
            self.offset, self.store_timestamp, self._only = offset, timestamp, None

    def _run_segment(self, segment: MappedFile, end: int, budget_end: int) -> bool | None:
        """Dispatch up to `end`; return None when done, else the result of `run`. HOT on slaves."""
        base = segment.from_offset
        offset = self.offset
        while offset < end:
            if offset >= budget_end:
                return True
            position = offset - base
            piece = segment.buffer[position : position + min(_PIECE_BYTES, end - offset)]
            self._run_piece(piece, budget_end)
            # The bytes there are cut off by the piece's end, or need a closer look.
            if self.offset == offset and not self._step(segment, end):
                return False
            offset = self.offset
        return None

    def _run_piece(self, piece: bytes, budget_end: int) -> None:
        """Dispatch the records that lie whole in `piece`, which begins at `offset`, up to the first
        that needs a closer look.

        Entries are gathered by queue and go into each at once, then the index learns of them, and
        then `offset` moves. Where a queue finds no room it has not moved: whatever went into
        others before is met again and known by its place.
        """
        base = self.offset
        stop = len(piece)
        budget = min(stop, budget_end - base) - 1
        queues = self._queues.by_topic_field
        timestamp = self.store_timestamp
        follows_index = self._index.following
        runs: dict[ConsumeQueue, _Run] = {}
        run: _Run | None = None
        keyed: list[Keyed] = []
        last_tail = b""
        last_queue_id = -1
        tags_code = 0
        # The shape of the last properties: what stands around a message's unique id.
        shape_size = -1
        before = after = b""
        id_begin = id_end = 0
        position = 0
        while position <= budget and position + FIXED_SIZE <= stop:
            size: int = read_i32_be(piece, position)
            body_size: int = read_i32_be(piece, position + 84)
            following = position + size
            if (
                read_i32_be(piece, position + 4) != _MAGIC_I32
                or read_i32_be(piece, position + 36) & _SPECIAL_BITS
                or following > stop
                or body_size < 0
                or body_size > size - FIXED_SIZE
            ):
                break
            topic_at = position + _HEAD_SIZE + body_size
            topic_end = topic_at + 1 + piece[topic_at]
            properties_at = topic_end + 2
            if properties_at > following:
                break
            properties_size: int = read_i16_be(piece, topic_end)
            if properties_size != following - properties_at:
                break
            queue_id: int = read_i32_be(piece, position + 12)
            queue_offset: int = read_i64_be(piece, position + 20)
            topic_field = piece[topic_at:topic_end]
            if queue_id != last_queue_id or topic_field != last_tail or run is None:
                queue = queues.get((topic_field, queue_id))
                if queue is None or queue.is_schedule:
                    break
                run = runs.get(queue)
                if run is None:
                    run = runs[queue] = _Run(queue)
                last_tail, last_queue_id = topic_field, queue_id
            phy_offset = base + position
            if queue_offset != run.next_index or phy_offset + size <= run.queue.max_phy_offset:
                break
            properties = piece[properties_at:following]
            timestamp = read_i64_be(piece, position + 56)
            if (  # `IdShape.id_of`, written out: see decision 9
                properties_size == shape_size
                and properties.startswith(before)
                and properties.endswith(after)
                and PROPERTY_END not in (key := properties[id_begin:id_end])
            ):
                if follows_index:
                    keyed.append((phy_offset, timestamp, run.queue.topic, key))
            else:
                shape_size = -1
                tags_code = self._tags_code(properties)
                id_begin, id_end = id_place(properties)
                if id_begin < id_end:
                    before, after = properties[:id_begin], properties[id_end:]
                    shape_size = properties_size
                if follows_index:
                    for key in keys_of(properties):
                        keyed.append((phy_offset, timestamp, run.queue.topic, key))
            write_i64_be(run.entries, phy_offset)
            write_i32_be(run.entries, size)
            write_i64_be(run.entries, tags_code)
            run.codes.append(tags_code)
            run.next_index += 1
            run.end_phy_offset = phy_offset + size
            position = following
        if position == 0:
            return
        listener = self.listener
        for run in runs.values():
            if run.codes:
                run.file()
                if listener is not None:
                    listener(run.queue.topic, run.queue.queue_id, run.next_index, run.codes)
        if follows_index:
            self._index.note_all(keyed)
        self.store_timestamp = timestamp
        self.offset = base + position

    def _step(self, segment: MappedFile, end: int) -> bool:
        """Go one record or blank further; False when its end has not arrived."""
        position = self.offset - segment.from_offset
        if end - self.offset < BLANK_SIZE:
            return False
        size, magic = PRELUDE.unpack_from(segment.buffer, position)
        if self.offset + size > end:
            if magic in (MAGIC, BLANK_MAGIC) and position + size <= segment.size:
                return False
            raise self._corrupted(f"record of {size} bytes")
        if magic == MAGIC:
            try:
                fields = dispatch_fields(segment.buffer, position)
            except RecordError as error:
                raise self._corrupted(str(error)) from None
            self._dispatch(fields)
            self.offset += size
        elif magic == BLANK_MAGIC:
            self.offset = segment.end_offset
        else:
            raise self._corrupted(f"magic {magic:#010x}")
        return True

    def _dispatch(self, fields: DispatchFields) -> None:
        size, topic, queue_id, queue_offset, sys_flag, timestamp, properties = fields
        transaction = sys_flag & _TRANSACTION_MASK
        if transaction not in (_PREPARED, _ROLLBACK):
            queue = self._queues.table.get((topic, queue_id))
            if self._only is not None and (topic, queue_id) not in self._only:
                queue = None
            elif queue is None and is_storable(topic, queue_id):
                queue = self._queues.find_or_make(topic, queue_id)
            if queue is not None and self.offset + size > queue.max_phy_offset:
                if queue_offset != queue.next_index:
                    self._move(queue, queue_offset)
                if queue.is_schedule:
                    tags_code = self.delivery_time(topic, properties, timestamp)
                else:
                    tags_code = self._tags_code(properties)
                queue.append(self.offset, size, tags_code)
                if self.listener is not None:
                    self.listener(topic, queue_id, queue.next_index, (tags_code,))
        self.store_timestamp = timestamp
        if self._index.following and transaction != _ROLLBACK:
            for key in keys_of(properties):
                self._index.note(self.offset, timestamp, topic, key)

    def _move(self, queue: ConsumeQueue, queue_offset: int) -> None:
        # The record does not continue its queue.
        if queue.topic in RAFT_TOPICS:
            # Lists what is in this log, in its order. A leader whose log begins later counts on
            # from another number, and nothing before it may be forgotten for that.
            return
        if not 0 <= queue_offset <= QUEUE_INDEX_MAX:
            return  # no index at all: goes on at the queue's end
        if not queue.files.files:
            # The log came to this node from the middle.
            queue.start_at(queue_offset)
        elif queue_offset < queue.next_index:
            self._queues.before_forgetting()
            # The topic was deleted and made again at the master: the younger record is right.
            # RocketMQ drops it instead, and its slave never shows the new topic's messages.
            if queue_offset <= queue.min_index:
                queue.start_at(queue_offset)
            else:
                queue.truncate(queue_offset)
        # A gap: RocketMQ logs an error and goes on at the queue's end, as its master did.

    def delivery_time(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        """Return the number that the entry of a delayed message carries in place of a tag."""
        values = decode_properties(properties)
        if topic == TIMER_TOPIC:
            return timer_code(values)
        levels = self._config.delay_levels_ms
        level = values.get(Property.DELAY, "")
        if level.isdecimal() and int(level) > 0 and levels:
            return store_timestamp + levels[min(int(level), len(levels)) - 1]
        return self._tags_code(properties)

    def _tags_code(self, properties: bytes) -> int:
        # The last of several wins, as in a map.
        at = properties.rfind(_TAGS_INNER)
        if at >= 0:
            begin = at + len(_TAGS_INNER)
        elif properties.startswith(_TAGS_START):
            begin = len(_TAGS_START)
        else:
            return 0
        end = properties.find(b"\x02", begin)
        tags = properties[begin:] if end < 0 else properties[begin:end]
        code = self._tag_codes.get(tags)
        if code is None:
            if not tags:
                code = string_hash(decode_properties(properties).get(Property.TAGS, ""))
                return code
            if len(self._tag_codes) >= _TAG_CODES_MAX:
                self._tag_codes.clear()
            code = self._tag_codes[tags] = string_hash(tags.decode("utf-8", "replace"))
        return code

    def read_keyed(self, offset: int, bytes_max: int) -> tuple[list[Keyed], int]:
        """Keys of the records from `offset` on, for an index that fell behind; where to read on."""
        log = self._log
        offset = max(offset, log.min_offset)
        stop = min(self.offset, offset + bytes_max)
        keyed: list[Keyed] = []
        while offset < stop:
            segment = log.files.find(offset)
            assert segment is not None, (offset, stop)
            buffer = segment.buffer
            while offset < min(stop, segment.end_offset):
                position = offset - segment.from_offset
                size, magic = PRELUDE.unpack_from(buffer, position)
                if magic == BLANK_MAGIC:
                    offset = segment.end_offset
                    break
                try:
                    fields = dispatch_fields(buffer, position)
                except RecordError:
                    # Damage in old data is for `trioha log verify` to report; go round it.
                    limit = segment.size
                    position = resynchronise(buffer, position + 1, limit, segment.from_offset)
                    offset = segment.from_offset + position
                    continue
                if fields.sys_flag & _TRANSACTION_MASK != _ROLLBACK:
                    for key in keys_of(fields.properties):
                        keyed.append((offset, fields.store_timestamp, fields.topic, key))
                offset += size
        return keyed, offset

    def _corrupted(self, what: str) -> CommitLogCorrupted:
        segment = self._log.files.find(self.offset)
        return CommitLogCorrupted(
            f"{segment.path if segment else 'log'} is damaged at offset {self.offset}: {what}; "
            "look at it with `trioha log verify`, then copy the store from its replica"
        )
