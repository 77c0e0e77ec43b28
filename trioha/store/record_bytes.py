"""Records as a put writes them: made whole in memory, so that a message which fits no record leaves
no trace in the log (CommitLog.java, DefaultAppendMessageCallback).

`trioha.wire.record` reads them and says what lies where.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from trioha.store.put_values import PutBatch, PutMessage
from trioha.wire.codes import SysFlag
from trioha.wire.record import MAGIC, RecordError

V6_BITS: Final = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)

_BORN_V6: Final = int(SysFlag.BORNHOST_V6)
_STORE_V6: Final = int(SysFlag.STOREHOST_V6)
_MAGIC: Final = MAGIC
# Through the body's length, by the sysFlag's two host bits.
_HEADS: Final = {
    bits: struct.Struct(f">IIIiiqqiq{born}sq{store}siqi").pack
    for bits, born, store in (
        (0, 8, 8),
        (_BORN_V6, 20, 8),
        (_STORE_V6, 8, 20),
        (V6_BITS, 20, 20),
    )
}
_HEAD_V4: Final = _HEADS[0]
_LENGTH: Final = struct.Struct(">H").pack


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
                    crc32(body) & 0x7FFFFFFF,
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


def batch_bytes(
    batch: PutBatch,
    topic_field: bytes,
    phy_offsets: Sequence[int],
    end_offset: int,
    queue_offset: int,
    store_timestamp: int,
) -> bytes:
    """The records of a batch back to back, at `phy_offsets` and up to `end_offset`.

    Errors: RecordError when a number does not fit its place.
    """
    queue_id = batch.queue_id
    sys_flag = batch.sys_flag
    born_timestamp = batch.born_timestamp
    born_host = batch.born_host
    store_host = batch.store_host
    reconsume_times = batch.reconsume_times
    head = _HEADS[sys_flag & V6_BITS]
    parts: list[bytes | bytearray | memoryview] = []
    following = iter(phy_offsets)
    phy_offset = next(following)
    try:
        for flag, body, properties, _, _ in batch.entries:
            end = next(following, end_offset)
            parts += (
                head(
                    end - phy_offset,
                    _MAGIC,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    flag,
                    queue_offset,
                    phy_offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    store_host,
                    reconsume_times,
                    0,
                    len(body),
                ),
                body,
                topic_field,
                _LENGTH(len(properties)),
                properties,
            )
            phy_offset = end
            queue_offset += 1
    except struct.error as error:
        raise RecordError(f"message does not fit a record: {error}") from None
    return b"".join(parts)
