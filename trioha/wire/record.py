"""Commitlog records (CommitLog.java, MessageDecoder.java): pack, peek, decode, dispatch.

A record is a fixed part, two hosts of 8 or 20 bytes among it, then body, topic and properties,
each behind its length. The sysFlag says which host is IPv6. A log file ends in a blank: size and
BLANK_MAGIC, the bytes behind them undefined. Pull answers are records back to back, so the same
code serves store, tools and clients.
"""

from __future__ import annotations

import struct
from functools import cached_property
from mmap import mmap
from typing import Final, NamedTuple, Protocol

import attrs

from trioha.checksum import crc32
from trioha.errors import RemoteProtocolError
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import offset_message_id
from trioha.wire.properties import KEYS, TAGS, decode_properties
from trioha.wire.remoting_command import Buffer

MAGIC: Final = 0xDAA320A7
BLANK_MAGIC: Final = 0xCBD43194
FIXED_SIZE: Final = 91
"""Bytes of a record besides body, topic and properties, both hosts IPv4."""
BLANK_SIZE: Final = 8
"""A blank's own bytes: at least so many stay free at the end of every file."""
TOPIC_BYTES_MAX: Final = 127
PROPERTIES_BYTES_MAX: Final = 32767

ReadableBuffer = Buffer | mmap

PRELUDE: Final = struct.Struct(">II")
"""Size and magic: what a record and a blank have in common."""

SCAN: Final = struct.Struct(">II20xqi44xI")
"""Size, magic, PHYSICALOFFSET, sysFlag and the body's length: what a walk through records needs."""
SCAN_SIZE: Final = SCAN.size
"""88: where the body begins when both hosts are IPv4."""

_V6_BITS: Final = SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6
_U16: Final = struct.Struct(">H")
_SYS_FLAG: Final = struct.Struct(">i")
_FLAG_AND_BODY_SIZE: Final = struct.Struct(">36xi44xi")  # as they lie where both hosts are IPv4
_BODY_SIZE: Final = struct.Struct(">i")
_SYS_FLAG_AT: Final = 36
_HOST_SIZES: Final = {
    0: (8, 8),
    SysFlag.BORNHOST_V6: (20, 8),
    SysFlag.STOREHOST_V6: (8, 20),
    _V6_BITS: (20, 20),
}
# Through the body's length, by the sysFlag's two host bits.
_HEAD: Final = {
    bits: struct.Struct(f">IIIiiqqiq{born}sq{store}siqi")
    for bits, (born, store) in _HOST_SIZES.items()
}
# size, queueId, queueOffset, sysFlag, storeTimestamp, body length
_DISPATCH: Final = {
    bits: struct.Struct(f">I8xi4xq8xi8x{born}xq{store}x12xi")
    for bits, (born, store) in _HOST_SIZES.items()
}
_HEAD_V4: Final = _HEAD[0]
_DISPATCH_V4: Final = _DISPATCH[0]
_PACK_V4: Final = _HEAD_V4.pack_into
_PACK_U16: Final = _U16.pack


class RecordError(RemoteProtocolError, ValueError):
    """Bytes that should be a record are not one, or a message does not fit one."""


class RecordMessage(Protocol):
    """Fields of a message that `pack_record` reads; `store.interface.PutMessage` has them."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    body: Buffer
    properties: bytes
    reconsume_times: int
    prepared_transaction_offset: int


class RecordHeader(NamedTuple):
    """The numbers before the body. All but size and magic are 0 in a blank."""

    size: int
    magic: int
    crc: int = 0
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    phy_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    store_timestamp: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0


class DispatchFields(NamedTuple):
    """Fields of a record that consume queue and index need."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


@attrs.frozen(kw_only=True)
class Record:
    """One stored message, every field of it."""

    size: int
    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes = attrs.field(repr=False)
    topic: str
    raw_properties: bytes

    @cached_property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.raw_properties)

    @property
    def message_id(self) -> str:
        """The offset id, by which the broker finds this record again."""
        return offset_message_id(self.store_host, self.phy_offset)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(KEYS, "").split(" ") if key]


def body_crc(body: Buffer) -> int:
    """CRC-32 with the top bit cleared. 0 is a checksum like any other, never "none"."""
    return crc32(body) & 0x7FFFFFFF


