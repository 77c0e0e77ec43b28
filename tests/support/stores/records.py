"""Records and batches as values and bytes, without the broker's hot path."""

from __future__ import annotations

from trioha.wire.batch import BatchElement, split_fields
from trioha.wire.codes import SysFlag
from trioha.wire.record import RecordMessage, body_crc, pack_record, record_size
from trioha.wire.remoting_command import Buffer


def encode_record(
    message: RecordMessage,
    queue_offset: int,
    phy_offset: int,
    store_timestamp: int,
    crc: int | None = None,
) -> bytes:
    """One record as bytes of its own; computes the checksum unless it is given."""
    size = record_size(
        len(message.body),
        len(message.topic.encode()),
        len(message.properties),
        bool(message.sys_flag & SysFlag.BORNHOST_V6),
        bool(message.sys_flag & SysFlag.STOREHOST_V6),
    )
    buffer = bytearray(size)
    crc = body_crc(message.body) if crc is None else crc
    pack_record(buffer, 0, message, queue_offset, phy_offset, store_timestamp, crc)
    return bytes(buffer)


def split_batch(body: Buffer) -> list[BatchElement]:
    """The elements of a batch body.

    Errors: RemoteProtocolError when the lengths do not add up.
    """
    return [BatchElement(*fields) for fields in split_fields(bytes(body))[0]]
