"""Records of recordings made by hand: right checksums, hostile insides."""

from __future__ import annotations

import struct
import zlib

import msgpack

from trioha.watch.recording import MAGIC, FrameKind


def record_of(kind: FrameKind, packed: bytes, wall_ms: int = 1_700_000_000_000) -> bytes:
    """A record whose checksum is right, whatever it holds."""
    payload = zlib.compress(packed, 9)
    stamp = struct.pack(">BQ", kind, wall_ms)
    crc = zlib.crc32(payload, zlib.crc32(stamp))
    return b"\xd7TRF" + struct.pack(">II", len(payload), crc) + stamp + payload


HEAD = MAGIC + record_of(FrameKind.HEAD, msgpack.packb({"format": 1}))
BOMBS = {
    "zeros": (b"", b"\x00", 1 << 27),
    "one long text": (b"\x81\xa1x\xdb\x08\x00\x00\x00", b"x", 1 << 27),
    "empty arrays": (b"\xdd\x02\x00\x00\x00", b"\x90", 1 << 25),
}
"""Beginning of the record, and what follows it so many times."""
