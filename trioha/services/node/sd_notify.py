"""Tells systemd how a node is doing (sd_notify(3)); does nothing when systemd does not listen."""

from __future__ import annotations

import os
import socket


def notify_ready(status: str) -> None:
    """The node serves. `status` is what `systemctl status` shows."""
    _notify(f"READY=1\nSTATUS={status}")


def notify_stopping() -> None:
    _notify("STOPPING=1\nSTATUS=stopping")


def _notify(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.sendto(state.encode(), address)
    except OSError:
        pass  # systemd's loss, not ours
