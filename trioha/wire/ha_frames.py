"""The frames of replication: classic, as RocketMQ has them, and extended, between trioha nodes.

Classic (HAConnection.java, HAClient.java), after no handshake: a slave reports its max phy offset;
a master ships ``phy_offset i64 | size i32`` and `size` bytes of log. Size 0 is a heartbeat: its
offset is the next one the master would send.

Extended, after HA_HELLO over remoting: the slave opens with 24 bytes, a magic that no offset can be
(its sign bit is set), then epoch, nonce and its home id; each report is two i64, the end of its log
and the position of the last metadata frame it took (-1 for none). Every frame of the master begins
``kind u8 | epoch i32 | offset i64 | size i32``, where `offset` is a position for metadata.
"""

from __future__ import annotations

import struct
from typing import Final

REPORT: Final = struct.Struct(">q")
TRANSFER_HEADER: Final = struct.Struct(">qi")

EXTENDED_MAGIC: Final = b"\xffTHA-EP\x01"
EXTENDED_OPENING: Final = struct.Struct(f">{len(EXTENDED_MAGIC)}si8si")
EXTENDED_REPORT: Final = struct.Struct(">qq")
EXTENDED_HEADER: Final = struct.Struct(">Biqi")

# Plain numbers: looking a member up in its enum costs more than the comparison it is for.
KIND_LOG: Final = 1
KIND_METADATA: Final = 2
KIND_HEARTBEAT: Final = 3

METADATA_BYTES_MAX: Final = 64 * 1024 * 1024
"""Limit of one frame. A snapshot of 100,000 topics and their groups' offsets is a third of that."""
