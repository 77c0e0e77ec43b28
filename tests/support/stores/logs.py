"""Logs made in memory, plain and DLEDGER, with what must be read out of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import attrs

from support.stores.records import encode_record
from trioha.wire.codes import SysFlag
from trioha.wire.record import BLANK_MAGIC, body_crc
from trioha.wire.remoting_command import Buffer

HOST_V4 = b"\x0a\x00\x00\x07\x00\x00\x2a\x9f"
HOST_V6 = bytes.fromhex("20010db8000000000000000000000001") + b"\x00\x00\x2a\x9f"
TERM = 3


@attrs.define
class LogMessage:
    """Message with the fields that `encode_record` needs."""

    topic: str = "T"
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 500
    born_host: bytes = HOST_V4
    store_host: bytes = HOST_V4
    body: Buffer = b"hello"
    properties: bytes = b"TAGS\x01a"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_ms: int = 1000
    is_noop: bool = False
    """In a DLEDGER log: an entry without a record."""

    def with_v6_hosts(self) -> LogMessage:
        return attrs.evolve(
            self,
            sys_flag=self.sys_flag | SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6,
            born_host=HOST_V6,
            store_host=HOST_V6,
        )


@attrs.frozen
class Written:
    """One record of a log: the bytes of its entry are begin..end, from the log's beginning."""

    message: LogMessage
    begin: int
    end: int
    phy_offset: int
    queue_offset: int
    entry_index: int


@attrs.define
class LogImage:
    """Segments by the offset in their names."""

    segments: dict[int, bytearray]
    records: list[Written]
    end: int
    """Offset at which free space begins."""

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        for offset, data in self.segments.items():
            (directory / f"{offset:020d}").write_bytes(data)
        return directory


def make_log(
    messages: Iterable[LogMessage],
    *,
    segment_bytes: int = 4096,
    first_offset: int = 0,
    is_dledger: bool = False,
) -> LogImage:
    """The log a broker writes for these messages."""
    segments: dict[int, bytearray] = {}
    records: list[Written] = []
    next_index: dict[tuple[str, int], int] = {}
    offset = first_offset
    lead = 48 if is_dledger else 0
    for index, message in enumerate(messages):
        is_noop = message.is_noop and is_dledger
        key = (message.topic, message.queue_id)
        queue_offset = next_index.get(key, 0)
        size = lead if is_noop else lead + len(encode_record(message, 0, 0, 0))
        place = (offset - first_offset) % segment_bytes
        base = offset - place
        if base not in segments:
            segments[base] = bytearray(segment_bytes)
        if place + size + 8 > segment_bytes:
            rest = segment_bytes - place
            blank = (0xFFFFFFFF, rest) if is_dledger else (rest, BLANK_MAGIC)
            struct.pack_into(">II", segments[base], place, *blank)
            base = offset = base + segment_bytes
            place = 0
            segments[base] = bytearray(segment_bytes)
        data = b""
        if is_dledger:
            magic = 2 if is_noop else 1
            data = struct.pack(">iiqqqiiii", magic, size, index, TERM, offset, 0, 0, 0, size - lead)
        if not is_noop:
            data += encode_record(
                message, queue_offset, offset + lead, message.store_ms, body_crc(message.body)
            )
            next_index[key] = queue_offset + 1
            records.append(
                Written(message, offset, offset + size, offset + lead, queue_offset, index)
            )
        segments[base][place : place + size] = data
        offset += size
    return LogImage(segments, records, offset)
