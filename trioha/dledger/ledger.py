"""The core's view of the log: the seam to the store, or to the store of the simulation."""

from __future__ import annotations

from typing import Protocol

from trioha.dledger.membership import ConfigurationRows
from trioha.wire.remoting_command import Buffer


class Ledger(Protocol):
    """The broker's commitlog. It changes between calls of the core only, as `Ready` asks."""

    def read(self, phy_offset: int, size_max: int) -> Buffer:
        """Return whole records from `phy_offset` on: at most `size_max` bytes, but at least one."""

    def is_boundary(self, phy_offset: int) -> bool:
        """Return whether a record begins at this offset of the log, or the log ends there."""

    def configurations_in(self, phy_offset: int, term: int, body: Buffer) -> ConfigurationRows:
        """Return the configurations that a leader's bytes of `term` set at the end of the log.

        Bytes without an error count as appended. Errors: RemoteProtocolError if the log cannot
        take them.
        """

    def objection_to_begin(self, phy_offset: int) -> str:
        """Return why an empty log cannot begin at this offset; "" if it can."""
