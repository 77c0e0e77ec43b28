"""What the core reads of the log: the seam to the store, or to its twin in the simulation."""

from __future__ import annotations

from typing import Protocol

from trioha.wire.remoting_command import Buffer


class Ledger(Protocol):
    """The broker's commitlog. It changes between calls of the core only, as `Ready` says."""

    def read(self, phy_offset: int, size_max: int) -> Buffer:
        """Whole records from here on, at most `size_max` bytes of them; one record at least."""