def record_size(
    body_size: int,
    topic_size: int,
    properties_size: int,
    born_host_v6: bool = False,
    store_host_v6: bool = False,
) -> int:
    """Bytes a record takes in the log."""
    size = FIXED_SIZE + body_size + topic_size + properties_size
    if born_host_v6:
        size += 12
    if store_host_v6:
        size += 12
    return size


def pack_record(
    buffer: bytearray | memoryview | mmap,
    position: int,
    message: RecordMessage,
    queue_offset: int,
    phy_offset: int,
    store_timestamp: int,
    crc: int,
) -> int:
    """Write one record straight into `buffer` at `position` and return its size.

    Errors: RecordError when a field does not fit its place. The buffer may then hold a part of the
    record, so the caller must not have moved its end yet.
    """
    body = message.body
    topic = message.topic.encode()
    properties = message.properties
    sys_flag = message.sys_flag
    topic_size = len(topic)
    properties_size = len(properties)
    body_size = len(body)
    bits = sys_flag & _V6_BITS
    if bits:
        head = _HEAD[bits]
        pack, head_size = head.pack_into, head.size
    else:
        pack, head_size = _PACK_V4, 88
    if topic_size > TOPIC_BYTES_MAX or properties_size > PROPERTIES_BYTES_MAX:
        raise RecordError(
            f"topic of {topic_size} or properties of {properties_size} bytes are too long"
        )
    size = head_size + body_size + topic_size + properties_size + 3
    try:
        pack(
            buffer,
            position,
            size,
            MAGIC,
            crc,
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
            body_size,
        )
        start = position + head_size
        end = start + body_size
        buffer[start:end] = body
        buffer[end : position + size] = b"%c%b%b%b" % (
            topic_size,
            topic,
            _PACK_U16(properties_size),
            properties,
        )
    except (struct.error, ValueError, IndexError) as error:
        raise RecordError(f"message does not fit a record: {error}") from None
    return size


def body_position(sys_flag: int) -> int:
    """Return the position of such a record's body, in bytes from the record's beginning."""
    return _HEAD[sys_flag & _V6_BITS].size


def peek(buffer: ReadableBuffer, position: int) -> RecordHeader:
    """The numbers of the record or blank at `position`; nothing is verified.

    Only size and magic are read unless the magic is a record's.

    Errors: RecordError when the buffer ends before the header does.
    """
    try:
        size, magic = PRELUDE.unpack_from(buffer, position)
        if magic != MAGIC:
            return RecordHeader(size, magic)
        (
            size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            phy_offset,
            sys_flag,
            born_timestamp,
            _,
            store_timestamp,
            _,
            reconsume_times,
            prepared_offset,
            _,
        ) = _head_of(buffer, position).unpack_from(buffer, position)
    except struct.error:
        raise RecordError(f"record header at {position} is cut off") from None
    return RecordHeader(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        phy_offset,
        sys_flag,
        born_timestamp,
        store_timestamp,
        reconsume_times,
        prepared_offset,
    )


