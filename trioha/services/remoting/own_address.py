"""The address that a node tells others if none is set (RemotingUtil.getLocalAddress)."""

from __future__ import annotations

import socket

_LOOPBACK = "127.0.0.1"


def own_address(bind_address: str) -> str:
    """The address bound, or else the one that other hosts would see; loopback without a network."""
    if bind_address not in ("", "0.0.0.0", "::"):
        return bind_address
    # Connecting a datagram socket sends nothing: it only asks the routing table.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return _LOOPBACK
