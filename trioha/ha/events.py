"""What the two HA machines find in the bytes they are given."""

from __future__ import annotations

from enum import Enum

import attrs


class NeedData(Enum):
    """The type of `NEED_DATA`, so that type checkers can tell it from an event."""

    NEED_DATA = "NEED_DATA"


NEED_DATA = NeedData.NEED_DATA
"""Nothing more to find until more bytes arrive."""


@attrs.frozen
class Term:
    """The epoch that an extended link belongs to; the nonce tells two of one number apart."""

    epoch: int
    nonce: bytes


@attrs.frozen
class SlaveReported:
    """A slave holds the log up to `offset`."""

    offset: int
    first: bool
    """Its first report on this link: where it wants to be served from."""
    metadata_position: int = -1
    """Of the last metadata frame that it took; -1 for none, and on a classic link."""


@attrs.frozen
class LogTransferred:
    """Bytes of the master's log to append at `phy_offset`: a frame, or the part that has come."""

    phy_offset: int
    body: memoryview


@attrs.frozen
class MetadataTransferred:
    """What changed outside the log, as the master's broker put it; a whole frame."""

    position: int
    body: bytes


@attrs.frozen
class MasterHeartbeat:
    """An empty frame: the master is there and would send from `phy_offset`."""

    phy_offset: int
