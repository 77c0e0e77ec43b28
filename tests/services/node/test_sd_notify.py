"""sd_notify: what systemd hears, by path and by abstract name, and silence without it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trioha.services.node.sd_notify import notify_ready, notify_stopping


@pytest.mark.parametrize("abstract", [False, True])
def test_states_reach_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"@trioha-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify_ready("up")
        notify_stopping()
        assert [systemd.recv(100) for _ in range(2)] == [
            b"READY=1\nSTATUS=up",
            b"STOPPING=1\nSTATUS=stopping",
        ]


@pytest.mark.parametrize("address", [None, "", "vsock:1:2", "/nowhere/at/all"])
def test_without_systemd_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify_ready("up")