def dispatch_fields(buffer: ReadableBuffer, position: int) -> DispatchFields:
    """Return the fields that reput needs of the record at `position`; the body is not read.

    Errors: RecordError when the lengths do not add up or the buffer ends early. The caller has
    looked at the magic.
    """
    try:
        fields = _DISPATCH_V4.unpack_from(buffer, position)
        topic_at = position + 88
        if fields[3] & _V6_BITS:
            layout = _DISPATCH[fields[3] & _V6_BITS]
            fields = layout.unpack_from(buffer, position)
            topic_at = position + layout.size
        size, queue_id, queue_offset, sys_flag, store_timestamp, body_size = fields
        if not 0 <= body_size <= size:
            raise RecordError(f"record at {position}: body of {body_size} in {size} bytes")
        topic_at += body_size
        topic_end = topic_at + 1 + buffer[topic_at]
        (properties_size,) = _U16.unpack_from(buffer, topic_end)
        properties_at = topic_end + 2
        end = properties_at + properties_size
        if end != position + size:
            raise RecordError(f"record at {position}: ends at {end}, size {size}")
        return DispatchFields(
            size,
            str(buffer[topic_at + 1 : topic_end], "utf-8"),
            queue_id,
            queue_offset,
            sys_flag,
            store_timestamp,
            bytes(buffer[properties_at:end]),
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RecordError(f"record at {position} is damaged: {error}") from None


def properties_begin(record: bytes, size: int) -> int:
    """Return where the property string of a record begins, of which these are all bytes. HOT.

    It goes to the end. When the lengths do not add up to `size`, it is empty.
    """
    end = len(record)
    if end != size or end < SCAN_SIZE:
        return end
    body_at = SCAN_SIZE
    if bits := record[_SYS_FLAG_AT + 3] & _V6_BITS:
        body_at = _HEAD[bits].size
        if end < body_at:
            return end
    body_size = record[body_at - 4] << 24 | record[body_at - 3] << 16
    body_size |= record[body_at - 2] << 8 | record[body_at - 1]
    topic_at = body_at + body_size
    if topic_at >= end:
        return end
    begin = topic_at + 3 + record[topic_at]
    if begin > end or begin + (record[begin - 2] << 8 | record[begin - 1]) != end:
        return end
    return begin


def properties_of(buffer: ReadableBuffer, position: int, size: int) -> bytes:
    """The property string of a record of `size` bytes; nothing else of it is copied.

    Empty when the lengths do not add up.
    """
    try:
        sys_flag, body_size = _FLAG_AND_BODY_SIZE.unpack_from(buffer, position)
        body_at = position + _FLAG_AND_BODY_SIZE.size
        if sys_flag & _V6_BITS:
            body_at = position + _head_of(buffer, position).size
            (body_size,) = _BODY_SIZE.unpack_from(buffer, body_at - 4)
        if not 0 <= body_size <= size:
            return b""
        properties_at = body_at + body_size + 3
        properties_at += buffer[properties_at - 3]
        (properties_size,) = _U16.unpack_from(buffer, properties_at - 2)
    except (struct.error, IndexError):
        return b""
    end = properties_at + properties_size
    if end != position + size or end > len(buffer):
        return b""
    return bytes(buffer[properties_at:end])


def decode_record(buffer: ReadableBuffer, position: int = 0, *, check_crc: bool = True) -> Record:
    """The whole record at `position`.

    Errors: RecordError when it is not a record, is cut off, or its checksum is wrong.
    """
    try:
        size, magic = PRELUDE.unpack_from(buffer, position)
        if magic != MAGIC:
            raise RecordError(f"magic {magic:#010x} at {position} is not a record's")
        head = _head_of(buffer, position)
        (
            _,
            _,
            crc,
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
            prepared_offset,
            body_size,
        ) = head.unpack_from(buffer, position)
        if not 0 <= body_size <= size:
            raise RecordError(f"record at {position}: body of {body_size} in {size} bytes")
        body_at = position + head.size
        body_end = body_at + body_size
        topic_end = body_end + 1 + buffer[body_end]
        (properties_size,) = _U16.unpack_from(buffer, topic_end)
        end = topic_end + 2 + properties_size
        if end != position + size or end > len(buffer):
            raise RecordError(f"record at {position}: ends at {end}, size {size}")
        body = bytes(buffer[body_at:body_end])
        topic = str(buffer[body_end + 1 : topic_end], "utf-8")
        raw_properties = bytes(buffer[topic_end + 2 : end])
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RecordError(f"record at {position} is damaged: {error}") from None
    if check_crc and crc != body_crc(body):
        raise RecordError(f"record at {position}: checksum is {body_crc(body)}, stored {crc}")
    return Record(
        size=size,
        crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        phy_offset=phy_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body=body,
        topic=topic,
        raw_properties=raw_properties,
    )


def decode_records(body: Buffer, *, check_crc: bool = True) -> list[Record]:
    """The records of a pull or query answer, back to back.

    Errors: RecordError when anything but whole records is found.
    """
    view = memoryview(body)
    records = []
    position = 0
    while position < len(view):
        record = decode_record(view, position, check_crc=check_crc)
        records.append(record)
        position += record.size
    return records


def _head_of(buffer: ReadableBuffer, position: int) -> struct.Struct:
    (sys_flag,) = _SYS_FLAG.unpack_from(buffer, position + _SYS_FLAG_AT)
    return _HEAD[sys_flag & _V6_BITS]
