"""Batches: several messages of one queue in one send (MessageBatch.java, request 320).

Theory of operation. A batch is gone through once; its messages share all that its header says. What
RocketMQ takes is taken: as many messages as maxMessageSize allows, 190,000 in 4 MiB. So many cost
more than a second, and any client may send them. So a batch of more than `SLICE_MESSAGES` is
checked and stored a slice at a time, and other connections have their turn in between.

The messages of a slice are stored next to each other, all or none. The producer receives one
answer, once the last slice is as safe as it asked for; every earlier slice lies below it and is as
safe. If a later slice is rejected, the earlier ones stay stored, and the answer says so. A producer
that then sends the batch again doubles them, as after any send whose outcome is unknown.

The batch passes the request gate with each slice. While a switch parks writes it waits there and
begins anew; if this broker has taken another role since, it begins anew as well, since the log may
have been cut. It never counts on a slice of an earlier role.
"""

from __future__ import annotations

import zlib
from binascii import hexlify
from collections.abc import Sequence
from typing import Final

from trioha.broker.message_fields import index_keys, is_true, tags_code
from trioha.broker.property_shape import (
    PropertyShape,
    PropertyShapes,
)
from trioha.broker.put_message import PutOutcome, PutPipeline
from trioha.broker.send_header import SendHeader
from trioha.config import BrokerConfig
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Instant
from trioha.store.put_values import BatchEntry, PutBatch
from trioha.wire.batch import ALL, ELEMENT_SIZE_MIN, split_fields
from trioha.wire.codes import ResponseCode, SysFlag
from trioha.wire.names import is_retry_topic
from trioha.wire.progress import Progress
from trioha.wire.properties import (
    CLUSTER,
    DELAY,
    PROPERTIES_BYTES_MAX,
    TRAN_MSG,
    WAIT,
    decode_properties,
    encode_properties,
)
from trioha.wire.remoting_command import Buffer, RemotingCommand
from trioha.wire.timers import is_timer
from trioha.wire.unique_id import IdShape, id_place

SLICE_MESSAGES = 8_192
"""Messages stored in one turn: 50 ms without compiled modules."""
SLICE_PROPERTIES_BYTES = 524_288
"""Bytes of properties that are taken apart in one turn: 40 ms of the shortest names and values."""
CHECKED_MESSAGES = 65_536
"""Messages whose lengths are checked in one turn, before the first is stored: 30 ms."""
_SMALL_BYTES = SLICE_MESSAGES * ELEMENT_SIZE_MIN
"""A batch of so many bytes is one slice, whatever it holds."""
_hexlify: Final = hexlify
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_MASK)
_SMALL_PROPERTIES: Final = PROPERTIES_BYTES_MAX // 2
"""Below it a string stays legal whatever is added to it here."""

Fields = tuple[int, bytes, bytes]
"""Flag, body and properties of one message."""


class BatchProgress(Progress):
    """Progress of a batch of several slices."""

    def __init__(self, data: bytes, queue_id: int, roles_taken: int) -> None:
        super().__init__(len(data))
        self.data = data
        """The whole batch, inflated."""
        self.queue_id = queue_id
        self.roles_taken = roles_taken
        self.checked_to = 0
        """Position below which all lengths are right."""
        self.stored_to = 0
        self.stored_count = 0
        self.queue_offset = 0
        """Queue offset of the first message."""
        self.message_ids = b""
        """Offset ids of the stored messages, a comma behind each."""

    def restart(self, roles_taken: int) -> None:
        """Count no slice that was stored in an earlier role."""
        self.roles_taken = roles_taken
        self.stored_to = self.stored_count = 0
        self.message_ids = b""

    def remark(self, remark: str | None) -> str | None:
        """Return the reason of a rejection, behind the count of messages that are stored."""
        if not self.stored_count:
            return remark
        return f"the first {self.stored_count} messages of the batch are stored, then: {remark}"


