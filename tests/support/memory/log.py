"""A log in memory: the part of a store that replication sees, segments and all."""

from __future__ import annotations

from trioha.errors import DiskFull, OffsetOutOfRange, StoreError
from trioha.wire.remoting_command import Buffer


class MemoryLog:
    """Starts empty at `base`; may be told to run out of room or to forget old segments."""

    def __init__(self, segment_bytes: int = 1 << 20, base: int = 0) -> None:
        self.segment_bytes = segment_bytes
        self.base = base
        self.data = bytearray()
        self.first = base
        self.room: int | None = None

    @property
    def min_phy_offset(self) -> int:
        return self.first

    @property
    def max_phy_offset(self) -> int:
        return self.base + len(self.data)

    @property
    def dispatched_offset(self) -> int:
        """Nothing in here is a record."""
        return -1

    def write(self, data: bytes) -> None:
        """A master's own append; no records, so it may cross segments."""
        self.data += data

    def forget_before(self, phy_offset: int) -> None:
        """Retention: delete whole segments below `phy_offset`."""
        self.first = phy_offset - phy_offset % self.segment_bytes

    def read_log(self, phy_offset: int, size_max: int) -> memoryview:
        if not self.first <= phy_offset <= self.max_phy_offset:
            raise OffsetOutOfRange(
                f"offset {phy_offset} is not within {self.first}..{self.max_phy_offset}"
            )
        segment_end = phy_offset - phy_offset % self.segment_bytes + self.segment_bytes
        end = min(phy_offset + size_max, segment_end, self.max_phy_offset)
        # A copy: a view would stop the bytearray from growing.
        return memoryview(bytes(self.data[phy_offset - self.base : end - self.base]))

    def append_log(self, phy_offset: int, data: Buffer) -> None:
        if not self.data and phy_offset != self.max_phy_offset:
            if phy_offset % self.segment_bytes:
                raise StoreError(f"an empty log starts with a segment, not at {phy_offset}")
            self.base = self.first = phy_offset
        if phy_offset != self.max_phy_offset:
            raise StoreError(f"append at {phy_offset}, the log ends at {self.max_phy_offset}")
        if phy_offset // self.segment_bytes != (phy_offset + len(data) - 1) // self.segment_bytes:
            raise StoreError(f"append at {phy_offset} of {len(data)} crosses its segment")
        if self.room is not None and len(self.data) + len(data) > self.room:
            raise DiskFull(f"no room for {len(data)} bytes")
        self.data += data
