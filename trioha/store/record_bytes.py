"""Records as a put writes them: made whole in memory, so that a message which fits no record leaves
no trace in the log (CommitLog.java, DefaultAppendMessageCallback).

`trioha.wire.record` reads them and says what lies where. A batch is written number by number
rather than packed: compiled, that needs no object for any of them, and in plain Python it costs as
much as the other way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be

from trioha.checksum import crc32
from trioha.store.index_file import Keyed
from trioha.store.put_values import PutBatch, PutMessage
from trioha.wire.codes import SysFlag
from trioha.wire.record import MAGIC, RecordError

V6_BITS: Final = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)

_BORN_V6: Final = int(SysFlag.BORNHOST_V6)
_STORE_V6: Final = int(SysFlag.STOREHOST_V6)
_MAGIC: Final = MAGIC
# The sysFlag's two host bits, and how long the hosts then are.
_HOST_SIZES: Final = ((0, 8, 8), (_BORN_V6, 20, 8), (_STORE_V6, 8, 20), (V6_BITS, 20, 20))
# Through the body's length, by the sysFlag's two host bits.
_HEADS: Final = {
    bits: struct.Struct(f">IIIiiqqiq{born}sq{store}siqi").pack for bits, born, store in _HOST_SIZES
}
_HEAD_V4: Final = _HEADS[0]
# From the sysFlag to before the body's length, likewise.
_SHARED: Final = {
    bits: struct.Struct(f">iq{born}sq{store}siq").pack for bits, born, store in _HOST_SIZES
}
_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")
_LENGTH: Final = struct.Struct(">H").pack
_crc32: Final = crc32


def record_bytes(
    message: PutMessage,
    topic_field: bytes,
    size: int,
    queue_offset: int,
    phy_offset: int,
    store_timestamp: int,
) -> bytes:
    """One record of `size` bytes; `topic_field` is the topic behind its length byte.

    Errors: RecordError when a number does not fit its place.
    """
    body = message.body
    properties = message.properties
    sys_flag = message.sys_flag
    bits = sys_flag & V6_BITS
    try:
        return b"".join(
            (
                (_HEADS[bits] if bits else _HEAD_V4)(
                    size,
                    _MAGIC,
                    # 0 is a checksum like any other, never "none".
                    _crc32(body) & 0x7FFFFFFF,
                    message.queue_id,
                    message.flag,
                    queue_offset,
                    phy_offset,
                    sys_flag,
                    message.born_timestamp,
                    message.born_host,
                    store_timestamp,
                    message.store_host,
                    message.reconsume_times,
                    message.prepared_transaction_offset,
                    len(body),
                ),
                body,
                topic_field,
                _LENGTH(len(properties)),
                properties,
            )
        )
    except struct.error as error:
        raise RecordError(f"message does not fit a record: {error}") from None


class BatchBytes:
    """A batch as it goes into log, queue and index."""

    __slots__ = ("entries", "keyed", "phy_offsets", "records")

    def __init__(
        self, records: bytes, entries: bytes, phy_offsets: list[int], keyed: list[Keyed]
    ) -> None:
        self.records = records
        """Records of the batch, back to back."""
        self.entries = entries
        """Consume queue entries, back to back."""
        self.phy_offsets = phy_offsets
        """Offset of each record in the log."""
        self.keyed = keyed
        """Keys of the records for the index."""


def batch_bytes(
    batch: PutBatch,
    topic_field: bytes,
    record_bytes_min: int,
    tags_codes: Sequence[int],
    phy_offset: int,
    queue_offset: int,
    store_timestamp: int,
) -> BatchBytes:
    """The batch, for the offsets at which it begins in log and queue. HOT.

    `record_bytes_min` is a record's size without body and properties.
    Errors: RecordError when a number does not fit its place.
    """
    topic = batch.topic
    queue_id = batch.queue_id
    sys_flag = batch.sys_flag
    try:
        # Fields between offset and body, which all records of a batch share.
        shared = _SHARED[sys_flag & V6_BITS](
            sys_flag,
            batch.born_timestamp,
            batch.born_host,
            store_timestamp,
            batch.store_host,
            batch.reconsume_times,
            0,
        )
        records = BytesWriter()
        entries = BytesWriter()
        offsets: list[int] = []
        keyed: list[Keyed] = []
        tags = iter(tags_codes)
        for flag, body, properties, _, keys in batch.entries:
            body_size = len(body)
            properties_size = len(properties)
            size = record_bytes_min + body_size + properties_size
            write_i32_be(records, size)
            records.write(_MAGIC_BYTES)
            write_i32_be(records, _crc32(body) & 0x7FFFFFFF)
            write_i32_be(records, queue_id)
            write_i32_be(records, flag)
            write_i64_be(records, queue_offset)
            write_i64_be(records, phy_offset)
            records.write(shared)
            write_i32_be(records, body_size)
            records.write(body if isinstance(body, (bytes, bytearray)) else bytes(body))
            records.write(topic_field)
            write_i16_be(records, properties_size)
            records.write(properties)
            write_i64_be(entries, phy_offset)
            write_i32_be(entries, size)
            write_i64_be(entries, next(tags))
            offsets.append(phy_offset)
            for key in keys:
                keyed.append((phy_offset, store_timestamp, topic, key))
            phy_offset += size
            queue_offset += 1
    except (struct.error, ValueError, OverflowError) as error:
        raise RecordError(f"message does not fit a record: {error}") from None
    return BatchBytes(records.getvalue(), entries.getvalue(), offsets, keyed)