class BatchSender:
    """Checks batches and stores them, one slice in a turn."""

    def __init__(self, config: BrokerConfig, pipeline: PutPipeline, store_host: bytes) -> None:
        self._cluster = config.broker_cluster_name
        self._body_bytes_max = config.max_message_size
        self._pipeline = pipeline
        self._store_host = store_host
        self._host_id = store_host.hex().upper().encode()
        self._shapes = PropertyShapes("")

    def put(
        self,
        born_host: bytes,
        request: RemotingCommand,
        header: SendHeader,
        queue_id: int,
        sys_flag: int,
        body: Buffer,
        instant: Instant,
    ) -> PutOutcome | None:
        """Store a batch or the next slice of it.

        Returns None until the last slice is stored; then the outcome of the last, with the first
        message's queue offset.
        Errors: CommandError when it is illegal.
        """
        if is_retry_topic(header.topic):
            raise illegal(f"batch request does not support retry group {header.topic}")
        shared = decode_properties(header.properties)
        wait = is_true(shared.pop(WAIT, "true")) and not request.is_oneway
        shared[CLUSTER] = self._cluster
        suffix = encode_properties(shared)
        if sys_flag & _TRANSACTION_MASK:
            raise illegal("a batch cannot be transactional")
        progress = request.progress
        if not isinstance(progress, BatchProgress):
            # The C++ client compresses a batch as a whole; what is stored are its messages.
            is_compressed = bool(sys_flag & _COMPRESSED)
            data = _inflate(body, self._body_bytes_max) if is_compressed else bytes(body)
            fields, end = _slice_of(data, 0)
            if end < len(data):
                progress = BatchProgress(data, queue_id, self._pipeline.roles_taken)
                progress.checked_to = end
                request.progress = progress
                return None
        else:
            data, queue_id = progress.data, progress.queue_id
            if progress.roles_taken != self._pipeline.roles_taken:
                progress.restart(self._pipeline.roles_taken)
            if progress.checked_to < len(data):
                progress.checked_to = _fields_of(data, progress.checked_to, CHECKED_MESSAGES)[1]
                return None
            fields, end = _slice_of(data, progress.stored_to)
        entries = self._entries(fields, shared, suffix)
        batch = PutBatch(
            header.topic,
            queue_id,
            sys_flag & ~_COMPRESSED,
            header.born_timestamp,
            born_host,
            self._store_host,
            header.reconsume_times,
            entries,
        )
        outcome = self._pipeline.put_batch(batch, wait=wait, instant=instant)
        if isinstance(progress, BatchProgress):
            return self._noted(progress, outcome, end)
        return outcome

    def _noted(self, progress: BatchProgress, outcome: PutOutcome, end: int) -> PutOutcome | None:
        """Note the outcome of a slice that ends at this position."""
        result = outcome.result
        if result is None:
            return outcome
        if not progress.stored_count:
            progress.queue_offset = result.queue_offset
        if end == len(progress.data):
            result.queue_offset = progress.queue_offset
            return outcome
        progress.stored_to = end
        progress.stored_count += len(result.phy_offsets)
        progress.message_ids += message_ids(self._host_id, result.phy_offsets) + b","
        progress.size_bytes = len(progress.data) + len(progress.message_ids)
        return None

    def _entries(
        self, elements: list[Fields], shared: dict[str, str], suffix: bytes
    ) -> list[BatchEntry]:
        """Return each message as it is stored.

        Errors: CommandError when one is illegal, or there is none.
        """
        entries: list[BatchEntry] = []
        ending = b"\x02" + suffix
        is_plain = len(shared) == 1 and len(suffix) < _SMALL_PROPERTIES
        known = self._shapes.known
        tags = 0
        end_of_own = b""
        like_last: IdShape | None = None
        for flag, text, own in elements:
            unique_id = None if like_last is None else like_last.id_of(own)
            if unique_id is not None:
                entries.append((flag, text, own + end_of_own, tags, (unique_id,)))
                continue
            like_last = None
            begin, end = id_place(own) if is_plain else (-1, -1)
            if begin < end and len(own) < _SMALL_PROPERTIES:
                before, after = own[:begin], own[end:]
                shape = known.get(before + after)
                if shape is None:
                    shape = self._shape_of(before, after)
                if shape.is_plain:
                    end_of_own = suffix if after.endswith(b"\x02") else ending
                    tags = shape.tags_code
                    entries.append((flag, text, own + end_of_own, tags, (own[begin:end],)))
                    like_last = IdShape(own, begin, end)
                    continue
            entries.append(_entry(flag, text, own, shared, suffix))
        if not entries:
            raise illegal("the batch is empty")
        return entries

    def _shape_of(self, before: bytes, after: bytes) -> PropertyShape:
        try:
            return self._shapes.learn(before, after)
        except RemoteProtocolError as error:
            raise illegal(str(error)) from None


