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
class SlaveReported:
    """A slave holds the log up to `offset`."""

    offset: int
    first: bool
    """Its first report on this link: where it wants to be served from."""


@attrs.frozen
class LogTransferred:
    """Bytes of the master's log to append at `phy_offset`: a frame, or the part that has come."""

    phy_offset: int
    body: memoryview


@attrs.frozen
class MasterHeartbeat:
    """An empty frame: the master is there and would send from `phy_offset`."""

    phy_offset: int
