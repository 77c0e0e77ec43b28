"""Events that the two HA machines give out, from the bytes that they get."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Term:
    """The epoch that an extended link belongs to; the nonce tells two of one number apart."""

    epoch: int
    nonce: bytes


class SlaveReported:
    """A slave holds the log up to `offset`."""

    def __init__(self, offset: int, first: bool, metadata_position: int = -1) -> None:
        self.offset: Final = offset
        self.first: Final = first
        """The slave's first report on this link: it wants the log from `offset` on."""
        self.metadata_position: Final = metadata_position
        """Position of the slave's newest metadata; -1 for none, and on a classic link."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SlaveReported):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.first == other.first
            and self.metadata_position == other.metadata_position
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.first, self.metadata_position))

    def __repr__(self) -> str:
        return f"SlaveReported({self.offset}, {self.first}, {self.metadata_position})"


class LogTransferred:
    """Bytes of the master's log to append at `phy_offset`: a frame, or the part that has come."""

    def __init__(self, phy_offset: int, body: memoryview) -> None:
        self.phy_offset: Final = phy_offset
        self.body: Final = body

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogTransferred):
            return NotImplemented
        return self.phy_offset == other.phy_offset and self.body == other.body

    def __hash__(self) -> int:
        return hash((self.phy_offset, bytes(self.body)))

    def __repr__(self) -> str:
        return f"LogTransferred({self.phy_offset}, {len(self.body)} bytes)"


@attrs.frozen
class MetadataTransferred:
    """A whole frame of changes outside the log, as the master's broker encoded them."""

    position: int
    body: bytes


@attrs.frozen
class MasterHeartbeat:
    """An empty frame: the master is there and would send from `phy_offset`."""

    phy_offset: int
