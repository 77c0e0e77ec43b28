"""The supervisor, with real name servers as children."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
import trio

from trioha.supervisor import Node, NodeFailed, Supervisor, open_supervisor

PATIENCE_S = 20


async def start_namesrv(supervisor: Supervisor, directory: Path, *more: str) -> Node:
    with trio.fail_after(PATIENCE_S):
        return await supervisor.start(
            "ns",
            [
                *("namesrv", "--listen", "127.0.0.1:0"),
                *("--set", f"kvConfigPath={directory}/kv.json", *more),
            ],
        )


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_children_end_in_order_with_the_block(tmp_path: Path) -> None:
    lines: list[str] = []
    async with open_supervisor(on_line=lambda node, line: lines.append(line)) as supervisor:
        node = await start_namesrv(supervisor, tmp_path)
        host, _, port = node.address.rpartition(":")
        socket.create_connection((host, int(port)), PATIENCE_S).close()
    assert node.process.returncode == 0
    assert is_gone(node.pid)
    assert any("node_stopped" in line for line in lines)


async def test_a_child_that_dies_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    died: list[Node] = []
    told = trio.Event()

    def on_death(node: Node) -> None:
        died.append(node)
        told.set()

    async with open_supervisor(on_death=on_death) as supervisor:
        node = await start_namesrv(supervisor, tmp_path)
        os.kill(node.pid, signal.SIGKILL)
        with trio.fail_after(PATIENCE_S):
            await told.wait()
    assert died == [node]
    assert node.process.returncode == -signal.SIGKILL
    assert any("node_ready" in line for line in node.tail())


async def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed) as caught:
        async with open_supervisor() as supervisor:
            await start_namesrv(supervisor, tmp_path, "--set", "listenPort=-5")
    assert "exit code 2 before it served" in str(caught.value)
    assert "listenPort must be a whole number" in str(caught.value)


async def test_a_cancelled_supervisor_leaves_nothing_running(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_supervisor() as supervisor:
            node = await start_namesrv(supervisor, tmp_path)
            scope.cancel()
            await trio.sleep_forever()
    assert node.process.returncode == -signal.SIGKILL


async def test_a_log_file_takes_what_a_child_prints(tmp_path: Path) -> None:
    log = tmp_path / "ns.log"
    async with open_supervisor() as supervisor:
        with trio.fail_after(PATIENCE_S):
            node = await supervisor.start(
                "ns",
                ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={tmp_path}/kv.json"],
                log=log,
            )
    assert "node_ready" in log.read_text()
    assert node.tail() == log.read_text().splitlines()[-20:]
