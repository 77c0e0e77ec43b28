"""Bodies of metadata as records of the Raft log, and back.

Theory of operation. A body (`trioha.broker.metadata_ops`) is one record of topic
``TRIOHA_METADATA``, queue 0, or several in a row if it is large: snapshots of big tables are larger
than a message may be. The record's body begins with five bytes: kind, number of the part, number of
parts. The first record of a snapshot carries a tag, so that the consume queue alone finds the
newest one.

The leader appends the parts of a body in one pass, but it may die between them. The next leader
begins with a part 0. A body that is not complete then never counts: no client got an answer to it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from trioha.errors import RemoteProtocolError
from trioha.store.put_values import PutMessage
from trioha.wire.java_hash import string_hash
from trioha.wire.names import METADATA_TOPIC
from trioha.wire.properties import TAGS, encode_properties
from trioha.wire.record import decode_record
from trioha.wire.remoting_command import Buffer

QUEUE_ID = 0
CHANGES, SNAPSHOT = 1, 2
SNAPSHOT_TAG = "SNAPSHOT"
SNAPSHOT_CODE = string_hash(SNAPSHOT_TAG)
"""Tags code in the consume queue entry of a snapshot's first record."""
PART_BYTES_MAX = 1 << 20
"""Size limit of a part, so that it fits into a batch of the log (`batch_bytes_max`)."""
BODY_BYTES_MAX = 256 << 20
"""Size limit of a body: millions of offsets. Its parts stay in memory until the last one."""
PARTS_MAX = (1 << 16) - 1

_HEAD = struct.Struct(">BHH")  # kind, part, count
_NO_HOST = bytes(8)
_PROPERTIES = encode_properties({TAGS: SNAPSHOT_TAG})


def messages_of(kind: int, body: bytes, part_bytes: int, wall_ms: int) -> Iterator[PutMessage]:
    """Yield the messages that carry a body, in order. HOT: nearly always one."""
    size = part_bytes - _HEAD.size
    count = -(-len(body) // size)
    assert 0 < count <= PARTS_MAX, f"{len(body)} bytes of metadata in parts of {part_bytes}"
    for part in range(count):
        piece = body if count == 1 else body[part * size : (part + 1) * size]
        is_first_of_snapshot = kind == SNAPSHOT and part == 0
        yield PutMessage(
            METADATA_TOPIC,
            QUEUE_ID,
            0,
            0,
            wall_ms,
            _NO_HOST,
            _NO_HOST,
            _HEAD.pack(kind, part, count) + piece,
            _PROPERTIES if is_first_of_snapshot else b"",
            SNAPSHOT_CODE if is_first_of_snapshot else 0,
        )


def read_part(record: Buffer) -> tuple[int, int, int, bytes]:
    """Return kind, part, number of parts, and the piece of the body in a record.

    Errors: RemoteProtocolError if it is no record of metadata.
    """
    body = decode_record(record).body
    if len(body) <= _HEAD.size:
        raise RemoteProtocolError(f"{len(body)} bytes are no part of metadata")
    kind, part, count = _HEAD.unpack_from(body)
    if kind not in (CHANGES, SNAPSHOT) or part >= count:
        raise RemoteProtocolError(f"metadata of kind {kind}, part {part} of {count}")
    return kind, part, count, body[_HEAD.size :]


class Assembly:
    """Joins the parts of a body in the order of their records."""

    def __init__(self) -> None:
        self.phy_offset = -1
        """Offset of the first record of the present body, or of the last one."""
        self.held_bytes = 0
        """Size of the parts of the present body so far; 0 when it is complete."""
        self._kind = self._count = 0
        self._pieces: list[bytes] = []

    def clear(self) -> None:
        self._pieces.clear()
        self.held_bytes = 0

    def add(self, phy_offset: int, kind: int, part: int, count: int, piece: bytes) -> bytes | None:
        """Add a part; return the body if it is complete with this part, else None."""
        pieces = self._pieces
        if part == 0:
            self.phy_offset, self._kind, self._count = phy_offset, kind, count
            self.clear()
        elif (kind, part, count) != (self._kind, len(pieces), self._count):
            self.clear()  # reading began in the middle of this body
            return None
        pieces.append(piece)
        self.held_bytes += len(piece)
        if len(pieces) < count:
            return None
        body = piece if count == 1 else b"".join(pieces)
        self.clear()
        return body
