"""The values that a failover hands to a node: another node of the set, and a term to begin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs


@attrs.frozen(kw_only=True)
class Peer:
    """Another node of the set."""

    home_id: int
    address: str
    ha_address: str = ""

    def __str__(self) -> str:
        return f"{self.home_id} ({self.address})"


@attrs.frozen(kw_only=True)
class Promotion:
    """A term to begin."""

    epoch: int
    nonce: bytes
    sync: bool | None
    """Do puts wait for a slave? None: as in the term before."""
    log_offset: int
    """The log must reach at least here: where the old master's ends."""
    operator: str
    planned: bool = False
    """The old master has handed over and is about to follow."""
    promised: tuple[int, ...] = ()
    """Home ids of the other members that have promised the term."""
    written_off: tuple[int, ...] = ()
    """Home ids of silent members that the operator gave up by force."""
    members: Mapping[int, str] = MappingProxyType({})
    """Addresses of the other members of the set by home id, as far as the operator found them."""


@attrs.frozen
class HandOver:
    """A term that a master left to another node."""

    target: Peer
    epoch: int
    nonce: bytes
    at_ms: int
    """Time of the hand-over in milliseconds, by the clock of the node's deadlines."""

    @property
    def ticket_id(self) -> str:
        return self.nonce.hex()