def message_ids(host_id: bytes, offsets: Sequence[int]) -> bytes:
    """The offset ids of messages on this host, with commas between."""
    return b",".join([message_id(host_id, offset) for offset in offsets])


def message_id(host_id: bytes, offset: int) -> bytes:
    """Return the offset id of a message on this host."""
    return host_id + _hexlify(offset.to_bytes(8, "big")).upper()


def _entry(flag: int, body: bytes, own: bytes, shared: dict[str, str], suffix: bytes) -> BatchEntry:
    """Make one message of a batch by parsing its properties.

    Errors: CommandError when it is illegal, delayed or transactional.
    """
    properties = decode_properties(own) | shared
    if is_true(properties.get(TRAN_MSG)):
        raise illegal("a batch cannot be transactional")
    is_delayed = DELAY in properties and delay_level(properties) > 0
    # RocketMQ's broker delivers the timer messages of a batch at once.
    if is_delayed or is_timer(properties):
        raise illegal("a batch cannot be delayed")
    if own and not own.endswith(b"\x02"):
        own += b"\x02"
    stored = own + suffix
    if len(stored) > PROPERTIES_BYTES_MAX:
        raise illegal(f"properties of {len(stored)} bytes, at most {PROPERTIES_BYTES_MAX}")
    return flag, body, stored, tags_code(properties), index_keys(properties)


def _inflate(body: Buffer, bytes_max: int) -> bytes:
    """Inflate a batch; its size is limited while it is inflated."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, bytes_max)
    except zlib.error as error:
        raise illegal(f"the batch cannot be decompressed: {error}") from None
    if not inflater.eof:
        raise illegal(f"the batch is cut off, or more than maxMessageSize {bytes_max} inflated")
    return data


def _slice_of(data: bytes, position: int) -> tuple[list[Fields], int]:
    """The messages of the slice that begins there, and the position behind them."""
    if len(data) - position <= _SMALL_BYTES:
        return _fields_of(data, position, ALL)
    fields, end = _fields_of(data, position, SLICE_MESSAGES)
    if end - position <= SLICE_PROPERTIES_BYTES:
        return fields, end
    size = 0
    end = position
    for count, (_, text, own) in enumerate(fields):
        size += len(own)
        if size > SLICE_PROPERTIES_BYTES and count:
            return fields[:count], end
        end += ELEMENT_SIZE_MIN + len(text) + len(own)
    return fields, end


def _fields_of(data: bytes, position: int, count_max: int) -> tuple[list[Fields], int]:
    try:
        return split_fields(data, position, count_max)
    except RemoteProtocolError as error:
        raise illegal(str(error)) from None


def delay_level(properties: dict[str, str]) -> int:
    """The level that a message asks for. Errors: CommandError."""
    try:
        return int(properties[DELAY])
    except ValueError:
        raise illegal(f"DELAY is not a number: {properties[DELAY]!r:.40}") from None


def illegal(what: str) -> CommandError:
    """The rejection of a message that no broker may store."""
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {what}")
