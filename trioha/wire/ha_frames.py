"""The two frames of classic replication (HAConnection.java, HAClient.java), after no handshake.

A slave reports its max phy offset; a master ships ``phy_offset i64 | size i32`` and `size` bytes
of log. Size 0 is a heartbeat: its offset is the next one the master would send.
"""

from __future__ import annotations

import struct

REPORT = struct.Struct(">q")
TRANSFER_HEADER = struct.Struct(">qi")
