"""The core's view of the log: the seam to the store, or to the store of the simulation."""

from __future__ import annotations

from typing import Protocol

from trioha.wire.remoting_command import Buffer


class Ledger(Protocol):
    """The broker's commitlog. It changes between calls of the core only, as `Ready` asks."""

    def read(self, phy_offset: int, size_max: int) -> Buffer:
        """Return whole records from `phy_offset` on: at most `size_max` bytes, but at least one."""
